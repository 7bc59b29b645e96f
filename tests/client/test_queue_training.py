"""A client whose contrast sees its own past: what is in the queue, when, and after a restart."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import Tensor
from torch.nn import functional as F

from accord.cli import main
from accord.client.training import Training
from accord.data.imageset import ImageSet
from accord.messages import Briefing, State
from accord.objective import Batch
from tests_support import brief_for, images_of, same, train, without_seconds

QUEUE = 50  # less than an epoch of 40 images in two views, more than a step


@pytest.fixture
def data() -> ImageSet:
    return images_of([0] * 20 + [1] * 13 + [4] * 7)


def brief_queue(size: int = QUEUE, **budget: Any) -> Briefing:
    change = {"objective": {"contrast": {"queue": size}}}
    return brief_for("fafi", change=change, **{"batch": 16, **budget})


def seen_by(training: Training, monkeypatch: pytest.MonkeyPatch) -> list[Batch]:
    """Every batch that the training makes from now on."""
    batches: list[Batch] = []
    make = training.inputs.batch

    def note(*given: Any) -> Batch:
        batches.append(make(*given))
        return batches[-1]

    monkeypatch.setattr(training.inputs, "batch", note)
    return batches


def past_of(batch: Batch) -> tuple[Tensor, Tensor]:
    assert batch.queue is not None
    return batch.queue.features, batch.queue.labels


def test_a_step_sees_the_features_of_the_steps_before_it_and_not_its_own(
    data: ImageSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = Training(data, brief_queue(), "0")
    batches = seen_by(training, monkeypatch)
    while not training.done:
        training.run_epoch()
    assert [len(past_of(batch)[1]) for batch in batches] == [0, 28, 50, 50, 50, 50]
    for step, batch in enumerate(batches[1:], start=1):
        features, labels = past_of(batch)
        before = torch.cat([F.normalize(b.features.detach(), dim=1) for b in batches[:step]])
        assert torch.equal(features, before[-QUEUE:])
        assert torch.equal(labels, torch.cat([b.labels for b in batches[:step]])[-QUEUE:])


def test_without_a_queue_nothing_is_kept(data: ImageSet, monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training(data, brief_for("fafi"), "0")
    batches = seen_by(training, monkeypatch)
    training.run_epoch()
    assert [len(past_of(batch)[1]) for batch in batches] == [0, 0]
    assert training.state().tensors["queue.features"].numel() == 0


def test_the_past_changes_what_a_client_learns(data: ImageSet) -> None:
    with_past, without = train(data, brief_queue(), "0"), train(data, brief_queue(0), "0")
    assert not same(with_past.tensors, without.tensors)


def test_the_queue_is_part_of_a_clients_state_and_not_of_its_upload(data: ImageSet) -> None:
    training = Training(data, brief_queue(), "0")
    training.run_epoch()
    kept, rows = training.state().tensors, training.queue.rows()
    assert torch.equal(kept["queue.features"], rows.features)
    assert torch.equal(kept["queue.labels"], rows.labels)
    assert not any(name.startswith("queue") for name in training.upload().tensors)


@pytest.mark.parametrize("size", [QUEUE, 1000])  # full after an epoch, and never
@pytest.mark.parametrize("options", [{}, {"hardness": 2.0, "synthetic": 4, "balanced": True}])
def test_a_restored_client_has_the_same_past_to_the_bit(
    data: ImageSet, size: int, options: dict[str, Any]
) -> None:
    change = {"objective": {"contrast": {"queue": size, **options}}}
    briefing = brief_for("fafi", change=change, epochs=3, batch=16)
    whole = Training(data, briefing, "0")
    parts = Training(data, briefing, "0")
    while not whole.done:
        whole.run_epoch()
        parts.run_epoch()
        kept = parts.state().to_bytes()
        parts = Training(data, briefing, "0")
        parts.restore(State.from_bytes(kept, "state"))
    assert same(whole.state().tensors, parts.state().tensors)
    assert same(whole.upload().tensors, parts.upload().tensors)
    assert without_seconds(whole.telemetry) == without_seconds(parts.telemetry)


def test_a_past_that_is_lost_is_missed(data: ImageSet) -> None:
    whole, other = (Training(data, brief_queue(), "0") for _ in range(2))
    whole.run_epoch()
    other.restore(whole.state())
    other.queue.filled.zero_()
    whole.run_epoch()
    other.run_epoch()
    assert not same(whole.upload().tensors, other.upload().tensors)


@pytest.mark.parametrize("options", [{}, {"balanced": True}])
@pytest.mark.parametrize("recipe", ["queue-negatives", "hard-negatives"])
@pytest.mark.parametrize("labels", [[3], [3, 3, 3], [2] * 40, [0, 1], [0, 0, 0, 5]])
def test_small_clients_with_more_negatives_train_to_finite_weights(
    recipe: str, labels: list[int], options: dict[str, Any]
) -> None:
    change = {"objective": {"contrast": options}}
    upload = train(images_of(labels), brief_for(recipe, change=change, batch=16), "0")
    assert all(bool(tensor.isfinite().all()) for tensor in upload.tensors.values())


@pytest.mark.parametrize("recipe", ["etf-upgrad", "etf-gradnorm"])
def test_balances_that_take_gradients_apart_reach_through_the_queue(
    data: ImageSet, recipe: str
) -> None:
    change = {"objective": {"contrast": {"queue": QUEUE}}}
    upload = train(data, brief_for(recipe, change=change, batch=16, look_every=1), "0")
    assert all(bool(tensor.isfinite().all()) for tensor in upload.tensors.values())


# --- a queue shorter than a batch ---------------------------------------------------------------


@pytest.mark.parametrize("option", ["--quiet", "--dry-run"])
@pytest.mark.parametrize(
    ("views", "size", "code"), [(2, 1, 2), (2, 63, 2), (2, 64, 0), (1, 31, 2), (1, 32, 0)]
)
def test_a_queue_shorter_than_a_batch_is_refused_before_anything_trains(
    study: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    option: str,
    views: int,
    size: int,
    code: int,
) -> None:
    short = {"use": "fafi", "views": views, "objective": {"contrast": {"queue": size}}}
    study["recipes"] = ["ce-ensemble", {**short, "as": "short"}]
    study["budget"]["epochs"] = 1
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["accord", "run", "study.yaml", "--workers", "1", option])
    with pytest.raises(SystemExit) as ended:
        main()
    said = " ".join(capsys.readouterr().err.split())
    assert int(ended.value.code or 0) == code, said
    assert ("the queue of 'contrast' should hold at least a batch" in said) == (code == 2)
    if code == 2:
        assert f"{32 * views} rows; found {size}" in said
        assert not (tmp_path / "runs").exists()
