"""`uncertainty`: L_loc/(2σ_l²) + L_al/(2σ_a²) + ½ log σ_l² + ½ log σ_a²."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from accord.balance import Mixture
from accord.core.errors import AccordError
from balance.support import a_step, own_loss, settle, sigmas
from core.cases import looped

loss = st.floats(0.01, 10)


def test_both_losses_are_halved_at_first() -> None:
    weights = sigmas("uncertainty").weigh(a_step())
    assert weights.local == 0.5
    assert weights.align == 0.5


def test_weights_and_dials_by_hand() -> None:
    weigher = sigmas("uncertainty", {"start_local": math.log(4), "start_align": math.log(0.5)})
    weights = weigher.weigh(a_step(progress=0.5))
    assert float(weights.local) == pytest.approx(1 / 8)  # type: ignore[arg-type]
    assert float(weights.align) == pytest.approx(1)
    found = weigher.readings(0.5)
    assert found.lambda_raw == pytest.approx(8)
    assert found.attenuation == 1
    assert found.sigma_sq_local == pytest.approx(4)
    assert found.sigma_sq_align == pytest.approx(0.5)


def test_the_own_loss_by_hand() -> None:
    weigher = sigmas("uncertainty", {"start_local": math.log(4), "start_align": math.log(0.5)})
    expected = 2 / 8 + 3 / 1 + math.log(4) / 2 + math.log(0.5) / 2
    assert own_loss(weigher, a_step(2.0, 3.0)).item() == pytest.approx(expected)


def test_one_step_minimises_the_one_formula_over_net_and_sigma() -> None:
    """What the net and σ get apart is the gradient of the whole formula over all of them."""
    theta = nn.Parameter(torch.tensor([0.7, -1.2, 0.4]))
    target = torch.tensor([1.0, 0.5, -0.5])

    def losses() -> tuple[torch.Tensor, torch.Tensor]:
        return (theta[:2] - target[:2]).square().sum() + 1, (theta - target).abs().mean()

    weigher = sigmas("uncertainty", {"start_local": 0.8, "start_align": -1.7})
    local, align = losses()
    returned = Mixture({"anchors": weigher}).backward(
        {"task": local}, {"anchors": align}, 0, [theta]
    )
    found = [parameter.grad for parameter in (theta, weigher.log_local, weigher.log_align)]

    log_l, log_a = (torch.tensor(start, requires_grad=True) for start in (0.8, -1.7))
    local, align = losses()
    weighed = local / (2 * log_l.exp()) + align / (2 * log_a.exp())
    joint = weighed + log_l / 2 + log_a / 2
    expected = torch.autograd.grad(joint, [theta, log_l, log_a])
    torch.testing.assert_close(found, list(expected))
    torch.testing.assert_close(returned, weighed.detach())


@settings(max_examples=15, deadline=None)
@given(local=loss, align=loss, p=st.floats(0, 0.9))
def test_variances_settle_at_the_losses(local: float, align: float, p: float) -> None:
    weigher = sigmas("uncertainty")
    settle(weigher, a_step(local, align, p))
    found = weigher.readings(p)
    assert found.sigma_sq_local == pytest.approx(local, rel=1e-4)
    assert found.sigma_sq_align == pytest.approx(align, rel=1e-4)
    assert found.lambda_raw == pytest.approx(weigher.equilibrium(local, align, p), rel=1e-4)


def test_lambda_has_no_bound_as_alignment_is_reached() -> None:
    weigher = sigmas("uncertainty")
    assert weigher.equilibrium(3.0, 1e-8, 0.5) == pytest.approx(3e8)
    assert weigher.equilibrium(3.0, 0.0, 0.5) is None


@pytest.mark.parametrize("start_align", [0.0, 1.5])
def test_sigma_may_start_where_lambda_is_that_of_entropy(start_align: float) -> None:
    params = {"start_local": "entropy", "start_align": start_align}
    even = sigmas("uncertainty", params, counts=(5, 5))
    alone = sigmas("uncertainty", params, counts=(0, 5))
    assert even.readings(0).lambda_raw == pytest.approx(10)
    assert alone.readings(0).lambda_raw == pytest.approx(0.1)


def test_sigma_is_trained_like_the_net_unless_told() -> None:
    weigher = sigmas("uncertainty")
    (group,) = weigher.groups()
    assert (group.lr_factor, group.momentum, group.clip) == (1, "net", "together")
    assert group.parameters == [weigher.log_local, weigher.log_align]


def test_the_repair_has_a_slow_group_of_its_own() -> None:
    """etf-uncertainty-repaired: λ starts at 1/e."""
    repair = {"start_local": -1, "lr_factor": 0.01, "momentum": 0, "clip": "apart"}
    weigher = sigmas("uncertainty", repair)
    (group,) = weigher.groups()
    assert (group.lr_factor, group.momentum, group.clip) == (0.01, 0, "apart")
    assert weigher.readings(0).lambda_raw == pytest.approx(math.exp(-1))


@looped(
    ("key", "value"),
    [
        ("start_local", "uniform"),
        ("start_align", "entropy"),
        ("lr_factor", 0),
        ("momentum", 1),
        ("momentum", -0.1),
        ("clip", "never"),
    ],
)
def test_a_parameter_out_of_range_is_refused(key: str, value: Any) -> None:
    with pytest.raises(AccordError, match=rf"balance\.{key}"):
        sigmas("uncertainty", {key: value})
