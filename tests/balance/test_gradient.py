"""`gradient`: ∇ = a·∇L_loc + b·∇L_al on what both losses reach, (a, b) as TorchJD finds them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib.machinery import ModuleSpec

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torchjd.aggregation import MGDA, DualProj, UPGrad

from accord.balance import Mixture, Weights
from accord.core.errors import AccordError
from balance.support import a_step, gradients, rule, started
from core.cases import looped

AGGREGATORS = ["upgrad", "dualproj", "mgda"]
vector = st.lists(st.floats(-1, 1, width=32), min_size=3, max_size=3)


def weigh(local: Sequence[float], align: Sequence[float], **params: str | float) -> Weights:
    weigher = started("gradient", params)
    return weigher.weigh(a_step(gradients=gradients(local, align)))


def mix(local: Sequence[float], align: Sequence[float], **params: str | float) -> Tensor:
    """The gradient that a shared parameter gets, through a whole backward pass."""
    theta = nn.Parameter(torch.zeros(len(local)))
    losses = [(theta * torch.tensor(gradient)).sum() for gradient in (local, align)]
    mixture = Mixture({"anchors": started("gradient", params)})
    mixture.backward({"task": losses[0]}, {"anchors": losses[1]}, 0.0, [theta])
    assert theta.grad is not None
    return theta.grad


def size(gradient: Sequence[float]) -> float:
    return math.hypot(*gradient)


def ab(weights: Weights) -> tuple[float, float]:
    assert weights.shared is not None
    return float(weights.shared), float(weights.align)


def test_conflicting_gradients_by_hand() -> None:
    """(1, 0) and (−1, 1), each projected onto the right angle of the other, added."""
    expected = torch.tensor([0.5, 0.5]) + torch.tensor([0.0, 1.0])
    torch.testing.assert_close(mix((1, 0), (-1, 1)), expected, rtol=0, atol=1e-3)


def projected(gradient: Tensor, other: Tensor) -> Tensor:
    """Onto the half-space where `other`'s loss does not rise."""
    return gradient - (gradient @ other).clamp(max=0) / (other @ other) * other


@settings(max_examples=100, deadline=None)
@given(local=vector, align=vector, scale=st.sampled_from([1, 1e-3]))
def test_upgrad_adds_each_gradient_projected_by_the_other(
    local: list[float], align: list[float], scale: float
) -> None:
    assume(min(size(local), size(align)) > 0.1)
    g, h = torch.tensor(local), scale * torch.tensor(align)
    expected = projected(g, h) + projected(h, g)
    found = mix(g.tolist(), h.tolist())
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-3 * (size(local) + size(align)))


@looped(
    ("name", "torchjd"),
    [
        ("upgrad", UPGrad(torch.ones(2))),
        ("dualproj", DualProj(torch.ones(2))),
        ("mgda", MGDA()),
    ],
)
@looped("align", [(-0.8, 0.9, 0.1), (0.6, 0.8, 0.3)])
def test_every_aggregator_is_torchjds(
    name: str, torchjd: nn.Module, align: tuple[float, ...]
) -> None:
    local = (1.0, 0.2, -0.3)
    expected = torchjd(torch.tensor([local, align]))
    torch.testing.assert_close(mix(local, align, aggregator=name), expected, rtol=1e-3, atol=1e-3)


@settings(max_examples=40, deadline=None)
@given(local=vector, align=vector)
def test_gradients_that_agree_are_added(local: list[float], align: list[float]) -> None:
    assume(sum(x * y for x, y in zip(local, align, strict=True)) >= 0)
    # The solver's own error would decide on a gradient that is next to nothing beside the other.
    shorter, longer = sorted((size(local), size(align)))
    assume(shorter == 0 or shorter > 1e-4 * longer)
    assert ab(weigh(local, align)) == pytest.approx((1, 1), abs=1e-5)


@settings(max_examples=40, deadline=None)
@given(local=vector, align=vector)
def test_neither_loss_rises_to_first_order(local: list[float], align: list[float]) -> None:
    assume(min(size(local), size(align)) > 0.1)
    step = mix(local, align)
    for gradient in (local, align):
        # TorchJD's solver is exact to 1e-4 of the larger gradient's square.
        assert float(step @ torch.tensor(gradient)) >= -1e-3 * size(local) * size(align)


def test_a_small_gradient_is_protected_as_well() -> None:
    local, align = (1.0, 0.0), (-0.008, 0.006)
    step = mix(local, align)
    cosine = float(step @ torch.tensor(align)) / (float(step.norm()) * size(align))
    assert cosine >= -0.01  # −0.55


@looped("name", AGGREGATORS)
@looped("scale", [1e-6, 1e6])
def test_the_mix_does_not_depend_on_the_size_of_both(name: str, scale: float) -> None:
    local, align = (1.0, 0.2), (-0.7, 0.9)
    tiny = [[scale * x for x in gradient] for gradient in (local, align)]
    found = ab(weigh(tiny[0], tiny[1], aggregator=name))
    assert found == pytest.approx(ab(weigh(local, align, aggregator=name)), rel=1e-4)


def test_lambda_multiplies_the_alignment_loss_first() -> None:
    local, align = (1.0, 0.2, -0.3), (-0.8, 0.9, 0.1)
    twice = [2 * x for x in align]
    torch.testing.assert_close(mix(local, align, **{"lambda": 2}), mix(local, twice))


def test_without_conflict_b_is_lambda() -> None:
    weights = weigh((1.0, 0.0), (1.0, 1.0), **{"lambda": 3})
    assert ab(weights) == pytest.approx((1, 3), abs=1e-5)


@looped("name", AGGREGATORS)
@looped(("local", "align"), [((0, 0), (0, 0)), ((1, 0), (0, 0)), ((0, 0), (1, 0))])
def test_zero_gradients_give_finite_weights(
    name: str, local: tuple[float, float], align: tuple[float, float]
) -> None:
    a, b = ab(weigh([float(x) for x in local], [float(x) for x in align], aggregator=name))
    assert math.isfinite(a)
    assert math.isfinite(b)


@looped("name", AGGREGATORS)
@looped("bad", [math.nan, math.inf])
def test_a_broken_gradient_shows_as_nan(name: str, bad: float) -> None:
    """Rather than as an error of the solver: the epoch's check then stops the client."""
    weigher = started("gradient", {"aggregator": name})
    weights = weigher.weigh(a_step(gradients=gradients((1.0, 0.0), (bad, 1.0))))
    assert all(math.isnan(weight) for weight in ab(weights))
    found = weigher.readings(0.5).lambda_raw
    assert found is not None
    assert math.isnan(found)


def test_what_the_alignment_loss_does_not_reach_keeps_its_gradient() -> None:
    encoder, head = nn.Parameter(torch.tensor([2.0])), nn.Parameter(torch.zeros(2))
    local = 5 * encoder.sum() + head[0]
    align = -head[0] + head[1]
    mixture = Mixture({"anchors": started("gradient")})
    mixture.backward({"task": local}, {"anchors": align}, 0.0, [encoder, head])
    torch.testing.assert_close(encoder.grad, torch.tensor([5.0]))
    assert head.grad is not None
    torch.testing.assert_close(head.grad, mix((1, 0), (-1, 1)))


def test_the_dial_shows_the_latest_mix() -> None:
    weigher = started("gradient")
    assert weigher.readings(0).lambda_raw == 1
    weights = weigher.weigh(a_step(gradients=gradients((1.0, 0.0), (-1.0, 1.0))))
    a, b = ab(weights)
    assert (a, b) == pytest.approx((2, 1.5), abs=1e-3)
    assert weigher.readings(0).lambda_raw == pytest.approx(b / a)


def test_a_mix_without_the_local_gradient_has_no_lambda() -> None:
    weigher = started("gradient", {"aggregator": "mgda"})
    weigher.weigh(a_step(gradients=gradients((1.0, 0.0), (0.01, 0.0))))  # mgda: the smaller alone
    assert weigher.readings(0).lambda_raw is None


def test_it_needs_gradients() -> None:
    assert started("gradient").wants_gradients
    with pytest.raises(ValueError, match="gradients"):
        started("gradient").weigh(a_step())


@pytest.mark.parametrize("gone", [("torchjd",), ("qpsolvers", "quadprog")])
def test_a_missing_package_comes_with_advice(
    gone: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def find(name: str) -> ModuleSpec | None:
        return None if name in gone else ModuleSpec(name, None)

    monkeypatch.setattr("accord.balance.gradient.find_spec", find)
    told = f"needs {', '.join(gone)}, which"
    for ask in (rule("gradient").require, lambda: started("gradient")):
        with pytest.raises(AccordError, match=told) as caught:
            ask()
        assert str(caught.value).endswith("pip install 'accord[gradient]'.")


@pytest.mark.parametrize(("key", "value"), [("aggregator", "pcgrad"), ("lambda", 0)])
def test_a_parameter_out_of_range_is_refused(key: str, value: str | float) -> None:
    with pytest.raises(AccordError, match=rf"balance\.{key}"):
        started("gradient", {key: value})
