"""How a client weighs its losses, whatever the balance, and what it tells of that."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from accord.balance import Balance, Group, Mixture, Readings, Step, Weigher, Weights, balances
from accord.client.training import Training
from accord.core.errors import ClientError
from accord.core.randomness import torch_generator
from accord.data.imageset import ImageSet
from accord.messages import NET, Briefing
from accord.study.library import shipped
from accord.study.resolve import resolve
from tests_support import brief_for, images_of, same, train, training_recipe, without_seconds

BALANCED = [name for name in shipped() if getattr(resolve(name, Path()), "align", None)]
STILL: dict[str, Any] = {"lr": 1e-30, "batch": 64}  # one step per epoch, and nothing moves


@pytest.fixture
def data() -> ImageSet:
    """Forty images of the classes 0, 1 and 4."""
    return images_of([0] * 20 + [1] * 13 + [4] * 7)


def stopping_everywhere(data: ImageSet, briefing: Briefing) -> list[dict[str, Any]]:
    """The telemetry of a client that uploads, ends and is restored after every epoch."""
    training = Training(data, briefing, "0")
    while not training.done:
        training.run_epoch()
        training.upload()
        state, training = training.state(), Training(data, briefing, "0")
        training.restore(state)
    return training.telemetry


# --- schedules ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("recipe", "change", "dial", "expected"),
    [
        ("etf-fixed", {"attenuation": "linear"}, "attenuation", [0.75, 0.5, 0.25, 0]),
        ("etf-fixed", {"attenuation": "linear"}, "lambda_effective", [3.75, 2.5, 1.25, 0]),
        ("etf-entropy", {"attenuation": "linear"}, "attenuation", [0.75, 0.5, 0.25, 0]),
        ("etf-attenuated", {}, "attenuation", [0.75, 0.5, 0.25, 0]),
        ("etf-stabilised", {}, "attenuation", [0.75, 0.5, 0.25, 0]),
        ("etf-curriculum", {}, "lambda_effective", [0.325, 0.55, 0.775, 1]),
        ("etf-curriculum", {}, "attenuation", [1, 1, 1, 1]),
    ],
)
def test_dials_are_read_where_an_epoch_ends_and_checkpoints_restart_nothing(
    data: ImageSet, recipe: str, change: dict[str, Any], dial: str, expected: list[float]
) -> None:
    events = stopping_everywhere(
        data, brief_for(recipe, epochs=4, batch=64, change={"balance": change})
    )
    assert [event[dial] for event in events] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("recipe", "change", "expected"),
    [
        ("etf-fixed", {"attenuation": "linear"}, [5, 3.75, 2.5, 1.25]),
        ("etf-curriculum", {}, [0.1, 0.325, 0.55, 0.775]),
        ("etf-attenuated", {}, [1, 0.75, 0.5, 0.25]),  # σ² stays 1
    ],
)
def test_a_step_is_weighed_by_its_own_place_in_all_training(
    data: ImageSet, recipe: str, change: dict[str, Any], expected: list[float]
) -> None:
    """At p = 0, ¼, ½ and ¾: L = L_loc + w(p)·L_al."""
    events = stopping_everywhere(
        data, brief_for(recipe, epochs=4, change={"balance": change}, **STILL)
    )
    weights = [(event["loss"] - event["loss_local"]) / event["loss_align"] for event in events]
    assert weights == pytest.approx(expected, rel=1e-4)


# --- anchors -----------------------------------------------------------------------------------


def squared_gap(briefing: Briefing, held: list[int]) -> float:
    """The mean of (P₀ − A)² over the held classes."""
    gap = briefing.tensors[NET + "head.prototypes"] - briefing.tensors["anchors"]
    return gap[held].square().mean().item()


def test_a_client_is_pulled_to_the_anchors_of_its_briefing(data: ImageSet) -> None:
    sent = brief_for("etf-fixed", epochs=1, **STILL)
    other = Briefing(sent.header, {**sent.tensors, "anchors": torch.full((10, 64), 3.0)})
    for briefing in (sent, other):
        event = Training(data, briefing, "0").run_epoch()
        assert event["loss_anchors"] == pytest.approx(squared_gap(briefing, [0, 1, 4]))


def test_progressive_anchors_set_out_from_the_first_prototypes(data: ImageSet) -> None:
    """While P stands at P₀ the loss is p²·mean (A − P₀)², p over all training."""
    briefing = brief_for("etf-progressive", epochs=4, **STILL)
    losses = [event["loss_anchors"] for event in stopping_everywhere(data, briefing)]
    gap = squared_gap(briefing, [0, 1, 4])
    assert losses[0] == 0
    assert losses == pytest.approx([0, gap / 16, gap / 4, gap * 9 / 16])


# --- what balances learn -----------------------------------------------------------------------


def test_what_a_balance_learns_is_trained_and_kept(data: ImageSet) -> None:
    """A rule of one's own: its parameter is in the optimiser and in the state."""

    class Learned(Balance):
        def start(self, label_counts: Tensor) -> Weigher:  # noqa: ARG002
            return LearnedWeigher()

    class LearnedWeigher(Weigher):
        def __init__(self) -> None:
            super().__init__()
            self.log_weight = torch.nn.Parameter(torch.zeros(()))

        def weigh(self, step: Step) -> Weights:  # noqa: ARG002
            return Weights(align=self.log_weight.detach().exp())

        def own_loss(self, step: Step) -> Tensor:
            return self.log_weight.exp() * step.align

        def readings(self, progress: float) -> Readings:  # noqa: ARG002
            return Readings(math.exp(self.log_weight.item()))

        def groups(self) -> list[Group]:
            return [Group([self.log_weight], lr_factor=0.1)]

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


@pytest.mark.parametrize(
    ("recipe", "start", "lr"),
    [("etf-uncertainty", 0.0, 0.1), ("etf-uncertainty-repaired", -1.0, 0.001)],
)
def test_the_first_step_of_sigma_by_hand(
    data: ImageSet, recipe: str, start: float, lr: float
) -> None:
    """log σ² − lr·½(1 − L/σ²), and none of the net's weight decay."""
    settings: dict[str, Any] = {"lr": 0.1, "momentum": 0.0, "clip": None, "weight_decay": 0.5}
    event = Training(data, brief_for(recipe, epochs=1, batch=64, **settings), "0").run_epoch()
    local = start - lr * (1 - event["loss_local"] / math.exp(start)) / 2
    align = -lr * (1 - event["loss_align"]) / 2
    assert event["sigma_sq_local"] == pytest.approx(math.exp(local), rel=1e-5)
    assert event["sigma_sq_align"] == pytest.approx(math.exp(align), rel=1e-5)
    assert event["lambda_raw"] == pytest.approx(math.exp(local - align), rel=1e-5)


@pytest.mark.parametrize("recipe", BALANCED)
def test_sigma_is_told_by_the_rules_that_learn_it(data: ImageSet, recipe: str) -> None:
    event = train(data, brief_for(recipe), "0").header.telemetry[-1]
    (term,) = training_recipe(recipe).align.values()
    rule = term["balance"]["use"]
    learns = rule in ("uncertainty", "attenuated", "stabilised", "attenuated-log")
    assert (event["sigma_sq_align"] is not None) == learns
    assert (event["sigma_sq_local"] is not None) == (learns or rule == "rescaled")
    assert event["lambda_effective"] == event["lambda_raw"] * event["attenuation"]
    if learns:
        ratio = event["sigma_sq_local"] / event["sigma_sq_align"]
        assert event["lambda_raw"] == pytest.approx(ratio)


ONE, FALLING = (1, 1, 1, 1), (0.75, 0.5, 0.25, 0)


@pytest.mark.parametrize(
    ("recipe", "change", "a", "b", "gamma"),
    [
        ("etf-uncertainty", {}, ONE, ONE, 0),
        ("etf-attenuated", {}, FALLING, ONE, 0),
        ("etf-stabilised", {"gamma": 0.1}, FALLING, ONE, 0.1),
        ("etf-attenuated-log", {"gamma": 0.1}, ONE, FALLING, 0.1),
    ],
)
def test_lambda_star_is_where_the_losses_of_an_epoch_would_lead(
    data: ImageSet,
    recipe: str,
    change: dict[str, Any],
    a: tuple[float, ...],
    b: tuple[float, ...],
    gamma: float,
) -> None:
    """λ* = b·L_loc/(a·L_al + 2γ); none where that is infinite."""
    upload = train(data, brief_for(recipe, epochs=4, change={"balance": change}), "0")
    for event, on_data, on_log in zip(upload.header.telemetry, a, b, strict=True):
        pull = on_data * event["loss_align"] + 2 * gamma
        expected = on_log * event["loss_local"] / pull if pull else None
        assert event["lambda_star"] == pytest.approx(expected)


def test_lambda_star_is_none_for_rules_that_seek_no_equilibrium(data: ImageSet) -> None:
    for recipe in ("fafi", "etf-fixed", "etf-curriculum", "etf-gradnorm", "etf-rescaled"):
        assert train(data, brief_for(recipe), "0").header.telemetry[0]["lambda_star"] is None


@pytest.mark.parametrize(
    ("recipe", "change"),
    [
        ("etf-attenuated", {"start_align": -200.0}),
        ("etf-uncertainty", {"start_align": -200.0}),
        ("etf-uncertainty", {"lr_factor": 1e6}),
    ],
)
def test_a_balance_that_explodes_stops_the_client_and_is_named(
    data: ImageSet, recipe: str, change: dict[str, Any]
) -> None:
    with pytest.raises(ClientError, match=r"^epoch 1 gave .*lambda_raw = (inf|nan)") as stopped:
        train(data, brief_for(recipe, change={"balance": change}), "0")
    rule = recipe.removeprefix("etf-")
    assert f"(balance {rule} of anchors, lr 0.05)" in str(stopped.value)
    for value in ("loss_local", "loss_align", "sigma_sq_local", "sigma_sq_align"):
        assert f" {value} = " in str(stopped.value)


# --- gradients ---------------------------------------------------------------------------------


def first_gradients(data: ImageSet, briefing: Briefing) -> tuple[Tensor, Tensor]:
    """∇L_loc and ∇L_al on the prototypes, for a first step over all of `data`."""
    training = Training(data, briefing, "0")
    draws = torch_generator(0, "0", "views", 0)
    batch = training.inputs.batch(training._batches()[0], 0.0, draws, None)
    P = training.net.head.prototypes
    local = torch.stack([term(batch) for term in training.local.values()]).sum()
    by_align = torch.zeros_like(P)
    for held in (0, 1, 4):
        by_align[held] = 2 * (P[held] - briefing.tensors["anchors"][held]).detach() / (3 * 64)
    return torch.autograd.grad(local, P)[0], by_align


def test_one_plain_step_goes_down_both_losses(data: ImageSet) -> None:
    """P − lr·(∇L_loc + λ·∇L_al)."""
    briefing = brief_for("etf-fixed", epochs=1, batch=64, lr=0.1, momentum=0.0, clip=None)
    by_local, by_align = first_gradients(data, briefing)
    expected = briefing.tensors[NET + "head.prototypes"] - 0.1 * (by_local + 5 * by_align)
    found = train(data, briefing, "0").tensors[NET + "head.prototypes"]
    torch.testing.assert_close(found, expected)


def test_gradients_of_both_losses_are_told(data: ImageSet) -> None:
    """Their norms and cosine on the prototypes, which alone both losses reach."""
    briefing = brief_for("etf-fixed", epochs=1, batch=64)
    by_local, by_align = first_gradients(data, briefing)
    cosine = torch.cosine_similarity(by_local.flatten(), by_align.flatten(), dim=0)
    event = Training(data, briefing, "0").run_epoch()
    assert event["gradient_norm_local"] == pytest.approx(by_local.norm().item(), rel=1e-5)
    assert event["gradient_norm_align"] == pytest.approx(by_align.norm().item(), rel=1e-5)
    assert event["gradient_cosine"] == pytest.approx(cosine.item(), abs=1e-5)


@pytest.mark.parametrize(
    ("every", "expected"),
    [
        (1, list(range(12))),
        (2, [0, 2, 4, 6, 8, 10]),
        (3, [0, 3, 6, 9]),
        (5, [0, 3, 5, 7, 10, 11]),  # longer than an epoch: at the end of each as well
        (1000, [0, 3, 7, 11]),
    ],
)
def test_looks_are_taken_every_n_steps_and_once_an_epoch_at_least(
    data: ImageSet, monkeypatch: pytest.MonkeyPatch, every: int, expected: list[int]
) -> None:
    looks: list[bool] = []
    real = Mixture.backward

    def noted(self: Mixture, *args: Any, **options: Any) -> Tensor:
        looks.append(args[-1])
        return real(self, *args, **options)

    monkeypatch.setattr(Mixture, "backward", noted)
    briefing = brief_for("etf-fixed", epochs=3, batch=10, look_every=every)
    events = train(data, briefing, "0").header.telemetry
    assert [step for step, look in enumerate(looks) if look] == expected
    assert all(event["gradient_norm_align"] > 0 for event in events)


@pytest.mark.parametrize("recipe", ["etf-fixed", "etf-uncertainty", "etf-gradnorm", "etf-upgrad"])
def test_looking_does_not_change_training(data: ImageSet, recipe: str) -> None:
    often, seldom = (train(data, brief_for(recipe, batch=10, look_every=n), "0") for n in (1, 1000))
    assert same(often.tensors, seldom.tensors)
    norms = [upload.header.telemetry[0]["gradient_norm_local"] for upload in (often, seldom)]
    assert norms[0] != norms[1]  # means of four looks and of two


# --- several alignment terms -------------------------------------------------------------------


def test_two_alignment_terms_have_a_balance_and_dials_each(data: ImageSet) -> None:
    change = {
        "objective": {"cross-entropy": None},
        "align": {"cross-entropy": {"balance": {"use": "fixed", "lambda": 0.5}}},
    }
    event = Training(data, brief_for("etf-fixed", change=change), "0").run_epoch()
    local = event["loss_contrast"] + event["loss_prototypes"] + event["loss_separation"]
    assert event["loss_local"] == pytest.approx(local)
    assert event["loss_align"] == pytest.approx(event["loss_anchors"] + event["loss_cross_entropy"])
    pulls = 5 * event["loss_anchors"] + 0.5 * event["loss_cross_entropy"]
    assert event["loss"] == pytest.approx(local + pulls)
    assert (event["anchors_lambda_raw"], event["cross_entropy_lambda_raw"]) == (5, 0.5)
    for dial in ("attenuation", "lambda_star", "sigma_sq_local", "gradient_norm_align"):
        assert f"anchors_{dial}" in event
        assert f"cross_entropy_{dial}" in event
        assert dial not in event


def test_two_balances_that_learn_are_both_kept(data: ImageSet) -> None:
    change = {
        "objective": {"separation": None},
        "align": {"separation": {"balance": {"use": "stabilised"}}},
    }
    briefing = brief_for("etf-uncertainty", epochs=3, change=change)
    whole = train(data, briefing, "0")
    resumed = stopping_everywhere(data, briefing)
    assert without_seconds(whole.header.telemetry) == without_seconds(resumed)
    assert resumed[-1]["anchors_sigma_sq_local"] != resumed[-1]["separation_sigma_sq_local"]


def test_a_client_that_breaks_later_tells_where_it_stood_before() -> None:
    """λ beyond the stability of SGD on L_al, without a clip: P − A grows some tenfold a step."""
    change = {"balance": {"lambda": 20_000}}
    briefing = brief_for("etf-fixed", epochs=40, change=change, clip=None)
    with pytest.raises(ClientError) as stopped:
        train(images_of([0] * 30 + [1] * 10), briefing, "0")
    message = str(stopped.value)
    told = r"epoch \d+ gave .*; epoch \d+ ended with loss_local = .*\(balance fixed of anchors, lr"
    assert re.match(told, message)
    assert message.count("lambda_effective = 2e+04") == 2


def test_the_cap_holds_where_the_plain_rule_explodes() -> None:
    """A whole training with its gradient clip: raw λ after every epoch."""

    def lambdas(recipe: str) -> list[float]:
        briefing = brief_for(recipe, epochs=60, batch=8, lr=0.2)
        events = train(images_of([0] * 16 + [1] * 8), briefing, "0").header.telemetry
        return [event["lambda_raw"] for event in events]

    assert max(lambdas("etf-attenuated")) > 1000
    assert max(lambdas("etf-stabilised")) <= 55
