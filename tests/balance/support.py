"""Weighers, steps and constant losses for the tests of every balance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from accord.balance import Balance, Step, Weigher, balances
from accord.balance.gradients import Gradients
from accord.balance.sigmas import SigmaWeigher
from accord.client.optimiser import Optimiser
from accord.core.budget import Budget
from accord.core.parts import make_part


def rule(name: str, params: Mapping[str, Any] | None = None) -> Balance:
    return make_part(balances, {"use": name, **(params or {})}, "balance")


def started(
    name: str, params: Mapping[str, Any] | None = None, counts: Sequence[int] = (3, 4)
) -> Weigher:
    return rule(name, params).start(torch.tensor(counts))


def sigmas(
    name: str, params: Mapping[str, Any] | None = None, counts: Sequence[int] = (3, 4)
) -> SigmaWeigher:
    """`started`, for a rule that learns σ_l and σ_a."""
    weigher = started(name, params, counts)
    assert isinstance(weigher, SigmaWeigher)
    return weigher


def a_step(
    local: float = 2.0,
    align: float = 3.0,
    progress: float = 0.0,
    terms: Mapping[str, float] | None = None,
    gradients: Gradients | None = None,
) -> Step:
    named = terms or {"cross-entropy": local}
    return Step(
        progress=progress,
        local=torch.tensor(local),
        align=torch.tensor(align),
        terms={name: torch.tensor(loss) for name, loss in named.items()},
        gradients=gradients,
    )


def gradients(local: Sequence[float], align: Sequence[float]) -> Gradients:
    """Two gradients on one shared parameter."""
    both = nn.Parameter(torch.zeros(len(local)))
    return Gradients([both], [torch.tensor(local)], [torch.tensor(align)])


def own_loss(weigher: Weigher, at: Step) -> Tensor:
    """What σ minimises at a step, after the rule has weighed it, as in the client's loop."""
    weigher.weigh(at)
    found = weigher.own_loss(at)
    assert found is not None
    return found


def settle(weigher: Weigher, at: Step, steps: int = 250) -> None:
    """SGD on the rule's own loss until nothing moves, the losses held where they are."""
    sgd = torch.optim.SGD(weigher.parameters(), lr=2.0)
    for _ in range(steps):
        sgd.zero_grad()
        own_loss(weigher, at).backward()  # type: ignore[no-untyped-call]
        sgd.step()


def lambdas(weigher: SigmaWeigher, steps: Sequence[Step], net_momentum: float) -> list[float]:
    """λ_raw at every step while a client's own optimiser trains σ: lr 0.05, no clip."""
    budget = Budget(lr=0.05, momentum=net_momentum, clip=None)
    descent = Optimiser([nn.Parameter(torch.zeros(1))], weigher.groups(), budget)
    found = []
    for at in steps:
        descent.begin(at.progress)
        found.append(weigher.lambda_raw().item())
        own_loss(weigher, at).backward()  # type: ignore[no-untyped-call]
        descent.finish()
    return found
