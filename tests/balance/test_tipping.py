"""Why λ runs away: beyond λ = C·d·‖g‖²/(4·L_loc) the equilibrium moves off faster than λ follows.

P feels a constant local gradient g and the pull λ·L_al; where they balance, L_al = C·d·‖g‖²/(4λ²).
"""

from __future__ import annotations

import math

import torch
from torch import nn

from accord.balance import Mixture
from accord.client.optimiser import Optimiser
from accord.core.budget import Budget
from balance.support import sigmas

ELEMENTS, LOCAL = 16, 5.0  # C·d and L_loc
G = torch.full((ELEMENTS,), 0.5 / math.sqrt(ELEMENTS))  # ‖g‖ = 0.5
TIP = ELEMENTS * 0.5**2 / (4 * LOCAL)


def where_lambda_goes(times: float) -> float:
    """λ/λ_tip once it is beyond 10 or under ½, started at `times` with P at rest there."""
    start = times * TIP
    params = {
        **{"attenuation": "constant", "momentum": 0.0, "clip": "apart"},
        **{"start_local": math.log(LOCAL), "start_align": math.log(LOCAL / start)},
    }
    weigher = sigmas("attenuated", params)
    mixture = Mixture({"anchors": weigher})
    gap = nn.Parameter(-ELEMENTS * G / (2 * start))  # P − A
    descent = Optimiser([gap], mixture.groups(), Budget(lr=0.5, momentum=0.0, clip=None))
    ratio, steps = times, 0
    while 0.5 < ratio < 10 and steps < 1000:
        steps += 1
        descent.begin(0.0)
        local = LOCAL + G @ (gap - gap.detach())  # always L_loc, with gradient g
        mixture.backward({"local": local}, {"anchors": gap.square().mean()}, 0.0, [gap])
        descent.finish()
        ratio = float(weigher.lambda_raw()) / TIP
    return ratio


def test_beyond_the_tipping_point_lambda_runs_away() -> None:
    assert where_lambda_goes(1.2) >= 10


def test_before_it_lambda_falls_back() -> None:
    assert where_lambda_goes(0.8) <= 0.5
