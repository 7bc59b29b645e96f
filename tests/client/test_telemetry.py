"""An epoch's losses in numbers, and in words where it went wrong."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from accord.client.telemetry import LossSums, advice, trouble
from accord.core.budget import Budget

CPU = torch.device("cpu")
losses = st.floats(0, 100, width=32)


def values(*numbers: float) -> list[Tensor]:
    return [torch.tensor(number) for number in numbers]


def sums_of(
    *steps: tuple[float, tuple[float, ...], tuple[float, ...], int],
    local: tuple[str, ...] = ("a", "b"),
    align: tuple[str, ...] = ("c", "d"),
) -> LossSums:
    """Steps of (total, local losses, alignment losses, images)."""
    found = LossSums(list(local), list(align), CPU)
    for total, of_local, of_align, images in steps:
        found.add(torch.tensor(total), values(*of_local), values(*of_align), images)
    return found


# --- sums ----------------------------------------------------------------------------------------


def test_losses_are_means_over_images_and_not_over_steps() -> None:
    steps = ((10.0, (1.0, 2.0), (4.0, 0.5), 30), (20.0, (3.0, 6.0), (0.0, 1.5), 10))
    assert sums_of(*steps).event() == {
        "loss": 12.5,
        "loss_local": 4.5,  # ¾·3 + ¼·9
        "a": 1.5,
        "b": 3.0,
        "c": 3.0,
        "d": 0.75,
        "loss_align": 3.75,
        "loss_align_peak": 4.5,  # of both terms in one step, not 4 and 1.5 of two
        "clipped": 0.0,
    }


def test_the_peak_does_not_depend_on_how_many_images_a_step_saw() -> None:
    steps = ((0.0, (0.0,), (1.0,), 1000), (0.0, (0.0,), (7.0,), 1), (0.0, (0.0,), (2.0,), 1000))
    event = sums_of(*steps, local=("a",), align=("c",)).event()
    assert event["loss_align_peak"] == 7
    assert event["loss_align"] == pytest.approx(3007 / 2001)


def test_without_alignment_there_is_none() -> None:
    steps = ((1.0, (1.0, 2.0), (), 3), (2.0, (3.0, 4.0), (), 1))
    event = sums_of(*steps, align=()).event()
    assert event["loss_align"] is None
    assert event["loss_align_peak"] is None
    assert list(event) == [
        "loss",
        "loss_local",
        "a",
        "b",
        *("loss_align", "loss_align_peak"),
        "clipped",
    ]
    assert event["loss_local"] == 0.75 * 3 + 0.25 * 7


@settings(max_examples=40, deadline=None)
@given(
    steps=st.lists(
        st.tuples(losses, st.tuples(losses, losses), st.tuples(losses, losses), st.integers(1, 99)),
        min_size=1,
        max_size=6,
    )
)
def test_means_and_peak_of_any_steps(
    steps: list[tuple[float, tuple[float, ...], tuple[float, ...], int]],
) -> None:
    event, images = sums_of(*steps).event(), sum(step[3] for step in steps)
    for name, of in (
        ("loss", [total for total, _, _, _ in steps]),
        ("loss_local", [sum(local) for _, local, _, _ in steps]),
        ("b", [local[1] for _, local, _, _ in steps]),
        ("c", [align[0] for _, _, align, _ in steps]),
        ("loss_align", [sum(align) for _, _, align, _ in steps]),
    ):
        mean = math.fsum(n * loss for loss, (_, _, _, n) in zip(of, steps, strict=True)) / images
        assert event[name] == pytest.approx(mean, rel=1e-6)  # losses of a step are in float32
    peak = max(sum(align) for _, _, align, _ in steps)
    assert event["loss_align_peak"] == pytest.approx(peak, rel=1e-6)
    assert event["loss_align_peak"] >= event["loss_align"] - 1e-9


def test_many_steps_are_summed_in_double_precision() -> None:
    # In single precision a million and a bit are a million.
    steps = [(1e6, (1e6,), (1e6,), 1), *[(0.01, (0.01,), (0.01,), 1)] * 100]
    event = sums_of(*steps, local=("a",), align=("c",)).event()
    assert event["a"] == pytest.approx((1e6 + 1) / 101, rel=1e-12)


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_one_broken_step_shows_in_mean_and_peak(broken: float) -> None:
    steps = ((1.0, (1.0,), (1.0,), 4), (1.0, (1.0,), (broken,), 4), (1.0, (1.0,), (1.0,), 4))
    event = sums_of(*steps, local=("a",), align=("c",)).event()
    for key in ("c", "loss_align", "loss_align_peak"):
        assert not math.isfinite(event[key])
    assert event["a"] == 1


def test_clipped_is_the_share_of_steps() -> None:
    steps = [
        (1.0, (1.0,), (), 50),
        (1.0, (1.0,), (), 1),
        (1.0, (1.0,), (), 1),
        (1.0, (1.0,), (), 1),
    ]
    sums = sums_of(*steps, local=("a",), align=())
    sums.clipped += 1
    assert sums.event()["clipped"] == 0.25


# --- words ---------------------------------------------------------------------------------------


def event_of(epoch: int, **changes: Any) -> dict[str, Any]:
    known = {"loss": 2.0, "loss_local": 1.5, "loss_align": 0.5, "lambda_raw": 5.0, "gamma": None}
    return {"epoch": epoch, "stage": None, **known, **changes}


def test_an_epoch_of_finite_numbers_is_no_trouble() -> None:
    assert trouble(event_of(3), [event_of(2)]) is None
    assert trouble(event_of(1, lambda_raw=None, loss_align=None), []) is None


@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
def test_trouble_names_what_broke_what_explains_it_and_what_came_before(broken: float) -> None:
    found = trouble(event_of(3, loss=broken), [event_of(1), event_of(2, lambda_raw=7.0)])
    assert found == (
        f"epoch 3 gave loss = {broken}, loss_local = 1.5, loss_align = 0.5, lambda_raw = 5; "
        "epoch 2 ended with loss_local = 1.5, loss_align = 0.5, lambda_raw = 7"
    )


def test_trouble_in_the_first_epoch_has_nothing_before_it() -> None:
    found = trouble(event_of(1, loss_local=math.nan, lambda_raw=None, loss_align=None), [])
    assert found == "epoch 1 gave loss_local = nan"


def test_trouble_with_a_dial_alone_is_trouble_too() -> None:
    found = trouble(event_of(2, anchors_sigma_sq_align=math.inf), [event_of(1)])
    assert found is not None
    assert "anchors_sigma_sq_align = inf" in found


def test_advice_names_the_rules_and_what_is_left_to_try() -> None:
    align = {"anchors": {"balance": {"use": "fixed"}}, "mmd": {"balance": {"use": "uncertainty"}}}
    assert advice(Budget(lr=0.1, clip=None), align) == (
        "(balance fixed of anchors, uncertainty of mmd, lr 0.1). Lower budget.lr, or set "
        "budget.clip, or lower λ or choose another balance."
    )


def test_advice_without_alignment_or_with_a_clip_is_shorter() -> None:
    assert advice(Budget(lr=0.1, clip=1.0), {}) == "(balance none, lr 0.1). Lower budget.lr."
    both = "(balance none, lr 0.1, Muon 0.05). Lower budget.lr or budget.muon."
    assert advice(Budget(lr=0.1, clip=1.0, muon=0.05), {}) == both
