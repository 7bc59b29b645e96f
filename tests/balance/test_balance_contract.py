"""What the client loop relies on, for every registered balance."""

from __future__ import annotations

import inspect
import math
from itertools import product
from typing import Any

import pytest
import torch
from safetensors.torch import load, save
from torch import Tensor, nn

from accord.balance import Balance, Mixture, Step, Weigher, balances
from accord.balance.gradients import shared_gradients
from accord.client.optimiser import Optimiser
from accord.core.budget import Budget
from accord.core.parts import make_part, part_spec
from balance.support import a_step, own_loss, rule, started
from core.cases import case, looped

COUNTS = {
    "even": (5, 5, 5, 5),
    "skewed": (97, 2, 1, 0),
    "single class": (0, 12, 0, 0),
    "single image": (0, 0, 0, 1),
}
EVERY = balances.names()
every_balance = looped("name", EVERY)
SITUATIONS = list(product(COUNTS, (0.0, 0.5, 0.999)))  # whose labels, and the share of training
Losses = tuple[dict[str, Tensor], Tensor]


class Client:
    """A net of an encoder (1) and a head (2) under one balance, trained as the client loop does."""

    def __init__(self, name: str, counts: tuple[int, ...] = COUNTS["skewed"]) -> None:
        self.encoder = nn.Parameter(torch.tensor([0.3]))
        self.head = nn.Parameter(torch.tensor([0.5, -0.2]))
        self.net = [self.encoder, self.head]
        self.weigher = started(name, counts=counts)
        self.mixture = Mixture({"anchors": self.weigher})
        self.optimiser = Optimiser(self.net, self.mixture.groups(), Budget())

    def losses(self) -> Losses:
        """Two local losses of encoder and head, and an alignment loss of the head alone."""
        task = (self.encoder * self.head - 1.5).square().sum()
        spread = (self.head + self.encoder).square().mean() / 2
        return {"cross-entropy": task, "supcon": spread}, (self.head + 1).square().mean()

    def step(self, progress: float = 0.0) -> Tensor:
        self.optimiser.begin(progress)
        local, align = self.losses()
        total = self.mixture.backward(local, {"anchors": align}, progress, self.net, look=True)
        self.optimiser.finish()
        return total

    def next_step(self, progress: float = 0.0) -> Step:
        """The next step as the balance will see it."""
        local, align = self.losses()
        total = torch.stack(list(local.values())).sum()
        return Step(
            progress=progress,
            local=total.detach(),
            align=align.detach(),
            terms={term: loss.detach() for term, loss in local.items()},
            gradients=shared_gradients(total, align, self.net),
        )

    def state(self) -> dict[str, Tensor]:
        kept = {f"balance.{key}": value for key, value in self.mixture.state_dict().items()}
        kept |= {f"net.{i}": parameter.detach() for i, parameter in enumerate(self.net)}
        return {key: value.clone() for key, value in (kept | self.optimiser.momentum()).items()}

    def restore(self, state: dict[str, Tensor]) -> None:
        balance = {k.removeprefix("balance."): v for k, v in state.items() if "balance." in k}
        self.mixture.load_state_dict(balance)
        for i, parameter in enumerate(self.net):
            parameter.data = state[f"net.{i}"].clone()
        self.optimiser.restore(state)


def trained(name: str, steps: int = 4) -> Client:
    client = Client(name)
    for step in range(steps):
        client.step(step / 10)
    return client


@every_balance
def test_weights_are_finite_and_not_negative(name: str) -> None:
    for title, progress in SITUATIONS:
        client = Client(name, COUNTS[title])
        weights = client.weigher.weigh(client.next_step(progress))
        for weight in (weights.align, weights.local, weights.shared):
            if weight is not None:
                assert math.isfinite(float(weight)), (title, progress)
                assert float(weight) >= 0, (title, progress)


@every_balance
def test_weights_are_values_without_a_gradient(name: str) -> None:
    client = trained(name)
    weights = client.weigher.weigh(client.next_step(0.5))
    tensors = [w for w in (weights.align, weights.local, weights.shared) if isinstance(w, Tensor)]
    assert not any(weight.requires_grad for weight in tensors)


@every_balance
def test_a_step_fills_finite_gradients(name: str) -> None:
    for title, progress in SITUATIONS:
        with case(title, progress):
            client = Client(name, COUNTS[title])
            local, align = client.losses()
            total = client.mixture.backward(local, {"anchors": align}, progress, client.net)
            assert not total.requires_grad
            assert math.isfinite(total.item())
            for parameter in (*client.net, *client.mixture.parameters()):
                assert parameter.grad is not None
                assert bool(torch.isfinite(parameter.grad).all())
                assert bool((parameter.grad != 0).any())


@every_balance
def test_readings_are_finite_and_not_negative(name: str) -> None:
    for title, progress in SITUATIONS:
        with case(title, progress):
            client = Client(name, COUNTS[title])
            client.step(progress)
            found = client.weigher.readings(progress)
            assert found.lambda_raw is not None
            dials = (found.attenuation, found.sigma_sq_local, found.sigma_sq_align)
            for dial in (found.lambda_raw, *dials):
                assert dial is None or (math.isfinite(dial) and dial >= 0)
            assert found.lambda_effective == found.lambda_raw * found.attenuation


@every_balance
def test_the_effective_lambda_is_what_the_net_sees(name: str) -> None:
    for progress in (0.0, 0.5):
        client = trained(name)
        weights = client.weigher.weigh(client.next_step(progress))
        whole = (1.0 if weights.local is None else weights.local) * (
            1.0 if weights.shared is None else weights.shared
        )
        seen = pytest.approx(float(weights.align / whole), rel=1e-6)
        assert client.weigher.readings(progress).lambda_effective == seen, progress


@every_balance
def test_reading_the_dials_does_not_turn_them(name: str) -> None:
    client = trained(name)
    before = client.state()
    first = client.weigher.readings(0.5)
    client.weigher.equilibrium(2.0, 3.0, 0.5)
    assert client.weigher.readings(0.5) == first
    torch.testing.assert_close(client.state(), before, rtol=0, atol=0)


@every_balance
def test_a_restored_client_goes_on_bit_for_bit(name: str) -> None:
    going, restored = trained(name), Client(name)
    restored.restore(load(save(going.state())))
    for step in range(4, 9):
        assert torch.equal(restored.step(step / 10), going.step(step / 10))
        torch.testing.assert_close(restored.state(), going.state(), rtol=0, atol=0)
    assert restored.weigher.readings(0.9) == going.weigher.readings(0.9)
    assert restored.weigher.equilibrium(2, 3, 0.9) == going.weigher.equilibrium(2, 3, 0.9)


@every_balance
def test_everything_learnt_is_in_exactly_one_group(name: str) -> None:
    weigher = started(name)
    grouped = [id(p) for group in weigher.groups() for p in group.parameters]
    assert sorted(grouped) == sorted(id(p) for p in weigher.parameters())


@every_balance
def test_a_rule_has_a_loss_of_its_own_if_it_learns_something(name: str) -> None:
    weigher = started(name)
    learnt = list(weigher.parameters())
    if not learnt:
        assert weigher.own_loss(a_step()) is None
    else:
        found = torch.autograd.grad(own_loss(weigher, a_step()), learnt)
        assert all(gradient != 0 for gradient in found)


@every_balance
def test_the_own_loss_does_not_reach_the_net(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with_own, without = trained(name), trained(name)
    monkeypatch.setattr(without.weigher, "own_loss", Weigher.own_loss.__get__(without.weigher))
    for client in (with_own, without):
        client.optimiser.begin(0.4)
        local, align = client.losses()
        client.mixture.backward(local, {"anchors": align}, 0.4, client.net)
    for one, other in zip(with_own.net, without.net, strict=True):
        assert one.grad is not None
        assert other.grad is not None
        assert torch.equal(one.grad, other.grad)


@every_balance
def test_the_spelled_out_spec_makes_the_same_rule(name: str) -> None:
    assert make_part(balances, part_spec(name, rule(name)), "balance") == rule(name)


@every_balance
def test_the_docstring_gives_the_formula(name: str) -> None:
    text = balances.get(name).__doc__ or ""
    assert "=" in text
    assert "L_loc" in text or "L_al" in text


@every_balance
def test_every_parameter_says_what_it_means(name: str) -> None:
    silent = [key for key, f in balances.get(name).model_fields.items() if not f.description]
    assert silent == []


def kinds(base: type[Any]) -> set[type[Any]]:
    """All classes of balances that can be made, wherever they stand."""
    further = {found for kind in base.__subclasses__() for found in kinds(kind)}
    return further if inspect.isabstract(base) else {base, *further}


def test_every_rule_that_can_be_made_is_registered() -> None:
    assert {balances.get(name) for name in EVERY} == kinds(Balance)
    assert len(EVERY) > 5
