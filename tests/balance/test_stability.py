"""How large λ may be before SGD on λ·L_al leaves its anchors: (1 + m)·C·d/lr, and with a clip.

P − A shrinks along a line: ∇(λ·L_al) = 2λ/(C·d)·(P − A), so all that follows is about its length.
"""

from __future__ import annotations

from typing import Literal

import pytest
import torch
from torch import Tensor, nn

from accord.client.optimiser import Optimiser
from accord.core.budget import Budget
from accord.objective import Batch
from accord.objective.anchors import AnchorAlignment
from accord.objective.etf_anchors import SimplexETF
from core.cases import looped

# momentum m, lr, classes C, width d
SETTINGS = [(0.0, 0.05, 10, 32), (0.5, 0.1, 3, 8), (0.9, 0.05, 10, 32), (0.9, 0.2, 4, 100)]
every_setting = looped(("m", "lr", "classes", "width"), SETTINGS)


class Pull:
    """Prototypes from N(0, 1) under λ·L_al alone, by the clients' own optimiser.

    λ is `times` (1 + m)·C·d/lr, C the number of `classes` aligned. `others` is a parameter whose
    gradient has always this norm, as the encoder's: it shares the clip.
    """

    def __init__(
        self,
        times: float,
        m: float,
        lr: float,
        classes: int,
        width: int,
        clip: float | None = None,
        held: int | None = None,
        others: float = 0.0,
    ) -> None:
        generator = torch.Generator().manual_seed(0)
        self.anchors = SimplexETF().make(classes, width, generator)
        start = torch.randn(classes, width, generator=generator)
        self.prototypes, self.rest = nn.Parameter(start), nn.Parameter(torch.zeros(()))
        self.held = torch.arange(classes) < (held or classes)
        self.over: Literal["held", "all"] = "all" if held is None else "held"
        self.weight = times * (1 + m) * int(self.held.sum()) * width / lr
        self.others = others
        budget = Budget(lr=lr, momentum=m, clip=clip)
        self.optimiser = Optimiser([self.prototypes, self.rest], [], budget)

    def run(self, steps: int) -> list[float]:
        """‖P − A‖ over the classes aligned, after every step; no further than 10⁹."""
        gaps = [self.step()]
        while len(gaps) < steps and gaps[-1] < 1e9:
            gaps.append(self.step())
        return gaps

    def step(self) -> float:
        self.optimiser.begin(0.0)
        loss = self.weight * AnchorAlignment(over=self.over)(self._batch())
        (loss + self.others * self.rest).backward()  # type: ignore[no-untyped-call]
        self.optimiser.finish()
        return float((self.prototypes.detach() - self.anchors)[self.held].norm())

    def _batch(self) -> Batch:
        features = torch.ones(1, self.anchors.shape[1])
        labels = torch.zeros(1, dtype=torch.long)
        logits: Tensor = torch.zeros(1, len(self.anchors))
        return Batch(features, logits, labels, self.prototypes, self.held, self.anchors)


@every_setting
def test_below_the_bound_prototypes_reach_their_anchors(
    m: float, lr: float, classes: int, width: int
) -> None:
    assert Pull(0.95, m, lr, classes, width).run(400)[-1] < 1e-4


@every_setting
def test_beyond_the_bound_they_leave_for_good(
    m: float, lr: float, classes: int, width: int
) -> None:
    assert Pull(1.05, m, lr, classes, width).run(400)[-1] > 1e9


@every_setting
def test_over_held_classes_the_bound_counts_those_alone(
    m: float, lr: float, classes: int, width: int
) -> None:
    assert Pull(0.95, m, lr, classes, width, held=2).run(400)[-1] < 1e-4
    assert Pull(1.05, m, lr, classes, width, held=2).run(400)[-1] > 1e9


@every_setting
def test_a_clip_keeps_them_near_but_they_never_arrive(
    m: float, lr: float, classes: int, width: int
) -> None:
    for times in (1.05, 100.0):
        late = Pull(times, m, lr, classes, width, clip=1.0).run(800)[-200:]
        assert lr / (2 * (1 + m)) * 0.99 < max(late) < lr / (1 - m), times


@every_setting
def test_well_below_the_bound_a_clip_does_no_harm(
    m: float, lr: float, classes: int, width: int
) -> None:
    assert Pull(0.1, m, lr, classes, width, clip=1.0).run(700)[-1] < 1e-4


def test_without_momentum_a_clip_does_no_harm_up_to_the_bound() -> None:
    assert Pull(0.95, 0.0, 0.05, 10, 32, clip=1.0).run(700)[-1] < 1e-4


def speed(times: float, m: float, others: float) -> float:
    """How fast other parameters move, as a share of their speed without any alignment."""
    pull = Pull(times, m, 0.05, 10, 32, clip=1.0, others=others)
    pull.run(600)
    before = pull.rest.item()
    pull.run(400)
    return (before - pull.rest.item()) / (400 * 0.05 / (1 - m) * others)


@looped(("times", "share"), [(0.1, 1.0), (0.95, 1.0), (1.5, 1 / 1.5), (2.0, 1 / 2), (5.0, 1 / 5)])
def test_beyond_the_bound_the_shared_clip_starves_the_rest_of_the_net(
    times: float, share: float
) -> None:
    """The encoder's effective learning rate is that of the bound over λ."""
    assert speed(times, 0.0, others=0.5) == pytest.approx(share, rel=1e-3)


def test_with_momentum_it_starves_no_less() -> None:
    assert speed(0.1, 0.9, others=0.5) == pytest.approx(1, rel=1e-3)
    assert 0.01 < speed(10.0, 0.9, others=0.5) < 0.15


def test_other_gradients_beyond_the_clip_raise_the_bound() -> None:
    """Of norm 2, they halve every step, and with it the pull."""
    steps = {times: Pull(times, 0.0, 0.05, 10, 32, clip=1.0, others=2.0) for times in (1.9, 2.1)}
    assert steps[1.9].run(1500)[-1] < 1e-4
    assert steps[2.1].run(1500)[-1] > 1e-3
