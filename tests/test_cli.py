"""The command line as a person or a script meets it: exit codes, plain text, no tracebacks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from accord.record.record import Record
from accord.study.library import shipped
from command_line import Here, Refused
from records import hundred_classes, timeless

Raw = dict[str, Any]


def accord(
    *words: str | Path, cwd: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "accord.cli", *map(str, words)]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=cwd, env={**os.environ, **environment}
    )


@pytest.fixture
def file(study: Raw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "study.yaml"
    path.write_text(yaml.safe_dump(study))
    return path


def test_a_run_ends_with_a_table_and_where_the_record_is(file: Path, tmp_path: Path) -> None:
    done = accord("run", file, "--workers", "1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "accuracy %" in done.stdout
    assert "fafi" in done.stdout
    assert "record: runs/tiny" in done.stdout
    assert "\x1b" not in done.stdout + done.stderr  # piped: no colours, no bars
    assert (tmp_path / "runs/tiny/results.csv").exists()
    again = accord("results", tmp_path / "runs/tiny", "--json")
    rows = json.loads(again.stdout)["rows"]
    assert [row["recipe"] for row in rows] == ["fafi"]


def test_overrides_options_and_quiet(file: Path, tmp_path: Path, here: Here) -> None:
    words = ("budget.epochs=1", "seeds=[0,1]", "--out", tmp_path / "r", "--workers", "1", "--quiet")
    done = here("run", file, *words)
    assert done.code == 0
    assert done.error == ""
    assert {row["epoch"] for row in timeless(tmp_path / "r")} == {"1"}
    assert "over 2 seeds" in done.out


def test_a_failed_trial_gives_exit_code_1(file: Path, tmp_path: Path, here: Here) -> None:
    words = ("budget.lr=1e30", "budget.clip=null", "recipes=[ce-ensemble]", "--workers", "1")
    done = here("run", file, *words, "--out", tmp_path / "r")
    assert done.code == 1
    assert "failed: ce-ensemble" in done.out
    assert "Traceback" not in done.out + done.error


def test_a_balance_that_explodes_is_named_and_the_rest_finishes(
    file: Path, tmp_path: Path, here: Here
) -> None:
    wild = "{use: etf-attenuated, balance: {start_align: -200}, as: wild}"
    done = here(
        "run", file, f"recipes=[{wild}, OursV12]", "--workers", "1", "--out", tmp_path / "r"
    )
    assert done.code == 1
    assert "failed: wild" in done.out
    assert "balance attenuated of anchors" in " ".join(done.out.split())
    assert "Traceback" not in done.out + done.error
    assert [row["recipe"] for row in timeless(tmp_path / "r")] == ["etf-attenuated"]


def test_a_dry_run_shows_trials_and_costs_and_writes_nothing(
    file: Path, tmp_path: Path, here: Here
) -> None:
    words = ("recipes=[fafi,ce-ensemble,fedavg-once]", "data.test_limit=400")
    done = here("run", file, "--dry-run", *words)
    assert done.code == 0, done.error
    assert "data.test_limit is 400, but digits has 359 test images: all" in done.error
    assert "train_limit" not in done.error
    assert "trials: 3" in done.out
    assert "shares a training above" in done.out
    for word in ("core time: about", "wall time if idle: about", "memory: about", "MB up"):
        assert word in done.out
    assert [path.name for path in tmp_path.iterdir()] == ["study.yaml"]


def test_mistakes_in_a_study_give_exit_code_2(file: Path, tmp_path: Path, refused: Refused) -> None:
    refused("run", file, "budget.epoch=3", said="did you mean 'epochs'")
    refused("run", file, "recipes=[faffi]", said="did you mean 'fafi'")
    refused("run", file, "data.name=cifr10", said="did you mean 'cifar10'")
    refused("run", file, "partition.alpha=0", said="greater than 0")
    refused("run", file, "budget.lr=.nan", said="finite")
    refused("run", file, "partition.clients=1000", "--out", tmp_path / "r", said="1,000 clients")
    refused("run", file, "--workers", "0", said="--workers")
    refused("run", file, "device=cuda:7", said="device 'cuda:7'")
    refused("run", file, "device=warp", said="device 'warp'")
    refused("run", tmp_path / "none.yaml", said="does not exist")
    refused("results", tmp_path / "none", said="not a run directory")
    refused("results", tmp_path, said="not a run directory")
    refused("recipes", "faffi", said="did you mean 'fafi'")
    refused("run", file, "--data-root", tmp_path / "none", "data.name=cifar10", said="none")
    refused("data", "--download", "cifr10", said="did you mean 'cifar10'")


def test_an_encoder_too_narrow_for_its_anchors_gives_exit_code_2(
    file: Path, tmp_path: Path, refused: Refused
) -> None:
    data = f"data={{name: npz, path: {hundred_classes(tmp_path)}}}"
    refused("run", file, data, "recipes=[fafi, OursV7]", said="width 64 and 100 classes")
    assert not (tmp_path / "runs").exists()


def bank_of(bank: str, use: str = "public-negatives") -> str:
    return f"recipes=[{{use: {use}, bank: {bank}, as: mine}}]"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["recipes=[public-negatives]", "data.public=0"], "a bank needs public images, found none"),
        (["recipes=[fafi, reference-mmd]", "data.public=0"], "recipe 'reference-mmd'"),
        (["data.public=0.99"], "'public': 0.99 of the 15 training images of class '0'"),
        ([bank_of("{size: 31}")], "at most the 30 public images there are; found 31"),
        ([bank_of("{size: 9}")], "bank.size: expected at least 10"),
        ([bank_of("{size: 0}")], "'recipes.mine.bank.size'"),
        ([bank_of("{size: many}")], "'recipes.mine.bank.size': expected a whole number"),
        ([bank_of("{teacher_epochs: 0}")], "'recipes.mine.bank.teacher_epochs'"),
        ([bank_of("{selection: best}")], "'recipes.mine.bank.selection'"),
        ([bank_of("{sizes: 12}")], "unknown key 'recipes.mine.bank.sizes'"),
        ([bank_of("12")], "'recipes.mine.bank'"),
        ([bank_of("all")], "objective: {contrast: {bank: others}}"),
        (["bank={size: 12}"], "It belongs in a recipe."),
        (["recipes=[{use: fafi, objective: {contrast: {queue: 100000000}}}]"], "contrast.queue'"),
        ([bank_of("{source: none}")], "found no briefing with uploads in"),
        ([bank_of("{source: 7}")], "'recipes.mine.bank.source'"),
        ([bank_of("{size: 12}", "fafi")], "recipes.mine.bank: no term of the recipe uses it"),
        (["recipes=[{use: fafi, alignment_epochs: 1}]"], "need a term in `align`; found none"),
        (
            ["recipes=[{use: bank-two-stage, alignment_epochs: 2, as: mine}]"],
            "recipes.mine.alignment_epochs: expected fewer than budget.epochs = 2",
        ),
        (["recipes=[OursV6]", "budget.epochs=[2, 1]"], "fewer than budget.epochs = 1"),
        (["recipes=[{use: OursV6, alignment_epochs: -1}]"], "alignment_epochs'"),
        (["recipes=[{use: fafi, objective: {contrast: {bank: some}}}]"], "contrast.bank'"),
    ],
)
def test_mistakes_about_a_bank_or_a_stage_give_exit_code_2_and_write_nothing(
    study: Raw, tmp_path: Path, refused: Refused, words: list[str], said: str, file: Path
) -> None:
    study["data"]["public"] = 0.2
    file.write_text(yaml.safe_dump(study))
    refused("run", file, *words, "--workers", "1", said=said)
    refused("run", file, *words, "--dry-run", said=said)
    assert [path.name for path in tmp_path.iterdir()] == ["study.yaml"]


def test_an_unknown_key_of_a_bank_is_told_with_the_nearest_known(
    file: Path, refused: Refused
) -> None:
    refused("run", file, bank_of("{sizes: 12}"), said="did you mean 'size'")


def test_a_bank_that_is_no_mapping_is_told_in_plain_words(file: Path, here: Here) -> None:
    assert "BankConfig" not in here("run", file, bank_of("12")).error


def test_a_teacher_that_diverges_gives_exit_code_1_and_the_rest_finishes(
    study: Raw, file: Path, tmp_path: Path, here: Here
) -> None:
    """A weight decay of lr·3 multiplies weights at every step: a few are fine, 60 are not."""
    study["data"]["public"] = 0.2
    study["budget"] = {"epochs": 1, "batch": 64, "lr": 1.0, "weight_decay": 3.0, "momentum": 0.0}
    taught = {"use": "public-negatives", "bank": {"teacher_epochs": 60}, "as": "taught"}
    study |= {"recipes": [taught, "fafi"], "partition": {"alpha": 5.0, "clients": 2}}
    file.write_text(yaml.safe_dump(study))
    words = ("budget.clip=null", "--workers", "1", "--out", tmp_path / "r")
    done = here("run", file, *words)
    assert done.code == 1
    said = " ".join(done.out.split())
    assert "failed: teacher-s0-" in said
    assert "the teacher: epoch" in said
    assert "Lower budget.lr, or set budget.clip." in said
    assert "failed: taught-a5-s0-" in said
    assert "Traceback" not in done.out + done.error
    assert [row["recipe"] for row in timeless(tmp_path / "r")] == ["fafi"]
    later = here("results", tmp_path / "r")
    assert "failed: taught-a5-s0-" in later.out


def test_a_dry_run_counts_the_teacher_and_the_bank(
    study: Raw, file: Path, tmp_path: Path, here: Here
) -> None:
    study["data"]["public"] = 0.2
    names = ("public-negatives", "reference-coral", "bank-two-stage")
    uses = [{"use": use, "bank": {"teacher_epochs": 1}, "as": use} for use in names]
    file.write_text(yaml.safe_dump({**study, "recipes": ["fafi", *uses]}))
    done = here("run", file, "--dry-run", "--workers", "1", "partition.alpha=[0.5,5.0]")
    assert done.code == 0, done.error
    lines = [line for line in done.out.splitlines() if "teacher-s0-" in line]
    assert len(lines) == 1  # for three recipes and two skews
    assert "trains on the public images" in lines[0]
    assert lines[0].split()[1:3] == ["1", "30"]  # one client of 30 images
    assert [path.name for path in tmp_path.iterdir()] == ["study.yaml"]
    words = ("recipes=[fafi, public-negatives]", "data.public=0.6", "data.train_limit=1200")
    fields = {
        line.split()[0].rsplit("-", 3)[0]: line.split()
        for line in here("run", file, "--dry-run", "--workers", "1", *words).out.splitlines()
        if "-a0.5-s0-" in line
    }
    # 720 rows of 64 numbers and a label, for three clients: half a megabyte.
    down = {name: float(words[-1]) for name, words in fields.items()}
    assert down["public-negatives"] - down["fafi"] == pytest.approx(0.57, abs=0.11)


def test_a_dry_run_counts_as_many_trials_as_will_run(study: Raw, file: Path, here: Here) -> None:
    study["data"]["public"] = 0.2
    file.write_text(yaml.safe_dump({**study, "recipes": ["public-negatives"]}))
    assert "trials: 1\n" in here("run", file, "--dry-run", "--workers", "1").out


def test_without_torchjd_its_recipe_is_refused_and_all_others_work(
    file: Path, tmp_path: Path, refused: Refused, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torchjd", None)  # as Python marks what cannot be imported
    said = "needs torchjd, which is not installed: pip install 'accord[gradient]'"
    refused("run", file, "recipes=[fafi, etf-upgrad]", said=said)
    assert not (tmp_path / "runs").exists()
    assert "etf-upgrad" in here("recipes").out
    assert "balance.aggregator" in here("recipes", "etf-upgrad").out
    assert here("run", file, "recipes=[etf-gradnorm]", "--workers", "1").code == 0


def test_a_missing_dataset_says_which_file_goes_where(
    file: Path, tmp_path: Path, refused: Refused
) -> None:
    refused(
        "run", file, "data.name=svhn", "--data-root", tmp_path, said="train_32x32.mat"
    )  # fmt: skip


def test_a_damaged_source_is_named(file: Path, tmp_path: Path, refused: Refused) -> None:
    (tmp_path / "cifar10-train.parquet").write_bytes(b"PAR1 but not really")
    (tmp_path / "cifar10-test.parquet").write_bytes(b"")
    refused("run", file, "data.name=cifar10", "--data-root", tmp_path, said="cifar10-train.parquet")


def test_a_run_directory_of_another_study_is_refused(
    file: Path, tmp_path: Path, refused: Refused, here: Here
) -> None:
    out = ("--out", tmp_path / "r", "--workers", "1")
    assert here("run", file, *out).code == 0
    before = timeless(tmp_path / "r")
    refused("run", file, "name=other", *out, said="another study: name was 'tiny'")
    refused("run", file, "budget.lr=0.5", *out, said="budget.lr was 0.05")
    refused("run", file, "budget.checkpoints=[1]", *out, said="budget.checkpoints was []")
    refused("run", file, "net.backbone=resnet10", *out, said="net.backbone was 'conv4'")
    changed = "recipes=[{use: fafi, views: 1, as: fafi}]"
    refused("run", file, changed, *out, said="holds 'fafi' with another views")
    assert timeless(tmp_path / "r") == before
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers/thesis.txt").write_text("mine")
    refused("run", file, "--out", tmp_path / "papers", said="not a run directory")
    refused("run", file, "--out", tmp_path, said="not a run directory")  # not over one's own study
    assert yaml.safe_load(file.read_text())["name"] == "tiny"


def test_a_damaged_record_is_named_and_nothing_is_lost(
    file: Path, tmp_path: Path, refused: Refused, here: Here
) -> None:
    out = tmp_path / "r"
    assert here("run", file, "--out", out, "--workers", "1").code == 0
    (trial,) = Record(out).trials()
    for name in ("trial.json", "measures.json"):
        content = (trial.path / name).read_bytes()
        (trial.path / name).write_bytes(content[: len(content) // 2])
        refused("results", out, said=name)
        refused("run", file, "--out", out, said=name)
        (trial.path / name).write_bytes(content)
    (trial.path / "measures.json").unlink()
    assert "its measures.json is missing: run the study again" in here("results", out).out
    again = here("run", file, "--out", out, "--workers", "1")
    assert "its measures.json is missing. The trial is measured again" in again.error
    upload = trial.path / "uploads" / "client-1.safetensors"
    content = upload.read_bytes()
    upload.write_bytes(content[:50])
    assert "The upload of client 1 in" in here("report", out, "--latex").error
    upload.write_bytes(content[:-7])
    # The client is asked again, and its upload has the same bytes as before.
    done = here("run", file, "fusions=[outputs]", "--out", out, "--workers", "1")
    assert done.code == 0
    assert "client-1.safetensors is not a whole upload" in done.error
    assert upload.read_bytes() == content
    (out / "study.yaml").write_text("name: [")
    refused("run", file, "--out", out, said="study.yaml is damaged")


def test_an_output_folder_that_cannot_be_written(
    file: Path, tmp_path: Path, refused: Refused
) -> None:
    (tmp_path / "taken").write_text("a file")
    refused("run", file, "--out", tmp_path / "taken", said="taken")
    refused("run", file, "--out", "/proc/accord", said="/proc/accord")


def test_a_full_disk_is_told_and_the_run_goes_on_later(
    file: Path, tmp_path: Path, here: Here, refused: Refused
) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(small)]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("a small file system can be mounted by root only")
    try:
        words = ("run", file, "seeds=[0,1,2]", "--out", small / "r", "--quiet", "--workers")
        refused(*words, "2", said="No space left on device")
        subprocess.run(["mount", "-o", "remount,size=64m", str(small)], check=True)
        assert here(*words, "1").code == 0
        assert len(timeless(small / "r")) == 3
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_two_processes_cannot_write_one_record(
    file: Path, tmp_path: Path, here: Here, refused: Refused
) -> None:
    with Record(tmp_path / "r").lock():
        refused("run", file, "--out", tmp_path / "r", said="being written by another process")
    assert here("run", file, "--out", tmp_path / "r", "--workers", "1").code == 0


def test_a_worker_that_dies_is_reported_and_the_rest_goes_on(
    file: Path, tmp_path: Path, here: Here
) -> None:
    import psutil

    words = ("run", file, "budget.epochs=40", "seeds=[0,1]", "--out", tmp_path / "r", "--workers")
    command = [sys.executable, "-m", "accord.cli", *map(str, words), "2"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 90
    # A worker writes events once it trains: only then is a death that of a client.
    while not list(tmp_path.glob("r/trials/*/events.jsonl")):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.05)
    workers = psutil.Process(process.pid).children()
    assert len(workers) == 2
    workers[0].kill()
    out, error = process.communicate(timeout=240)
    assert process.returncode == 1, error
    assert "its worker process was killed by SIGKILL" in out
    assert "client" in out
    rows = timeless(tmp_path / "r")
    assert len(rows) == 1  # the other seed
    assert here(*words, "1").code == 0  # and then both
    assert len(timeless(tmp_path / "r")) == 2


def test_ctrl_c_says_that_one_can_go_on(file: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "accord.cli", "run", str(file), "budget.epochs=500"]
    process = subprocess.Popen(
        [*command, "--workers", "1"],
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        # A test that runs in the background inherits that Ctrl-C is ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("runs/tiny/trials/*/events.jsonl")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "accord: stopped. Run the same command again to go on." in error
    assert "Traceback" not in error


def test_a_cluster_is_needed_only_when_the_study_runs(file: Path, here: Here) -> None:
    """Nothing listens at this address."""
    dry = here("run", file, "--dry-run", "--cluster", "tcp://127.0.0.1:1")
    assert dry.code == 0
    both = here("run", file, "--workers", "2", "--cluster", "tcp://127.0.0.1:1")
    assert both.code == 2
    assert "expected --cluster or --workers; found both" in both.error
    wrong = here("run", file, "--cluster", "nowhere")
    assert wrong.code == 2
    assert wrong.error.startswith("accord: --cluster: expected the address of a running Dask")
    assert not list(file.parent.glob("runs/*"))


def test_lists_of_recipes_datasets_and_the_state_of_the_machine(tmp_path: Path, here: Here) -> None:
    recipes = here("recipes")
    assert recipes.code == 0
    for name, alias in shipped().items():
        assert name in recipes.out
        assert (alias or "") in recipes.out
    one = here("recipes", "OursV7")
    assert "etf-fixed" in one.out
    assert "balance.lambda" in one.out
    data = here("data", "--data-root", tmp_path)
    assert data.code == 0
    for name in ("digits", "mnist", "cifar100", "tiny-imagenet", "folder", "npz", "parquet"):
        assert name in data.out
    assert any(row["name"] == "digits" for row in json.loads(here("data", "--json").out))
    doctor = here("doctor")
    assert doctor.code == 0
    for word in (
        "Python",
        "torch",
        "processor",
        "cores",
        "memory",
        "disk",
        "datasets",
        "notebook",
        "gradient",
    ):
        assert word in doctor.out


def test_empty_arguments_too_many_workers_and_a_folder_that_is_gone(
    file: Path, tmp_path: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused("predict", "", said="argument 2 is empty")
    refused("results", file, "", said="argument 3 is empty")
    refused("run", file, "--workers", "100000", said="--workers: expected 1 to ")
    refused("watch", tmp_path, "--every", "nan", said="--every: expected seconds")
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    try:
        refused("results", file, said="The current folder cannot be used")
    finally:
        monkeypatch.chdir(tmp_path)
