"""SGD over the net and what balances learn: learning rates, clipping, momentum, by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from accord.balance import Group
from accord.client.optimiser import Optimiser
from accord.core.budget import Budget
from accord.core.randomness import torch_generator
from accord.core.schedules import Fall, falling

PLAIN: dict[str, Any] = {"lr": 0.1, "momentum": 0.0, "clip": None}


def one() -> nn.Parameter:
    return nn.Parameter(torch.ones(()))


def descend(descent: Optimiser, *gradients: float, progress: float = 0.0) -> float:
    """One step with these gradients, parameter by parameter; whether the net's was clipped."""
    descent.begin(progress)
    parameters = [*descent.net, *(p for group in descent.groups for p in group.parameters)]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = torch.tensor(gradient)
    return descent.finish().item()


@pytest.mark.parametrize(
    ("schedule", "progress", "s"),
    [("constant", 0.25, 1.0), ("linear", 0.25, 0.75), ("cosine", 0.5, 0.5)],
)
def test_the_lr_of_a_balance_is_a_share_of_the_nets_under_every_schedule(
    schedule: Any, progress: float, s: float
) -> None:
    net, sigma = one(), one()
    budget = Budget(**PLAIN, schedule=schedule)
    descent = Optimiser([net], [Group([sigma], lr_factor=0.01)], budget)
    descend(descent, 2.0, 2.0, progress=progress)
    assert descent.lr == pytest.approx(0.1 * s)
    assert net.item() == pytest.approx(1 - 0.1 * s * 2)
    assert sigma.item() == pytest.approx(1 - 0.001 * s * 2)


@pytest.mark.parametrize(("momentum", "moved"), [("net", 0.25), (0.5, 0.25), (0.0, 0.2)])
def test_a_balance_has_the_nets_momentum_or_its_own(momentum: Any, moved: float) -> None:
    """Two steps along gradient 1: 1 + (1 + m) times the lr."""
    net, sigma = one(), one()
    budget = Budget(lr=0.1, momentum=0.5, clip=None)
    descent = Optimiser([net], [Group([sigma], momentum=momentum)], budget)
    for _ in range(2):
        descend(descent, 1.0, 1.0)
    assert net.item() == pytest.approx(1 - 0.25)
    assert sigma.item() == pytest.approx(1 - moved)


def test_weight_decay_is_the_nets_alone() -> None:
    net, sigma = one(), one()
    descent = Optimiser([net], [Group([sigma])], Budget(**PLAIN, weight_decay=0.5))
    descend(descent, 0.0, 0.0)
    assert net.item() == pytest.approx(1 - 0.1 * 0.5)
    assert sigma.item() == 1


@pytest.mark.parametrize(
    ("clip", "gradients", "expected", "clipped"),
    [
        ("together", (3.0, 4.0), (0.6, 0.8), 1),  # one norm of 5
        ("apart", (3.0, 4.0), (1.0, 1.0), 1),
        ("together", (0.6, 4.0), (0.6 / 4.0447, 4.0 / 4.0447), 1),  # σ shrinks the net's step
        ("apart", (0.6, 4.0), (0.6, 1.0), 0),
        ("apart", (3.0, 0.5), (1.0, 0.5), 1),
        ("together", (0.6, 0.7), (0.6, 0.7), 0),
    ],
)
def test_gradients_are_clipped_together_or_apart(
    clip: Any, gradients: tuple[float, float], expected: tuple[float, float], clipped: float
) -> None:
    net, sigma = one(), one()
    descent = Optimiser([net], [Group([sigma], clip=clip)], Budget(**{**PLAIN, "clip": 1.0}))
    assert descend(descent, *gradients) == clipped
    assert net.item() == pytest.approx(1 - 0.1 * expected[0], abs=1e-5)
    assert sigma.item() == pytest.approx(1 - 0.1 * expected[1], abs=1e-5)


def test_without_a_clip_nothing_is_clipped() -> None:
    net, sigma = one(), one()
    assert (
        descend(Optimiser([net], [Group([sigma], clip="apart")], Budget(**PLAIN)), 30.0, 40.0) == 0
    )
    assert [net.item(), sigma.item()] == pytest.approx([-2, -3])


def test_each_balance_has_a_group_of_its_own() -> None:
    """Two rules, one clipped with the net and one apart: norms 5 and 2."""
    net, first, second = one(), one(), one()
    groups = [Group([first]), Group([second], lr_factor=0.5, clip="apart")]
    descent = Optimiser([net], groups, Budget(**{**PLAIN, "clip": 1.0}))
    descend(descent, 3.0, 4.0, 2.0)
    moved = [1 - parameter.item() for parameter in (net, first, second)]
    assert moved == pytest.approx([0.06, 0.08, 0.05], abs=1e-6)


def test_momentum_is_kept_for_those_who_have_it_and_given_back() -> None:
    """Momentum 0.5 and gradients 1: buffers 1, then 1.5 whether stopped in between or not."""

    def made() -> Optimiser:
        groups = [Group([one()], momentum=0.0), Group([one()])]
        return Optimiser([one()], groups, Budget(lr=0.1, momentum=0.5, clip=None))

    first, second = made(), made()
    assert first.momentum() == {}
    descend(first, 1.0, 1.0, 1.0)
    kept = {name: buffer.clone() for name, buffer in first.momentum().items()}
    assert kept == {"momentum.0": 1, "momentum.2": 1}
    second.restore(kept)
    descend(second, 1.0, 1.0, 1.0)
    assert second.momentum() == {"momentum.0": 1.5, "momentum.2": 1.5}


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 10_000),
    st.sampled_from([0.0, 0.5, 0.9]),
    st.sampled_from([0.0, 1e-3, 0.5]),
    st.sampled_from([None, 0.3]),
    st.sampled_from(["constant", "linear", "cosine"]),
)
def test_steps_are_those_of_torch_bit_for_bit(
    seed: int, momentum: float, decay: float, clip: float | None, schedule: Fall
) -> None:
    """Against torch.optim.SGD with torch's own clipping, over ten steps and two parameters."""
    draws = torch_generator(seed, "optimiser")
    values = [torch.randn(shape, generator=draws) for shape in ((3, 4), (5,))]
    ours, theirs = ([torch.nn.Parameter(v.clone()) for v in values] for _ in range(2))
    budget = Budget(lr=0.1, momentum=momentum, weight_decay=decay, clip=clip, schedule=schedule)
    optimiser = Optimiser(ours, [], budget)
    reference = torch.optim.SGD(theirs, lr=0.1, momentum=momentum, weight_decay=decay)
    for step in range(10):
        optimiser.begin(step / 10)
        reference.param_groups[0]["lr"] = 0.1 * falling(schedule, step / 10)
        for a, b in zip(ours, theirs, strict=True):
            a.grad = torch.randn(a.shape, generator=draws)
            b.grad = a.grad.clone()
        optimiser.finish()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(theirs, clip)
        reference.step()
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
