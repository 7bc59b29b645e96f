"""A study end to end: what it records, and that the record does not depend on how it was made."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import accord
from accord.client.training import Training
from accord.core.errors import AccordError
from accord.core.processor import processor
from accord.core.randomness import torch_generator
from accord.federation.briefing import opening
from accord.federation.plan import Plan
from accord.messages import Briefing, Upload
from accord.objective import anchor_kinds
from accord.record.record import Record
from accord.record.rows import rows_of
from records import assert_same_uploads, hundred_classes, modified, timeless, upload_files

Raw = dict[str, Any]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Raw]:
    """One run with everything in it, for the tests that only read."""
    study = {
        "name": "whole",
        "data": {"name": "digits", "train_limit": 200, "test_limit": 100, "validation": 0.2},
        "partition": {"alpha": 0.5, "clients": 3},
        "net": {"backbone": "conv4"},
        "budget": {"epochs": 3, "batch": 32, "checkpoints": [1, 3]},
        "recipes": ["fafi", "etf-fixed", "etf-stabilised", "ce-ensemble", "fedavg-once"],
    }
    path = tmp_path_factory.mktemp("made") / "run"
    accord.run(study, out=path, workers=1, quiet=True)
    return path, study


def test_one_row_per_trial_checkpoint_and_fusion(made: tuple[Path, Raw]) -> None:
    rows = timeless(made[0])
    found = sorted((row["recipe"], row["fusion"], int(row["epoch"])) for row in rows)
    pairs = [
        ("ce-ensemble", "outputs"),
        ("central", "outputs"),
        ("etf-fixed", "features"),
        ("etf-stabilised", "features"),
        ("fafi", "features"),
        ("fedavg-once", "average"),
        ("local-only", "client-best"),
        ("local-only", "client-mean"),
    ]
    assert found == [(*pair, epoch) for pair in pairs for epoch in (1, 3)]


def test_the_columns_that_scripts_rely_on(made: tuple[Path, Raw]) -> None:
    with (made[0] / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    columns = (
        "study dataset partition alpha clients recipe fusion seed epoch accuracy balanced_accuracy "
        "worst_class ece validation_accuracy loss upload_bytes download_bytes seconds"
    )
    assert set(columns.split()) <= set(rows[0])
    for row in rows:
        assert row["study"] == "whole"
        assert row["dataset"] == "digits"
        assert 0 <= float(row["worst_class"]) <= float(row["balanced_accuracy"]) <= 1
        assert 0 <= float(row["validation_accuracy"]) <= 1
        assert float(row["loss"]) > 0
        assert float(row["seconds"]) > 0
    central = next(row for row in rows if row["recipe"] == "central")
    assert (central["partition"], central["alpha"], central["clients"]) == ("pooled", "", "1")


def test_bytes_are_those_of_the_files(made: tuple[Path, Raw]) -> None:
    record = Record(made[0])
    for trial in record.trials():
        rows = [row for row in rows_of(trial, []) if row["epoch"] == 3]
        total = sum(path.stat().st_size for path in (trial.path / "uploads").iterdir())
        assert {row["upload_bytes"] for row in rows} == {total}
        clients = trial.info()["clients"]
        assert {row["download_bytes"] for row in rows} == {clients * trial.briefing.stat().st_size}


def test_trial_json_says_what_was_done(made: tuple[Path, Raw]) -> None:
    for trial in Record(made[0]).trials():
        info = trial.info()
        assert info["recipe"] in trial.id
        assert info["seed"] == 0
        assert info["alpha"] == (None if info["recipe"] == "central" else 0.5)
        assert len(info["label_counts"]) == info["clients"]
        assert sum(map(sum, info["label_counts"])) == 160  # 200 less a fifth for validation
        assert len(info["partition_hash"]) == 64
        assert torch.__version__.startswith(info["versions"]["torch"])  # maybe with +cu130
        assert info["processor"] == processor()
        assert info["peak_memory_bytes"] > 10**7
        assert info["config"]["budget"]["epochs"] == 3


def test_events_hold_every_client_and_epoch_in_order(made: tuple[Path, Raw]) -> None:
    for trial in Record(made[0]).trials():
        events = [json.loads(line) for line in trial.events.read_text().splitlines()]
        clients = trial.info()["clients"]
        expected = [(str(client), epoch) for client in range(clients) for epoch in (1, 2, 3)]
        assert [(event["client"], event["epoch"]) for event in events] == expected
        needed = (
            "loss loss_local loss_align lambda_raw attenuation lambda_effective lambda_star "
            "sigma_sq_local sigma_sq_align gradient_norm_local gradient_norm_align "
            "gradient_cosine lr clipped seconds"
        )
        assert set(needed.split()) <= set(events[0])


def test_measures_hold_confusion_and_each_clients_own_accuracy(made: tuple[Path, Raw]) -> None:
    for trial in Record(made[0]).trials():
        for checkpoint in trial.measures()["checkpoints"]:
            for name, measured in checkpoint["fusions"].items():
                total = sum(map(sum, measured["confusion"]))
                assert total == (300 if name == "client-mean" else 100)
            assert len(checkpoint["clients"]) == trial.info()["clients"]
            assert all(0 <= client["train_accuracy"] <= 1 for client in checkpoint["clients"])


def test_local_only_is_the_mean_and_the_best_of_its_clients(made: tuple[Path, Raw]) -> None:
    trial = next(t for t in Record(made[0]).trials() if t.id.startswith("local-only"))
    last = trial.measures()["checkpoints"][-1]
    own = [client["test_accuracy"] for client in last["clients"]]
    assert last["fusions"]["client-mean"]["accuracy"] == pytest.approx(sum(own) / len(own))
    assert last["fusions"]["client-best"]["accuracy"] == max(own)


def test_only_final_uploads_stay(made: tuple[Path, Raw]) -> None:
    names = {path.name for path in upload_files(made[0])}
    assert names == {"client-0.safetensors", "client-1.safetensors", "client-2.safetensors"}
    assert not list(made[0].glob("trials/*/state"))
    assert not list(made[0].glob("trials/*/merged"))


def test_trials_that_train_alike_train_once(made: tuple[Path, Raw]) -> None:
    alike = [
        made[0] / "trials" / trial.id / "uploads" / "client-0.safetensors"
        for trial in Record(made[0]).trials()
        if trial.id.startswith(("ce-ensemble", "fedavg-once", "local-only"))
    ]
    assert len({path.stat().st_ino for path in alike}) == 1


def test_recipes_start_from_the_same_encoder_and_hold_the_same_images(
    made: tuple[Path, Raw],
) -> None:
    trials = [t for t in Record(made[0]).trials() if not t.id.startswith("central")]
    assert len({trial.info()["partition_hash"] for trial in trials}) == 1
    starts = [Briefing.load(trial.briefing).tensors for trial in trials]
    name = "net.encoder.stages.stage1.0.weight"
    assert all(torch.equal(starts[0][name], other[name]) for other in starts)


@pytest.mark.parametrize("recipe", ["etf-fixed", "etf-progressive", "random-anchors"])
def test_anchors_travel_in_the_briefing(study: Raw, recipe: str) -> None:
    """The matrix itself, bit for bit: made again elsewhere it may differ."""
    plan = Plan(accord.load_study({**study, "recipes": [recipe], "seeds": [3]}), None, print)
    (trial,) = plan.study.trials()
    briefing = opening(trial, plan.allocation(trial)[1])
    rule = anchor_kinds.get("random" if recipe == "random-anchors" else "etf")()
    made = rule.make(10, 64, torch_generator(3, "anchors"))
    assert torch.equal(briefing.tensors["anchors"], made)
    arrived = Briefing.from_bytes(briefing.to_bytes(), "briefing")
    assert torch.equal(arrived.tensors["anchors"], made)
    assert arrived.header.training == trial.recipe.training


def test_one_worker_or_three_give_the_same_bits(made: tuple[Path, Raw], tmp_path: Path) -> None:
    path, study = made
    accord.run(study, out=tmp_path, workers=3, quiet=True)
    assert timeless(tmp_path) == timeless(path)
    assert_same_uploads(path, tmp_path)


def test_running_again_trains_nothing(made: tuple[Path, Raw]) -> None:
    path, study = made
    before, rows = modified(path), timeless(path)
    accord.run(study, out=path, workers=1, quiet=True)
    assert modified(path) == before
    assert timeless(path) == rows


def test_more_seeds_recipes_and_alphas_train_only_what_is_new(study: Raw, tmp_path: Path) -> None:
    study |= {"data": {"name": "digits", "train_limit": 60, "test_limit": 20}}
    study |= {"budget": {"epochs": 1, "batch": 32}}
    accord.run(study, out=tmp_path, workers=1, quiet=True)
    before = modified(tmp_path)
    more = {
        **study,
        "seeds": [0, 1],
        "recipes": ["fafi", "ce-ensemble"],
        "partition": {"alpha": [0.5, 5.0], "clients": 3},
    }
    results = accord.run(more, out=tmp_path, workers=1, quiet=True)
    after = modified(tmp_path)
    assert {name: after[name] for name in before} == before
    assert len(after) == 2 * 2 * 2 * 3
    assert len(results.rows) == 8
    alone = accord.run(more, out=tmp_path / "alone", workers=1, quiet=True)
    assert sorted(map(str, timeless(tmp_path))) == sorted(map(str, timeless(alone.path)))


def test_a_further_fusion_is_measured_without_training(study: Raw, tmp_path: Path) -> None:
    accord.run(study, out=tmp_path, workers=1, quiet=True)
    before = modified(tmp_path)
    study["fusions"] = ["outputs", "average"]
    results = accord.run(study, out=tmp_path, workers=1, quiet=True)
    assert modified(tmp_path) == before
    assert [row["fusion"] for row in results.rows] == ["features", "outputs", "average"]


def test_keep_checkpoints_keeps_every_upload(study: Raw, tmp_path: Path) -> None:
    study["budget"]["checkpoints"] = [1, 2]
    accord.run({**study, "keep_checkpoints": True}, out=tmp_path, workers=1, quiet=True)
    names = sorted(path.name for path in upload_files(tmp_path))
    assert names[:2] == ["client-0.safetensors", "client-0@1.safetensors"]
    assert Upload.load(upload_files(tmp_path)[1]).header.epoch == 1


def test_the_would_be_model_at_a_checkpoint_is_that_of_a_shorter_training(
    study: Raw, tmp_path: Path
) -> None:
    """With a constant lr, looking after epoch 1 of 2 equals training for 1."""
    study["budget"]["checkpoints"] = [1, 2]
    accord.run(study, out=tmp_path / "long", workers=1, quiet=True)
    study["budget"] = {"epochs": 1, "batch": 32}
    accord.run(study, out=tmp_path / "short", workers=1, quiet=True)
    rows = [row for row in timeless(tmp_path / "long") if row["epoch"] == "1"]
    expected = timeless(tmp_path / "short")
    for row in (*rows, *expected):
        del row["download_bytes"]  # the briefings differ in their budgets
    assert rows == expected


def test_a_trial_that_fails_leaves_the_others_whole(study: Raw, tmp_path: Path) -> None:
    """An lr far too large for plain cross-entropy without a clip; fafi's own budget is the same."""
    study["budget"] = {"epochs": 2, "batch": 32, "lr": [1e30, 0.05], "clip": None}
    study["recipes"] = ["ce-ensemble", "fedavg-once"]
    results = accord.run(study, out=tmp_path, workers=1, quiet=True)
    assert len(results.failures) == 2
    reasons = [reason for reasons in results.failures.values() for reason in reasons]
    assert any("client 0: epoch 1 gave loss" in reason for reason in reasons)
    assert sorted(row["recipe"] for row in results.rows) == ["ce-ensemble", "fedavg-once"]
    assert {row["budget.lr"] for row in results.rows} == {0.05}
    assert accord.load(tmp_path).failures == results.failures


def test_a_defect_is_told_with_its_traceback(
    study: Raw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Training, tell: object = None) -> None:  # noqa: ARG001
        raise ZeroDivisionError("no such luck")

    monkeypatch.setattr(Training, "run_epoch", broken)
    results = accord.run(study, out=tmp_path, workers=1, quiet=True)
    (reasons,) = results.failures.values()
    assert "ZeroDivisionError: no such luck" in reasons[0]
    assert "defect.txt" in reasons[0]
    assert list(tmp_path.glob("trials/*/defect.txt"))


def test_results_can_be_read_in_a_notebook(made: tuple[Path, Raw]) -> None:
    results = accord.load(made[0])
    frame = results.frame()
    assert len(frame) == len(results.rows) == 16
    assert frame.groupby("recipe")["accuracy"].max().notna().all()
    assert "accuracy" in results._repr_html_()
    assert "one seed" in str(results)


def test_more_clients_than_images_is_told_before_training(study: Raw, tmp_path: Path) -> None:
    study["partition"]["clients"] = 151
    with pytest.raises(AccordError, match="150 images for 151 clients"):
        accord.run(study, out=tmp_path, workers=1, quiet=True)
    assert not list(tmp_path.glob("trials/*/uploads"))


def test_an_encoder_too_narrow_for_its_anchors_is_told_before_training(
    study: Raw, tmp_path: Path
) -> None:
    study["data"] = {"name": "npz", "path": str(hundred_classes(tmp_path))}
    study["recipes"] = ["ce-ensemble", "etf-fixed"]
    with pytest.raises(AccordError, match="width 64 and 100 classes"):
        accord.run(study, out=tmp_path / "run", workers=1, quiet=True)
    assert not list(tmp_path.glob("run/trials/*/uploads"))


def test_random_anchors_suit_an_encoder_of_any_width(study: Raw, tmp_path: Path) -> None:
    study["data"] = {"name": "npz", "path": str(hundred_classes(tmp_path))}
    study["recipes"] = ["random-anchors"]
    results = accord.run(study, out=tmp_path / "run", workers=1, quiet=True)
    assert [row["recipe"] for row in results.rows] == ["random-anchors"]


def test_natural_clients_come_from_a_column(study: Raw, tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (90, 8, 8), dtype=np.uint8)
    hospitals = np.array(["north", "south", "east"])[np.arange(90) % 3]
    np.savez(tmp_path / "d.npz", images=images, labels=np.arange(90) // 9, hospital=hospitals)
    study["data"] = {"name": "npz", "path": str(tmp_path / "d.npz")}
    study["partition"] = {"scheme": "by-column", "column": "hospital"}
    accord.run(study, out=tmp_path / "run", workers=1, quiet=True)
    (trial,) = Record(tmp_path / "run").trials()
    assert list(trial.info()["client_files"]) == ["east", "north", "south"]


def test_overlapping_and_single_class_clients_run(study: Raw, tmp_path: Path) -> None:
    study["recipes"] = ["fafi", "etf-upgrad", "ce-ensemble", "fedavg-once", "local-only"]
    study["budget"] = {"epochs": 1, "batch": 32}
    single = {"scheme": "labels", "labels": 1, "clients": 10}
    for partition in (single, {"scheme": "dirichlet-overlap"}):
        study["partition"] = partition
        out = tmp_path / str(partition["scheme"])
        results = accord.run(study, out=out, workers=1, quiet=True)
        assert not results.failures
        assert len(results.rows) == 6


def test_a_client_broken_by_its_last_step_fails_its_trial_alone(study: Raw, tmp_path: Path) -> None:
    """The losses of the only step are finite; the weights after it are not."""
    study["budget"] = {"epochs": 1, "batch": 512, "lr": [1e38, 0.05], "clip": None}
    study["recipes"] = ["ce-ensemble"]
    results = accord.run(study, out=tmp_path, workers=1, quiet=True)
    (reasons,) = results.failures.values()
    assert any("NaN or infinite" in reason or "gave" in reason for reason in reasons)
    assert [row["budget.lr"] for row in results.rows] == [0.05]


def test_overrides_of_a_checked_study_are_refused_not_ignored(study: Raw, tmp_path: Path) -> None:
    with pytest.raises(AccordError, match="overrides"):
        accord.run(accord.load_study(study), overrides=["budget.epochs=3"], out=tmp_path)
