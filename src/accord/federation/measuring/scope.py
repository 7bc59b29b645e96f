"""The scope of measuring: clients, checkpoints and fusions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from accord.data.allocation import Allocation
from accord.federation.membership import EVERYBODY, Membership
from accord.federation.rounds import Round
from accord.fusion.base import Fusion, Merge
from accord.record.folders import TrialFolder
from accord.study.study import Trial


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """An epoch of a round after which the would-be fused model is measured."""

    round: Round
    epoch: int

    @property
    def last(self) -> bool:
        return self.epoch == self.round.last_epoch

    def upload(self, client: str) -> Path:
        return self.round.upload(client, self.epoch)


@dataclass(frozen=True, eq=False)
class Scope:
    """A trial, its rounds, and the clients that take part in its fusions."""

    trial: Trial
    folder: TrialFolder
    allocation: Allocation
    rounds: tuple[Round, ...]
    membership: Membership = EVERYBODY
    keep: str | None = None  # the fusion whose nets are kept afterwards
    before: tuple[Round, ...] = ()  # the rounds of the trial whose result this one begins with

    @cached_property
    def rules(self) -> dict[str, Fusion]:
        """Name in the results → rule."""
        return {fusion.label: fusion.rule for fusion in self.trial.fusions}

    def measurable(self, at: Checkpoint) -> dict[str, Fusion]:
        """The rules that can be measured: some need the server's state after a whole round."""
        return {
            name: rule for name, rule in self.rules.items() if at.last or not after_advance(rule)
        }

    @property
    def uses_final_state(self) -> bool:
        """Whether a rule needs the server's state after the last round."""
        return any(map(after_advance, self.rules.values()))

    def checkpoints(self) -> Iterator[Checkpoint]:
        """All checkpoints of all rounds that are measured, in order."""
        for one in self.rounds:
            if one is self.rounds[-1] or self.trial.method.measured(one.number):
                for epoch in one.epochs:
                    yield Checkpoint(one, epoch)

    @property
    def final(self) -> Checkpoint:
        return Checkpoint(self.rounds[-1], self.rounds[-1].last_epoch)

    def clients(self, one: Round) -> tuple[str, ...]:
        """The clients whose uploads are fused."""
        return tuple(name for name in one.answered if name not in self.membership.without)

    def stayed(self, one: Round) -> list[str]:
        return [name for name in self.clients(one) if name not in self.membership.removed]

    def homes(self, one: Round) -> tuple[int, ...]:
        """The site of each client whose upload is fused; none if all images are in one place."""
        if self.trial.recipe.pooled:
            return ()
        return tuple(self.allocation.site_names.index(name) for name in self.clients(one))

    def took_part(self, one: Round) -> set[str]:
        """The sites whose images the model of a round was made from, in this round or before."""
        if self.trial.recipe.pooled:
            return self._pooled()
        before = {name for o in self.rounds if o.number < one.number for name in o.answered}
        return {*before, *self.stayed(one), *self.membership.added}

    def _pooled(self) -> set[str]:
        """The sites whose images are in the one place of a trial on pooled images."""
        allocation = self.allocation
        clients = range(len(allocation.partition.names))
        found = {int(site) for client in clients for site in np.unique(allocation.origins(client))}
        return {allocation.site_names[site] for site in found if site >= 0}

    def fused(self) -> tuple[str, ...]:
        """The clients of the final result: those that stayed, and those that joined."""
        return (*self.stayed(self.rounds[-1]), *self.membership.added)

    def left(self) -> list[str]:
        """The clients that were left out or removed."""
        return [*self.membership.without, *self.membership.removed]

    def nets(self, rule: Merge, one: Round) -> int:
        """The number of nets that a fusion makes from the uploads of a round."""
        return len(self.clients(one)) if rule.personal else 1


def after_advance(rule: Fusion) -> bool:
    """Whether a rule uses the state that the method has made of a round's uploads."""
    return isinstance(rule, Merge) and rule.after_advance
