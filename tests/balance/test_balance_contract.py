"""What the client loop relies on, for every registered balance."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from accord.balance import Setting, Weigher, balances
from accord.parts import make_part, part_spec

COUNTS = {
    "even": [5, 5, 5, 5],
    "skewed": [97, 2, 1, 0],
    "single class": [0, 12, 0, 0],
    "single image": [0, 0, 0, 1],
}
every_balance = pytest.mark.parametrize("name", balances.names())
every_client = pytest.mark.parametrize("counts", COUNTS.values(), ids=COUNTS)
every_progress = pytest.mark.parametrize("progress", [0.0, 0.5, 1.0])


def started(name: str, counts: list[int] = COUNTS["skewed"]) -> Weigher:
    return make_part(balances, name, "balance").start(Setting(torch.tensor(counts), lr=0.05))


def losses(parameter: Tensor) -> tuple[Tensor, Tensor]:
    """A local loss near 2.3, an alignment loss near 1, of shared parameters."""
    return (parameter - 1.5).square().sum(), (parameter + 1).square().mean()


def trained(name: str, steps: int = 5) -> Weigher:
    """A weigher a few steps into training, as the client loop does them."""
    weigher, shared = started(name), nn.Parameter(torch.zeros(2))
    groups = [{"params": [shared]}, *weigher.parameter_groups()]
    optimiser = torch.optim.SGD(groups, lr=0.05, momentum=0.9)
    for step in range(steps):
        optimiser.zero_grad()
        weigher.backward(*losses(shared), progress=step / steps)
        optimiser.step()
    return weigher


@every_balance
@every_client
@every_progress
def test_the_loss_is_a_finite_scalar(name: str, counts: list[int], progress: float) -> None:
    loss = started(name, counts).weigh(*losses(torch.zeros(2)), progress)
    assert loss.shape == ()
    assert bool(torch.isfinite(loss))


@every_balance
@every_client
def test_both_losses_are_minimised(name: str, counts: list[int]) -> None:
    weigher, shared = started(name, counts), torch.zeros(2, requires_grad=True)
    local, align = losses(shared)
    loss = weigher.weigh(local, align, 0.25)
    for_local, for_align = torch.autograd.grad(loss, [local, align])
    assert for_local > 0
    assert for_align > 0
    assert bool(torch.isfinite(for_local))
    assert bool(torch.isfinite(for_align))


@every_balance
@every_client
@every_progress
def test_backward_fills_finite_gradients(name: str, counts: list[int], progress: float) -> None:
    weigher, shared = started(name, counts), torch.zeros(2, requires_grad=True)
    loss = weigher.backward(*losses(shared), progress)
    assert not loss.requires_grad
    assert shared.grad is not None
    assert bool((shared.grad != 0).all())
    for parameter in (shared, *weigher.parameters()):
        assert parameter.grad is None or bool(torch.isfinite(parameter.grad).all())


@every_balance
@every_client
@every_progress
def test_readings_are_finite_and_not_negative(
    name: str, counts: list[int], progress: float
) -> None:
    found = started(name, counts).readings(progress)
    for value in (found.lambda_raw, found.attenuation, found.lambda_effective):
        assert math.isfinite(value)
        assert value >= 0
    assert found.lambda_effective == found.lambda_raw * found.attenuation


@every_balance
def test_reading_the_dials_does_not_turn_them(name: str) -> None:
    weigher = trained(name)
    before = {key: value.clone() for key, value in weigher.state_dict().items()}
    assert weigher.readings(0.5) == weigher.readings(0.5)
    torch.testing.assert_close(dict(weigher.state_dict()), before, rtol=0, atol=0)


@every_balance
@every_progress
def test_a_restored_weigher_goes_on_where_it_stood(name: str, progress: float) -> None:
    weigher, restored = trained(name), started(name)
    restored.load_state_dict(weigher.state_dict())
    assert restored.readings(progress) == weigher.readings(progress)
    local, align = losses(torch.ones(2))
    assert torch.equal(
        restored.weigh(local, align, progress), weigher.weigh(local, align, progress)
    )


@every_balance
def test_everything_learnt_is_in_exactly_one_parameter_group(name: str) -> None:
    weigher = started(name)
    grouped = [id(p) for group in weigher.parameter_groups() for p in group["params"]]
    assert sorted(grouped) == sorted(id(p) for p in weigher.parameters())


@every_balance
def test_the_spelled_out_spec_makes_the_same_rule(name: str) -> None:
    rule = make_part(balances, name, "balance")
    assert make_part(balances, part_spec(name, rule), "balance") == rule
