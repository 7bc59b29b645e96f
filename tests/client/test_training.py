"""The one local training loop: what it trains, what it tells, and nothing left to chance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from accord.client.base import Precision
from accord.client.training import Training
from accord.core.errors import ClientError
from accord.data.imageset import ImageSet
from accord.federation.devices import bf16_works
from accord.messages import NET, Briefing, State, Upload
from accord.study.library import shipped
from accord.study.resolve import resolve
from core.cases import looped
from tests_support import brief_for, images_of, same, train, without_seconds

ALIKE = ("central", "fedavg-once", "local-only")  # these train as ce-ensemble does
TRAINED = [
    name for name in shipped() if name not in ALIKE and resolve(name, Path()).uploads == "nets"
]


@pytest.fixture
def data() -> ImageSet:
    return images_of([0] * 20 + [1] * 13 + [4] * 7)


def weights(upload: Upload | State) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in upload.tensors.items() if name.startswith(NET)}


@pytest.mark.parametrize("recipe", TRAINED)
@looped("labels", [[3], [3, 3, 3], [2] * 40, [0, 1], [0, 0, 0, 5]])
def test_small_clients_train_to_finite_weights(recipe: str, labels: list[int]) -> None:
    upload = train(images_of(labels), brief_for(recipe, batch=16), "0")
    assert all(bool(t.isfinite().all()) for t in upload.tensors.values())
    assert upload.tensors["label_counts"].sum() == len(labels)


def test_every_image_is_seen_once_per_epoch_and_none_is_left_over(data: ImageSet) -> None:
    training = Training(data, brief_for("fafi", batch=16), "0")
    batches = training._batches()
    assert [len(batch) for batch in batches] == [14, 13, 13]
    assert sorted(torch.cat(batches).tolist()) == list(range(40))
    training.run_epoch()
    assert not torch.equal(torch.cat(batches), torch.cat(training._batches()))


def test_the_same_client_trains_the_same_bits_twice(data: ImageSet) -> None:
    one, two = (train(data, brief_for("etf-fixed"), "7") for _ in range(2))
    assert same(one.tensors, two.tensors)
    assert without_seconds(one.header.telemetry) == without_seconds(two.header.telemetry)


def test_clients_and_seeds_draw_different_numbers(data: ImageSet) -> None:
    base = train(data, brief_for("fafi"), "0")
    assert not same(weights(base), weights(train(data, brief_for("fafi"), "1")))
    other = brief_for("fafi", seed=1)
    again = Briefing(other.header, brief_for("fafi").tensors)  # same start, other draws
    assert not same(weights(base), weights(train(data, again, "0")))


def test_global_random_state_is_neither_read_nor_moved(data: ImageSet) -> None:
    torch.manual_seed(1)
    before, before_numpy = torch.get_rng_state(), str(np.random.get_state())  # noqa: NPY002
    one = train(data, brief_for("fafi"), "0")
    assert torch.equal(before, torch.get_rng_state())
    assert str(np.random.get_state()) == before_numpy  # noqa: NPY002
    torch.manual_seed(2)
    assert same(one.tensors, train(data, brief_for("fafi"), "0").tensors)


@pytest.mark.parametrize("recipe", TRAINED)
def test_a_restored_client_goes_on_as_if_never_stopped(data: ImageSet, recipe: str) -> None:
    """Weights, momentum, σ and averages: from each epoch to the next, the same bits."""
    briefing = brief_for(recipe, epochs=4, schedule="cosine", weight_decay=1e-3)
    whole = Training(data, briefing, "0")
    while not whole.done:
        kept = whole.state().to_bytes()
        whole.run_epoch()
        other = Training(data, briefing, "0")
        other.restore(State.from_bytes(kept, "state"))
        other.run_epoch()
        assert same(whole.state().tensors, other.state().tensors)
        assert without_seconds(whole.telemetry) == without_seconds(other.telemetry)
    assert same(whole.upload().tensors, other.upload().tensors)


def test_measuring_at_checkpoints_does_not_change_training(data: ImageSet) -> None:
    """Momentum, schedule and BatchNorm go on as if nobody had looked."""
    looked = Training(data, brief_for("fafi", epochs=3), "0")
    while not looked.done:
        looked.run_epoch()
        looked.upload()
    unseen = train(data, brief_for("fafi", epochs=3), "0")
    assert same(unseen.tensors, looked.upload().tensors)


def test_one_plain_step_is_sgd_by_hand(data: ImageSet) -> None:
    """Without momentum, clip and views by chance: W − lr·(∇L + decay·W), at the first step."""
    settings: dict[str, Any] = {
        "epochs": 1, "batch": 64, "lr": 0.1, "momentum": 0.0, "clip": None, "weight_decay": 0.01,
    }  # fmt: skip
    briefing = brief_for("ce-ensemble", **settings)
    training = Training(data, briefing, "0")
    before = {n: p.detach().clone() for n, p in training.net.named_parameters()}
    training.run_epoch()
    for name, parameter in training.net.named_parameters():
        assert parameter.grad is not None
        expected = before[name] - 0.1 * (parameter.grad + 0.01 * before[name])
        torch.testing.assert_close(parameter.detach(), expected)


def test_weight_decay_and_momentum_that_are_configured_are_applied(data: ImageSet) -> None:
    plain = weights(train(data, brief_for("fafi", epochs=1), "0"))
    assert not same(plain, weights(train(data, brief_for("fafi", epochs=1, weight_decay=0.1), "0")))
    assert not same(plain, weights(train(data, brief_for("fafi", epochs=1, momentum=0.0), "0")))


def test_the_lr_falls_over_all_training_and_never_restarts(data: ImageSet) -> None:
    training = Training(data, brief_for("fafi", epochs=4, lr=0.1, schedule="linear"), "0")
    while not training.done:
        training.run_epoch()
        training.upload()
    lrs = [event["lr"] for event in training.telemetry]
    # The last step of epoch e (of 2 steps each) stands at p = (e − ½)/4.
    assert lrs == pytest.approx([0.1 * (1 - (e - 0.5) / 4) for e in (1, 2, 3, 4)])


def test_telemetry_tells_every_loss_and_dial(data: ImageSet) -> None:
    event = train(data, brief_for("etf-fixed"), "0").header.telemetry[0]
    local = ("cross_entropy", "contrast", "prototypes", "separation")
    assert event["loss_local"] == pytest.approx(sum(event[f"loss_{name}"] for name in local))
    assert event["loss_align"] == event["loss_anchors"]
    assert event["loss"] == pytest.approx(event["loss_local"] + 5 * event["loss_align"])
    assert (event["lambda_raw"], event["attenuation"], event["lambda_effective"]) == (5, 1, 5)
    assert 0 <= event["clipped"] <= 1
    plain = train(data, brief_for("fafi"), "0").header.telemetry[0]
    dials = ("lambda_raw", "attenuation", "lambda_effective", "lambda_star", "sigma_sq_local")
    for key in ("loss_align", *dials, "gradient_cosine"):
        assert plain[key] is None


def test_clipping_is_counted_and_can_be_turned_off(data: ImageSet) -> None:
    def clipped(clip: float | None) -> float:
        share = train(data, brief_for("fafi", clip=clip), "0").header.telemetry[0]["clipped"]
        assert isinstance(share, float)
        return share

    assert clipped(1e-6) == 1.0
    assert clipped(1e6) == 0.0
    assert clipped(None) == 0.0


def test_a_loss_that_is_not_finite_stops_the_client_and_says_why(data: ImageSet) -> None:
    with pytest.raises(ClientError, match=r"epoch 1 gave loss = .*balance none, lr 1e\+30"):
        train(data, brief_for("ce-ensemble", lr=1e30, clip=None), "0")


@pytest.mark.skipif(not bf16_works(), reason="this machine stops at bf16 arithmetic")
def test_autocast_trains_close_to_full_precision(data: ImageSet) -> None:
    briefing = brief_for("fafi", epochs=1)
    chosen = (Precision(), Precision(autocast=True))
    losses = [Training(data, briefing, "0", one).run_epoch()["loss"] for one in chosen]
    assert losses[0] != losses[1]
    assert losses[1] == pytest.approx(losses[0], rel=0.05)


def test_it_learns(data: ImageSet) -> None:
    upload = train(data, brief_for("fafi", epochs=12, batch=8), "0")
    losses = [event["loss"] for event in upload.header.telemetry]
    assert losses[-1] < 0.7 * losses[0]
    assert (upload.header.train_accuracy or 0) > 0.8


def test_the_upload_answers_its_briefing(data: ImageSet) -> None:
    briefing = brief_for("fafi")
    upload = train(data, briefing, "0")
    upload.check(briefing, "upload")
    assert upload.header.samples == 40
    assert upload.tensors["label_counts"].tolist() == [20, 13, 0, 0, 7, 0, 0, 0, 0, 0]


def test_a_term_counts_by_its_weight() -> None:
    data = images_of([0] * 6 + [1] * 6)
    events = [
        train(data, brief_for("fafi", change=change, batch=12, epochs=1), "0").header.telemetry[0]
        for change in ({}, {"objective": {"separation": {"weight": 3.0}}})
    ]
    more = 2 * events[0]["loss_separation"]
    assert events[1]["loss_separation"] == pytest.approx(3 * events[0]["loss_separation"])
    assert events[1]["loss_local"] == pytest.approx(events[0]["loss_local"] + more)
