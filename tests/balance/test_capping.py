"""γ of `stabilised` and `attenuated-log`: given or measured, and λ under its cap at every step."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from accord.balance import Step, balances
from accord.balance.sigmas import SigmaWeigher
from accord.core.errors import AccordError
from balance.support import a_step, lambdas, own_loss, sigmas
from core.cases import looped

CAPPED = [name for name in balances if "lambda_cap" in balances.get(name).model_fields]
every_capped = pytest.mark.parametrize("name", CAPPED)
STEPS = 1000


def history(local: str, level: float = 3.0, steps_to_fall: float = 40) -> list[Step]:
    """Training in short: L_loc about `level`, L_al falling from 1 to 1e-8."""
    noise = torch.randn(STEPS, generator=torch.Generator().manual_seed(0)).tolist()
    found = []
    for step in range(STEPS):
        progress = step / STEPS
        now = level * (1 - 0.5 * progress) if local == "falling" else level + 0.1 * noise[step]
        found.append(a_step(now, max(1e-8, math.exp(-step / steps_to_fall)), progress))
    return found


def see(weigher: SigmaWeigher, losses: list[float]) -> None:
    for local in losses:
        own_loss(weigher, a_step(local, 1.0))


def gamma(weigher: SigmaWeigher) -> float:
    """γ as λ* shows it: L_loc/(2γ) at L_al = 0, p = 0."""
    bound = weigher.equilibrium(1.0, 0.0, 0.0)
    assert bound is not None
    return 1 / (2 * bound)


@every_capped
@looped("attenuation", ["constant", "linear"])
@looped("local", ["noisy", "falling"])
def test_lambda_stays_under_its_cap_where_attenuated_explodes(
    name: str, attenuation: str, local: str
) -> None:
    steps = history(local)
    capped = sigmas(name, {"lambda_cap": 50, "attenuation": attenuation})
    plain = sigmas("attenuated", {"momentum": 0.0, "attenuation": attenuation})
    assert max(lambdas(capped, steps, 0.9)) <= 55
    assert max(lambdas(plain, steps, 0.9)) > 1000


def test_the_rules_with_a_cap_are_found() -> None:
    assert {"stabilised", "attenuated-log"} <= set(CAPPED)


@every_capped
@looped(("level", "several"), [(3.0, 1.2), (10.0, 4.0)])
def test_with_momentum_sigma_overshoots_the_cap(name: str, level: float, several: float) -> None:
    """When L_al falls within a few steps; the more, the further L_loc is from σ_l² = 1."""
    steps = history("noisy", level, steps_to_fall=5)[:300]
    still = lambdas(sigmas(name, {"lambda_cap": 50}), steps, 0.9)
    moving = lambdas(sigmas(name, {"lambda_cap": 50, "momentum": "net"}), steps, 0.9)
    assert max(still) <= 55
    assert max(moving) > several * 50


@every_capped
def test_gamma_comes_from_the_first_ten_batches(name: str) -> None:
    weigher = sigmas(name, {"lambda_cap": 20})
    see(weigher, [4.0])
    assert gamma(weigher) == pytest.approx(4 / 40)
    see(weigher, [2.0] * 9)
    assert gamma(weigher) == pytest.approx(2.2 / 40)
    see(weigher, [1000.0] * 5)
    assert gamma(weigher) == pytest.approx(2.2 / 40)


@every_capped
def test_gamma_is_measured_before_it_is_first_used(name: str) -> None:
    weigher = sigmas(name, {"lambda_cap": 20})
    # 4/2 + (1 + 2γ)/2, γ = 4/40, both logs 0.
    assert own_loss(weigher, a_step(4.0, 1.0)).item() == pytest.approx(2 + 1.2 / 2)


@every_capped
def test_a_given_gamma_is_used_as_it_is(name: str) -> None:
    weigher = sigmas(name, {"gamma": 0.25, "lambda_cap": 1})
    see(weigher, [7.0] * 12)
    assert gamma(weigher) == pytest.approx(0.25)


@every_capped
@looped("seen", [4, 10])
def test_the_measurement_survives_a_restart(name: str, seen: int) -> None:
    losses = [float(n) for n in range(1, 16)]
    whole, before, after = sigmas(name), sigmas(name), sigmas(name)
    see(whole, losses)
    see(before, losses[:seen])
    after.load_state_dict(before.state_dict())
    assert gamma(after) == gamma(before)
    see(after, losses[seen:])
    assert gamma(after) == gamma(whole) == pytest.approx(5.5 / 100)


@every_capped
def test_sigma_has_no_momentum_unless_told(name: str) -> None:
    (group,) = sigmas(name).groups()
    assert group.momentum == 0
    (group,) = sigmas(name, {"momentum": "net"}).groups()
    assert group.momentum == "net"


@every_capped
@looped(
    ("key", "value"), [("gamma", -0.1), ("gamma", "manual"), ("lambda_cap", 0), ("momentum", 1)]
)
def test_a_parameter_out_of_range_is_refused(name: str, key: str, value: Any) -> None:
    with pytest.raises(AccordError, match=rf"balance\.{key}"):
        sigmas(name, {key: value})
