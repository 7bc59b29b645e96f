"""Two stages: first epochs of alignment alone, then everything together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import accord
from accord.client.telemetry import Event
from accord.client.training import Training
from accord.data.imageset import ImageSet
from accord.messages import State
from accord.record.folders import TrialFolder
from accord.record.record import Record
from accord.report.dials import events_of
from accord.study.library import shipped
from accord.study.resolve import resolve
from accord.study.study import check_study
from records import assert_same_uploads, timeless
from tests_support import brief_for, images_of, same, train, without_seconds

Raw = dict[str, Any]
ALIGNED = [name for name in shipped() if getattr(resolve(name, Path()), "align", None)]
RULES = (
    *("lambda_raw", "attenuation", "lambda_effective", "lambda_star"),
    *("sigma_sq_local", "sigma_sq_align", "gamma"),
)


@pytest.fixture
def data() -> ImageSet:
    return images_of([0] * 20 + [1] * 13 + [4] * 7)


def staged(recipe: str, stage: int, data: ImageSet, **budget: Any) -> Training:
    change = {"alignment_epochs": stage}
    return Training(data, brief_for(recipe, change=change, **budget), "0")


def finished(training: Training) -> list[Event]:
    while not training.done:
        training.run_epoch()
    return training.telemetry


def parameters(training: Training) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in training.net.named_parameters()}


# --- one client --------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_events_say_which_stage_they_belong_to(data: ImageSet, stage: int) -> None:
    events = finished(staged("bank-two-stage", stage, data, epochs=4))
    assert [event["stage"] for event in events] == [1] * stage + [2] * (4 - stage)


@pytest.mark.parametrize("recipe", ["fafi", "ce-ensemble", "bank-curriculum", "etf-fixed"])
def test_other_recipes_have_no_stages(data: ImageSet, recipe: str) -> None:
    events = train(data, brief_for(recipe), "0").header.telemetry
    assert [event["stage"] for event in events] == [None, None]


def test_the_first_stage_reaches_the_encoder_and_never_the_prototypes(data: ImageSet) -> None:
    """Contrast is between features; classification, which moves prototypes, has to wait."""
    training = staged("bank-two-stage", 2, data, epochs=3, weight_decay=1e-2)
    start = parameters(training)
    for _ in range(2):
        training.run_epoch()
    first = parameters(training)
    assert torch.equal(first["head.prototypes"], start["head.prototypes"])
    others = [name for name in start if name != "head.prototypes"]
    assert others
    for name in others:
        assert not torch.equal(first[name], start[name]), name
    training.run_epoch()
    assert not torch.equal(parameters(training)["head.prototypes"], first["head.prototypes"])


def test_a_stage_of_anchors_moves_the_prototypes_alone(data: ImageSet) -> None:
    training = staged("etf-fixed", 1, data, epochs=2)
    start = parameters(training)
    training.run_epoch()
    moved = {name for name, p in parameters(training).items() if not torch.equal(p, start[name])}
    assert moved == {"head.prototypes"}


@pytest.mark.parametrize("recipe", ["bank-two-stage", "bank-curriculum", "etf-uncertainty"])
def test_the_first_stage_minimises_alignment_unweighted(data: ImageSet, recipe: str) -> None:
    first, second = finished(staged(recipe, 1, data, epochs=2))
    assert first["loss"] == pytest.approx(first["loss_align"])
    assert first["loss"] != pytest.approx(first["loss_local"] + first["loss_align"])
    assert first["loss_local"] > 0  # known, though nothing descends on it
    if recipe == "bank-two-stage":
        assert second["loss"] == pytest.approx(second["loss_local"] + second["loss_align"])


@pytest.mark.parametrize("recipe", ALIGNED)
def test_rules_rest_in_the_first_stage_and_gradients_are_told_throughout(
    data: ImageSet, recipe: str
) -> None:
    if recipe == "etf-upgrad":
        pytest.importorskip("torchjd")
    training = staged(recipe, 2, data, epochs=3)
    before = {name: t.clone() for name, t in training.mixture.state_dict().items()}
    for _ in range(2):
        event = training.run_epoch()
        assert all(event[dial] is None for dial in RULES)
        assert event["gradient_norm_align"] > 0
        assert event["gradient_norm_local"] > 0
        for name, value in training.mixture.state_dict().items():  # NaN: not yet known
            assert torch.equal(value.nan_to_num(-7), before[name].nan_to_num(-7)), name
    event = training.run_epoch()
    assert event["gradient_norm_align"] > 0
    assert event["gradient_norm_local"] > 0
    assert event["lambda_raw"] is not None


@pytest.mark.parametrize("recipe", ALIGNED)
@pytest.mark.parametrize("labels", [[3], [2] * 9, [0, 1]])
def test_small_clients_survive_both_stages(recipe: str, labels: list[int]) -> None:
    training = staged(recipe, 1, images_of(labels), batch=16)
    finished(training)
    assert all(bool(t.isfinite().all()) for t in training.upload().tensors.values())


def test_alignment_is_told_in_every_epoch_with_its_peak(data: ImageSet) -> None:
    for event in finished(staged("bank-two-stage", 1, data, epochs=3, batch=8)):
        assert event["loss_align"] == event["loss_contrast"]
        assert event["loss_align_peak"] > event["loss_align"] > 0
    for event in train(data, brief_for("fafi"), "0").header.telemetry:
        assert event["loss_align"] is event["loss_align_peak"] is None


def test_progress_runs_over_both_stages(data: ImageSet) -> None:
    """The lr and a curriculum stand where they would without a first stage."""
    budget: Raw = {"epochs": 4, "lr": 0.1, "schedule": "linear"}
    plain, late = (finished(staged("bank-curriculum", n, data, **budget)) for n in (0, 2))
    assert [event["lr"] for event in late] == [event["lr"] for event in plain]
    dials = [event["lambda_effective"] for event in late]
    assert dials == [None, None, *(event["lambda_effective"] for event in plain[2:])]


def test_no_alignment_epochs_is_no_stage_at_all(data: ImageSet) -> None:
    """The contrast, weighed by 1, is again a term like any other: as if it were a local one."""
    none, unsaid = (
        Training(data, brief_for("bank-two-stage", change={"alignment_epochs": n}, epochs=3), "0")
        for n in (0, None)
    )
    as_local = {"objective": {"contrast": {"bank": "all"}}}
    local = Training(data, brief_for("public-negatives", change=as_local, epochs=3), "0")
    events = [finished(training) for training in (none, unsaid, local)]
    assert [event["stage"] for event in events[0]] == [None] * 3
    assert same(none.upload().tensors, unsaid.upload().tensors)
    assert without_seconds(events[0]) == without_seconds(events[1])
    for with_stage, without in zip(events[0], events[2], strict=True):
        assert with_stage["loss"] == pytest.approx(without["loss"], rel=1e-3)
    two = finished(staged("bank-two-stage", 1, data, epochs=3))
    assert two[0]["loss"] != pytest.approx(events[0][0]["loss"], rel=1e-3)


@pytest.mark.parametrize("recipe", ["bank-two-stage", "bank-confidence", "etf-stabilised"])
def test_interrupted_in_either_stage_a_client_goes_on_as_if_never_stopped(
    data: ImageSet, recipe: str
) -> None:
    budget: Raw = {"epochs": 4, "schedule": "cosine", "weight_decay": 1e-3}
    whole = staged(recipe, 2, data, **budget)
    kept = []
    while not whole.done:
        kept.append(whole.state().to_bytes())
        whole.run_epoch()
    for epoch, state in enumerate(kept):
        other = staged(recipe, 2, data, **budget)
        other.restore(State.from_bytes(state, "state"))
        assert other.stage == (1 if epoch < 2 else 2)
        assert without_seconds(finished(other)) == without_seconds(whole.telemetry)
        assert same(other.state().tensors, whole.state().tensors)
        assert same(other.upload().tensors, whole.upload().tensors)


# --- a study -----------------------------------------------------------------------------------


@pytest.fixture
def study(study: Raw) -> Raw:
    study["data"]["public"] = 0.2
    study["partition"]["clients"] = 2
    study["budget"]["epochs"] = 3
    bank = {"teacher_epochs": 1}
    study["recipes"] = [
        {"use": "OursV6", "alignment_epochs": 2, "bank": bank, "as": "staged"},
        "ce-ensemble",
    ]
    return study


def test_the_end_of_the_first_stage_is_measured(study: Raw, tmp_path: Path) -> None:
    """With what each client knew then of its own images and of the test's: chance, or more?"""
    accord.run(study, out=tmp_path, workers=1, quiet=True)
    trials: dict[str, TrialFolder] = {t.info()["recipe"]: t for t in Record(tmp_path).trials()}
    checkpoints = trials["staged"].measures()["checkpoints"]
    assert [checkpoint["epoch"] for checkpoint in checkpoints] == [2, 3]
    for checkpoint in checkpoints:
        assert [client["client"] for client in checkpoint["clients"]] == ["0", "1"]
        for client in checkpoint["clients"]:
            assert 0 <= client["train_accuracy"] <= 1
            assert 0 <= client["test_accuracy"] <= 1
    # Another recipe is measured when the study says, and no earlier.
    assert [c["epoch"] for c in trials["ce-ensemble"].measures()["checkpoints"]] == [3]
    rows = [(row["recipe"], row["epoch"]) for row in timeless(tmp_path)]
    assert sorted(rows) == [("ce-ensemble", "3"), ("staged", "2"), ("staged", "3")]
    stages = [(e["client"], e["epoch"], e["stage"]) for e in events_of(trials["staged"])]
    assert stages == [(c, e, 1 if e < 3 else 2) for c in ("0", "1") for e in (1, 2, 3)]
    assert {event["stage"] for event in events_of(trials["ce-ensemble"])} == {None}


def test_the_end_of_a_stage_joins_the_checkpoints_asked_for(study: Raw) -> None:
    study["budget"] |= {"epochs": 6, "checkpoints": [1, 4]}
    trials = {t.recipe.name: t for t in check_study(study, Path()).trials()}
    assert trials["staged"].setup.budget.checkpoints == (1, 2, 4, 6)
    assert trials["ce-ensemble"].setup.budget.checkpoints == (1, 4, 6)
    study["budget"]["checkpoints"] = [2]
    trials = {t.recipe.name: t for t in check_study(study, Path()).trials()}
    assert trials["staged"].setup.budget.checkpoints == (2, 6)


class PowerCut(BaseException):
    """Not an Exception: nothing may catch it."""


@pytest.mark.parametrize("epoch", [1, 2])
def test_a_study_cut_off_in_either_stage_ends_with_the_same_bits(
    study: Raw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, epoch: int
) -> None:
    study["recipes"] = study["recipes"][:1]
    accord.run(study, out=tmp_path / "whole", workers=1, quiet=True)
    real = Training.run_epoch

    def cut(self: Training, tell: Any = None) -> Event:
        if self.name == "1" and self.epoch == epoch:
            raise PowerCut
        return real(self, tell)

    with monkeypatch.context() as patch:
        patch.setattr("accord.federation.tasks.answer.SAVE_EVERY", 0.0)
        patch.setattr(Training, "run_epoch", cut)
        with pytest.raises(PowerCut):
            accord.run(study, out=tmp_path / "cut", workers=1, quiet=True)
    (state,) = tmp_path.glob("cut/trials/*/state/client-1.safetensors")
    assert State.load(state).header.epoch == epoch
    accord.run(study, out=tmp_path / "cut", workers=1, quiet=True)
    assert timeless(tmp_path / "cut") == timeless(tmp_path / "whole")
    assert_same_uploads(tmp_path / "cut", tmp_path / "whole")
    assert not list(tmp_path.glob("cut/trials/*/uploads/*@*"))
