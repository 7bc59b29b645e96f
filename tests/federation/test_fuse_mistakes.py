"""Fusing what cannot be fused: exit code 2, a sentence that names it, and no harm done."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

import accord
from accord.cli import main
from accord.client.base import Precision
from accord.client.training import Training
from accord.core.parts import make_part
from accord.core.randomness import torch_generator
from accord.fusion import fusions
from accord.messages import NET, Briefing, Upload, prefixed
from accord.nets.net import fresh_net
from accord.record.folders import TrialFolder
from accord.record.record import Record
from fused import CLIENT, fafi, run_of
from fusion.support import every_rule
from records import contents
from tests_support import CLASSES, brief_for, images_of

Raw = dict[str, Any]
QUIETLY = ("--workers", "1", "--quiet")
PROTOTYPES = "net.head.prototypes"


class Done(NamedTuple):
    code: int
    out: str
    error: str


Fuse = Callable[..., Done]
Refused = Callable[..., str]


@pytest.fixture
def fuse(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Fuse:
    """`accord fuse …`, as the command line does it."""

    def call(run: Path, *words: str | Path) -> Done:
        said = [str(word) for word in ("accord", "fuse", run, *words, *QUIETLY)]
        monkeypatch.setattr(sys, "argv", said)
        with pytest.raises(SystemExit) as ended:
            main()
        heard = capsys.readouterr()
        return Done(int(ended.value.code or 0), heard.out, heard.err)

    return call


@pytest.fixture
def refused(fuse: Fuse) -> Refused:
    """Exit code 2 and a sentence or two, which it returns as one line."""

    def check(run: Path, *words: str | Path) -> str:
        done = fuse(run, *words)
        assert done.code == 2, done
        assert "Traceback" not in done.error
        assert done.error.count("\n") <= 4
        return " ".join(done.error.split())

    return check


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two trials; tests that use it leave it as it is."""
    return run_of(tmp_path_factory.mktemp("mistakes"), recipes=["fafi", "ce-ensemble"])


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    """One to break."""
    shutil.copytree(made, tmp_path / "run")
    return tmp_path / "run"


def rows(run: Path) -> list[str]:
    """What the trial of `fafi` was fused by."""
    return [row["fusion"] for row in Record(run).rows() if row["recipe"] == "fafi"]


# --- uploads that cannot be used -----------------------------------------------------------------


def stray(backbone: str = "conv4", classes: int = 10) -> Upload:
    """What client 1 would send in another study: its net before the first step."""
    briefing = brief_for("fafi", backbone=backbone)
    header = briefing.header.model_copy(update={"classes": CLASSES[:classes]})
    net = fresh_net(header.net, 1, classes, torch_generator(0, "net"))
    briefing = Briefing(header, prefixed(NET, net.state_dict()))
    data = images_of([0, 1, 2, 3] * 4)
    return Training(data, briefing, "1", Precision(torch.device("cpu"))).upload()


def as_if(upload: Upload, trial: TrialFolder) -> Upload:
    """It says that it answers this trial's briefing."""
    digest = Briefing.load(trial.briefing).digest
    return Upload(upload.header.model_copy(update={"briefing": digest}), upload.tensors)


def with_value(path: Path, name: str, value: float) -> None:
    upload = Upload.load(path)
    upload.tensors[name].view(-1)[-1] = value
    upload.save(path)


def with_zeros(path: Path, *, statistics: bool) -> None:
    """Weights of 0; those of a net that never saw an image still have a variance of 1."""
    upload = Upload.load(path)
    for name, tensor in upload.tensors.items():
        if name.startswith(NET) and (statistics or "running" not in name):
            tensor.zero_()
    upload.save(path)


def with_huge_prototypes(path: Path) -> None:
    """Finite, and so are none of its scores."""
    upload = Upload.load(path)
    upload.tensors[PROTOTYPES].fill_(3e38)
    upload.save(path)


def cut(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])


def replace(path: Path) -> None:
    shutil.copy(path.with_name("client-0.safetensors"), path)


Break = Callable[[Path, TrialFolder], object]
BROKEN: dict[str, tuple[Break, str]] = {
    "another net": (lambda path, _: stray("resnet10").save(path), "another briefing"),
    "another net, as if it were not": (
        lambda path, trial: as_if(stray("resnet10"), trial).save(path),
        "(10, 128)",
    ),
    "other classes": (lambda path, _: stray(classes=7).save(path), "another briefing"),
    "other classes, as if they were not": (
        lambda path, trial: as_if(stray(classes=7), trial).save(path),
        "(7, 64)",
    ),
    "another briefing": (lambda path, _: stray().save(path), "another briefing"),
    "NaN": (lambda path, _: with_value(path, PROTOTYPES, np.nan), f"{PROTOTYPES!r} holds NaN"),
    "infinity": (lambda path, _: with_value(path, "feature_mean", np.inf), "'feature_mean' holds"),
    "all zeros": (lambda path, _: with_zeros(path, statistics=True), "is 0"),
    "weights of 0": (lambda path, _: with_zeros(path, statistics=False), "is 0"),
    "cut short": (lambda path, _: cut(path, 100_000), "not a whole upload"),
    "cut in its header": (lambda path, _: cut(path, 50), "not a whole upload"),
    "empty": (lambda path, _: cut(path, 0), "not a whole upload"),
    "another client's": (lambda path, _: replace(path), "found that of client 0"),
    "a briefing": (lambda path, trial: shutil.copy(trial.briefing, path), "found briefing"),
    "missing": (lambda path, _: path.unlink(), "no such file"),
}


@pytest.mark.parametrize("harm", BROKEN)
def test_an_upload_that_cannot_be_used_is_named_and_can_be_left_out(
    run: Path, harm: str, refused: Refused, fuse: Fuse
) -> None:
    path = fafi(run).path / "uploads" / CLIENT
    break_it, said = BROKEN[harm]
    break_it(path, fafi(run))
    found = refused(run, "--fusion", "outputs", "--trial", "fafi")
    assert str(path) in found
    assert said in found
    assert rows(run) == ["features"]
    rest = fuse(run, "--fusion", "outputs", "--trial", "fafi", "--without", "1")
    assert rest.code == 0, rest
    assert "outputs-without-1" in rest.out
    assert rows(run) == ["features", "outputs-without-1"]
    # The other trial never had anything to do with it.
    assert fuse(run, "--fusion", "outputs", "--trial", "ce-ensemble").code == 0


@pytest.mark.parametrize("rule", ["average", "split"])
@pytest.mark.parametrize("harm", ["NaN", "cut short", "another client's", "missing"])
def test_rules_that_merge_nets_refuse_it_as_well(
    run: Path, harm: str, rule: str, refused: Refused
) -> None:
    path = fafi(run).path / "uploads" / CLIENT
    break_it, said = BROKEN[harm]
    break_it(path, fafi(run))
    found = refused(run, "--fusion", rule, "--trial", "fafi")
    assert str(path) in found
    assert said in found


def test_a_model_says_which_clients_it_is_made_of(run: Path, tmp_path: Path, fuse: Fuse) -> None:
    cut(fafi(run).path / "uploads" / CLIENT, 50)
    words = ("--fusion", "classwise", "--trial", "fafi", "--without", "1")
    assert fuse(run, *words, "--save", tmp_path / "model").code == 0
    content = json.loads((tmp_path / "model" / "model.json").read_text())
    assert content["origin"]["clients"] == ["0", "2"]
    assert content["nets"] == 2


def test_a_net_without_finite_scores_is_named_and_the_trial_stays_finished(
    run: Path, tmp_path: Path, fuse: Fuse
) -> None:
    path = fafi(run).path / "uploads" / CLIENT
    whole = path.read_bytes()
    with_huge_prototypes(path)
    words = ("--fusion", "outputs", "--trial", "fafi")
    done = fuse(run, *words, "--save", tmp_path / "model")
    assert done.code in (1, 2), done
    assert str(path) in done.out + done.error
    assert "model:" not in done.out
    assert not (tmp_path / "model").exists()
    assert fafi(run).info()["status"] == "finished"
    assert fuse(run, *words, "--without", "1").code == 0
    path.write_bytes(whole)
    assert fuse(run, *words).code == 0
    assert rows(run) == ["features", "outputs-without-1", "outputs"]


@pytest.mark.parametrize("harm", ["cut", "missing"])
def test_a_briefing_that_is_gone_is_named(run: Path, harm: str, refused: Refused) -> None:
    path = fafi(run).briefing
    cut(path, 1000)
    if harm == "missing":
        path.unlink()
    assert str(path) in refused(run, "--fusion", "outputs", "--trial", "fafi")


# --- what is asked for ---------------------------------------------------------------------------

EXAMPLE = "expected a name or a mapping such as '{use: features"


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("claswise", "unknown fusion 'claswise'; did you mean 'classwise'?"),
        ("zzz", "Known: average, classwise"),
        ("{use: claswise}", "did you mean 'classwise'?"),
        ("{use: features, mrge: count}", "'--fusion.mrge'; did you mean 'merge'?"),
        ("{use: features, merge: median}", "'--fusion.merge': expected 'mean', 'count'"),
        ("{use: features, weights: [1, 2, 3]}", "'--fusion.weights'"),
        ("{use: distilled, epochs: many}", "'--fusion.epochs': expected a whole number"),
        ("{use: distilled, epochs: 0}", "'--fusion.epochs'"),
        ("{use: distilled, lr: .nan}", "'--fusion.lr'"),
        ("{use: distilled, teacher: claswise}", "did you mean 'classwise'?"),
        ("{use: distilled, teacher: client-mean}", "'--fusion.teacher': expected a fusion"),
        ("{use: split, cluster: 2}", "'--fusion.cluster'"),
        ("{use: features, as: ../out}", "--fusion: `as: ../out` should be letters"),
        ("{use: features, merge: count}", "has a row 'features' already, with another merge"),
        ("{use: features, merge: count", EXAMPLE),
        ("{use features}", EXAMPLE),
        ("{merge: count}", EXAMPLE),
        ("features: count", EXAMPLE),
        ("[features, classwise]", EXAMPLE),
        ("3", EXAMPLE),
        (" ", EXAMPLE),
    ],
)
def test_a_fusion_that_cannot_be_understood(
    made: Path, entry: str, said: str, refused: Refused
) -> None:
    before = contents(made)
    assert said in refused(made, "--fusion", entry)
    assert contents(made) == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "no fusion was named"),
        (["--without", "7"], "--without: fafi-a1-s0"),
        (["--without", "7"], "has no client '7'. Its clients are 0, 1, 2."),
        (["--without", "0,1"], "has no client '0,1'. Its clients are 0, 1, 2."),
        (["--without", ""], "argument 6 is empty"),
        (["--without", "0", "--without", "1", "--without", "2"], "--without leaves no client"),
        (["--trial", "nobody"], "no finished trial nobody"),
        (["--save", "model"], "--save keeps the model of one trial; choose it with --trial"),
        (["--data-root", "nowhere"], "nowhere"),
    ],
)
def test_options_that_cannot_be_followed(
    made: Path, words: list[str], said: str, refused: Refused, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    before = contents(made)
    asked = ["--fusion", "classwise", *words] if words else []
    assert said in refused(made, *asked)
    assert contents(made) == before
    assert not list(tmp_path.iterdir())


def test_to_name_a_client_twice_is_to_name_it_once(run: Path, fuse: Fuse) -> None:
    twice = ("--without", "1", "--without", "1", "--without", "1")
    assert fuse(run, "--fusion", "classwise", "--trial", "fafi", *twice).code == 0
    assert rows(run) == ["features", "classwise-without-1"]


def test_no_fusion_at_all_from_python(made: Path) -> None:
    with pytest.raises(accord.AccordError, match="no fusion was named"):
        accord.fuse(made, [], workers=1, quiet=True)


@pytest.mark.parametrize("entry", ["distilled", "{use: average, recalibrate: true}"])
def test_rules_that_need_public_images_are_refused_and_the_record_stays_as_it_was(
    run: Path, entry: str, refused: Refused, fuse: Fuse
) -> None:
    before = contents(run)
    assert "found none: set data.public" in refused(run, "--fusion", entry)
    assert contents(run) == before
    # Nothing of it comes back when something else is asked for, or the study is run again.
    assert fuse(run, "--fusion", "classwise").code == 0
    assert rows(run) == ["features", "classwise"]
    again = accord.run(run / "study.yaml", out=run, workers=1, quiet=True)
    assert not again.failures


# --- where to ------------------------------------------------------------------------------------


def test_a_folder_with_other_files_is_left_alone_before_anything_is_fused(
    made: Path, tmp_path: Path, refused: Refused
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("keep me")
    (tmp_path / "file").write_text("me too")
    before = contents(made)
    for name in ("mine", "file", "file/model"):
        words = ("--fusion", "classwise", "--trial", "fafi", "--save", tmp_path / name)
        assert str(tmp_path / name) in refused(made, *words)
    assert contents(made) == before
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "keep me"
    assert (tmp_path / "file").read_text() == "me too"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "mine"]


def test_what_a_user_put_beside_a_model_outlives_the_next_one(
    run: Path, tmp_path: Path, fuse: Fuse
) -> None:
    words = ("--fusion", "classwise", "--trial", "fafi", "--save", tmp_path / "model")
    assert fuse(run, *words).code == 0
    (tmp_path / "model" / "notes.txt").write_text("keep me")
    again = fuse(run, *words)
    assert (tmp_path / "model" / "notes.txt").exists(), again


def test_a_folder_with_another_programs_model_is_left_alone(
    made: Path, tmp_path: Path, refused: Refused
) -> None:
    """`model.json` is what others call theirs, too."""
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "model.json").write_text('{"format": "layers-model"}')
    (tmp_path / "web" / "group1-shard1of1.bin").write_bytes(b"weights")
    before = contents(tmp_path / "web")
    words = ("--fusion", "classwise", "--trial", "fafi", "--save", tmp_path / "web")
    assert str(tmp_path / "web") in refused(made, *words)
    assert contents(tmp_path / "web") == before


@pytest.mark.parametrize("reference", ["client-mean", "client-best"])
def test_a_reference_is_no_model(
    made: Path, tmp_path: Path, reference: str, refused: Refused
) -> None:
    words = ("--fusion", reference, "--trial", "fafi", "--save", tmp_path / "model")
    assert f"--save: {reference} is a reference" in refused(made, *words)
    assert not list(tmp_path.iterdir())


# --- runs that cannot be fused -------------------------------------------------------------------


def test_a_folder_that_is_no_run(tmp_path: Path, refused: Refused) -> None:
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers" / "thesis.txt").write_text("mine")
    (tmp_path / "file").write_text("mine too")
    for name in ("nowhere", "papers", "file"):
        found = refused(tmp_path / name, "--fusion", "classwise")
        assert f"{tmp_path / name} is not a run directory" in found
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "papers", "thesis.txt"]


def stop(trial: TrialFolder) -> None:
    """As if the process had been killed while this trial trained."""
    trial.write_info({**trial.info(), "status": "running"})
    (trial.path / "measures.json").unlink()
    (trial.path / "uploads" / CLIENT).unlink()


def test_an_unfinished_run_is_refused(run: Path, refused: Refused) -> None:
    for trial in Record(run).trials():
        stop(trial)
    before = contents(run)
    assert f"no finished trial in {run}" in refused(run, "--fusion", "classwise")
    assert contents(run) == before


def test_unfinished_trials_are_left_out_and_said_so(
    run: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch, fuse: Fuse
) -> None:
    stop(fafi(run))
    assert "no finished trial fafi" in refused(run, "--fusion", "classwise", "--trial", "fafi")
    monkeypatch.setattr(sys.modules[__name__], "QUIETLY", ("--workers", "1"))
    done = fuse(run, "--fusion", "classwise")
    assert done.code == 0
    assert f"{fafi(run).id}: left out, because it is not finished (use accord run)" in done.error
    assert [row["recipe"] for row in Record(run).rows()] == ["ce-ensemble"] * 2


# --- what is no mistake --------------------------------------------------------------------------

ALL = [
    *every_rule(distilled={"epochs": 1}).values(),
    *({"use": name, "as": name} for name in ("client-mean", "client-best")),
]
PUBLIC = {"name": "digits", "train_limit": 100, "test_limit": 40, "public": 0.2}


def asked_for() -> list[str]:
    return [word for entry in ALL for word in ("--fusion", json.dumps(entry))]


def test_every_rule_answers_for_one_client(tmp_path: Path, fuse: Fuse) -> None:
    run = run_of(tmp_path, data=PUBLIC, partition={"scheme": "iid", "clients": 1})
    done = fuse(run, *asked_for())
    assert done.code == 0, done
    found = {row["fusion"]: row for row in Record(run).rows()}
    assert len(found) == 1 + len(ALL)  # with the recipe's own
    assert {row["clients"] for row in found.values()} == {1}
    for name in ("average", "transport", "outputs", "split"):  # there is nobody to be mixed with
        assert found[name]["accuracy"] == found["client-best"]["accuracy"], name
    for name in ("average", "transport", "outputs"):
        assert found[name]["loss"] == pytest.approx(found["client-best"]["loss"], rel=1e-4), name


def test_the_only_client_cannot_be_left_out(tmp_path: Path, refused: Refused) -> None:
    run = run_of(tmp_path, partition={"scheme": "iid", "clients": 1})
    words = ("--fusion", "outputs", "--without", "0")
    assert "--without leaves no client" in refused(run, *words)


def test_a_class_that_nobody_holds_gets_no_vote_class_by_class(tmp_path: Path, fuse: Fuse) -> None:
    run = run_of(tmp_path, data=PUBLIC, partition={"scheme": "labels", "labels": 2, "clients": 2})
    done = fuse(run, *asked_for())
    assert done.code == 0, done
    trial = fafi(run)
    nobody = np.array(trial.info()["label_counts"]).sum(axis=0) == 0
    assert nobody.sum() == 6
    (checkpoint,) = trial.measures()["checkpoints"]
    said = {
        name: np.array(measured["confusion"]).sum(axis=0)
        for name, measured in checkpoint["fusions"].items()
    }
    assert len(said) == 1 + len(ALL)  # with the recipe's own
    classwise = [name for name in said if name.startswith("classwise")]
    assert len(classwise) == 3
    for name in classwise:
        assert said[name][nobody].sum() == 0, name
    assert said["outputs"][nobody].sum() > 0  # by prototypes that nobody trained


def test_every_rule_that_fuses_is_among_those_asked() -> None:
    used = {entry["use"] for entry in ALL}
    nets = {name for name in fusions if make_part(fusions, name, "fusion").of == "nets"}
    assert used >= nets - {"server"}
