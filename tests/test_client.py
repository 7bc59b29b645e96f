"""The one local training loop: what it trains, what it tells, and nothing left to chance."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from accord.balance import balances
from accord.balance.base import Balance, Readings, Setting, Weigher
from accord.client import Precision, Training, schedule, train
from accord.data.imageset import ImageSet
from accord.errors import ClientError
from accord.messages import NET, Briefing, State, Upload
from accord.recipe import shipped
from tests_support import brief_for, images_of

TRAINED = [name for name in shipped() if name != "central"]


@pytest.fixture
def data() -> ImageSet:
    return images_of([0] * 20 + [1] * 13 + [4] * 7)


def weights(upload: Upload | State) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in upload.tensors.items() if name.startswith(NET)}


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def without_seconds(events: tuple[dict[str, Any], ...]) -> list[dict[str, Any]]:
    return [{k: v for k, v in event.items() if k != "seconds"} for event in events]


@pytest.mark.parametrize("recipe", TRAINED)
@pytest.mark.parametrize("labels", [[3], [3, 3, 3], [2] * 40, [0, 1], [0, 0, 0, 5]])
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


@pytest.mark.parametrize("recipe", ["fafi", "etf-fixed", "ce-ensemble"])
@pytest.mark.parametrize("stop", [1, 2, 3])
def test_a_restored_client_ends_as_if_never_stopped(data: ImageSet, recipe: str, stop: int) -> None:
    briefing = brief_for(recipe, epochs=4, schedule="cosine", weight_decay=1e-3)
    whole = train(data, briefing, "0")
    first = Training(data, briefing, "0")
    for _ in range(stop):
        first.run_epoch()
    first.upload()  # a checkpoint in between changes nothing
    second = Training(data, briefing, "0")
    second.restore(State.from_bytes(first.state().to_bytes(), "state"))
    while not second.done:
        second.run_epoch()
    assert same(whole.tensors, second.upload().tensors)
    assert without_seconds(whole.header.telemetry) == without_seconds(tuple(second.telemetry))


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


@pytest.mark.parametrize(
    ("kind", "at_half", "at_end"), [("constant", 1, 1), ("cosine", 0.5, 0), ("linear", 0.5, 0)]
)
def test_schedules(kind: str, at_half: float, at_end: float) -> None:
    assert schedule(kind, 0.0) == 1
    assert schedule(kind, 0.5) == pytest.approx(at_half)
    assert schedule(kind, 1.0) == pytest.approx(at_end, abs=1e-12)


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
    for key in ("loss_align", "lambda_raw", "attenuation", "lambda_effective"):
        assert plain[key] is None


def test_a_decaying_lambda_is_read_at_the_end_of_each_epoch(data: ImageSet) -> None:
    change = {"balance": {"decay": True}}
    telemetry = train(data, brief_for("etf-fixed", epochs=4, change=change), "0").header.telemetry
    assert [event["attenuation"] for event in telemetry] == [0.75, 0.5, 0.25, 0.0]
    assert [event["lambda_effective"] for event in telemetry] == [3.75, 2.5, 1.25, 0.0]


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


def test_what_a_balance_learns_is_trained_and_kept(data: ImageSet) -> None:
    """A rule with a parameter of its own: in the optimiser, in the state, in no weight decay."""

    class Learned(Balance):
        def start(self, setting: Setting) -> Weigher:
            return LearnedWeigher(setting.lr)

    class LearnedWeigher(Weigher):
        def __init__(self, lr: float) -> None:
            super().__init__()
            self.log_weight = torch.nn.Parameter(torch.zeros(()))
            self.lr = lr

        def weigh(self, local: Tensor, align: Tensor, progress: float) -> Tensor:  # noqa: ARG002
            return local + self.log_weight.exp() * align

        def readings(self, progress: float) -> Readings:  # noqa: ARG002
            return Readings(math.exp(self.log_weight.item()), 1.0)

        def parameter_groups(self) -> list[dict[str, Any]]:
            return [{"params": [self.log_weight], "lr": self.lr / 10, "weight_decay": 0.0}]

    balances._parts["learned-in-test"] = Learned
    try:
        change = {"balance": {"use": "learned-in-test"}}
        briefing = brief_for("etf-fixed", epochs=3, change=change)
        whole = train(data, briefing, "0")
        dials = [event["lambda_raw"] for event in whole.header.telemetry]
        assert dials[0] > dials[1] > dials[2]  # minimising λ·L_al lowers λ
        first = Training(data, briefing, "0")
        first.run_epoch()
        second = Training(data, briefing, "0")
        second.restore(first.state())
        while not second.done:
            second.run_epoch()
        assert same(whole.tensors, second.upload().tensors)
        assert [event["lambda_raw"] for event in second.telemetry] == dials
    finally:
        del balances._parts["learned-in-test"]


def test_autocast_trains_close_to_full_precision(data: ImageSet) -> None:
    briefing = brief_for("fafi", epochs=1)
    chosen = (Precision(), Precision(autocast=True))
    losses = [Training(data, briefing, "0", precision).run_epoch()["loss"] for precision in chosen]
    assert losses[0] != losses[1]
    assert losses[1] == pytest.approx(losses[0], rel=0.05)


def test_it_learns(data: ImageSet) -> None:
    upload = train(data, brief_for("fafi", epochs=12, batch=8), "0")
    losses = [event["loss"] for event in upload.header.telemetry]
    assert losses[-1] < 0.7 * losses[0]
    assert upload.header.train_accuracy > 0.8


def test_the_upload_answers_its_briefing(data: ImageSet) -> None:
    briefing = brief_for("fafi")
    upload = train(data, briefing, "0")
    upload.check(briefing, "upload")
    assert upload.header.samples == 40
    assert upload.tensors["label_counts"].tolist() == [20, 13, 0, 0, 7, 0, 0, 0, 0, 0]
