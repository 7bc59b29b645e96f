"""Plans the merge and measure jobs of a trial; `Tallies` adds up their answers."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

from accord.engines.base import Job
from accord.federation.measuring.agenda import Agenda
from accord.federation.measuring.blocks import blocks_at
from accord.federation.measuring.scope import Checkpoint, Scope
from accord.federation.measuring.tallies import Tallies
from accord.federation.rounds import Round
from accord.federation.tasks import Task
from accord.federation.tasks.measure import MeasureBlock, Merged
from accord.federation.tasks.merge import MergeUploads
from accord.fusion.base import Merge, Vote
from accord.fusion.named import NamedFusion


class Measuring:
    """The measuring of one trial, round by round."""

    def __init__(self, scope: Scope, place: str, key: str, device: str) -> None:
        self.scope, self.agenda, self.tallies = scope, Agenda(scope), Tallies(scope)
        self.place, self.key, self.device = place, key, device

    def merge_jobs(self, one: Round) -> Iterator[Job[Task]]:
        """One job for every fusion that makes new nets from the uploads."""
        scope = self.scope
        for at, names in self.agenda.possible(one):
            for fusion, rule in self.agenda.merges(at, names):
                task = MergeUploads(
                    **self._at(at),
                    label=fusion.label,
                    fusion=fusion.spec,
                    nets=scope.nets(rule, at.round),
                    keep_total=not scope.membership.without,
                    joined=tuple(str(path) for path in scope.membership.joined),
                    removed=scope.membership.removed,
                )
                yield Job(task, rule.work(len(scope.allocation.split.public)))

    def measure_jobs(self, one: Round) -> Iterator[Job[Task]]:
        """One job for every block of images, for all fusions and clients."""
        for at, names in self.agenda.possible(one):
            passes, rules = self.agenda.passes(at, names), self._rules(at, names)
            asked = {**self._at(at), **rules, "sites": self.scope.homes(at.round)}
            for block in blocks_at(self.scope, at):
                yield Job(MeasureBlock(**asked, **vars(block)), len(block) * passes)

    def _at(self, at: Checkpoint) -> dict[str, Any]:
        return {
            "place": self.place,
            "allocation": self.key,
            "device": self.device,
            "round": at.round.number,
            "epoch": at.epoch,
            "last": at.last,
            "clients": self.scope.clients(at.round),
        }

    def _rules(self, at: Checkpoint, names: list[str]) -> dict[str, Any]:
        """The rules of a task: those that vote, and those with their own nets."""
        votes, merged = {}, {}
        for fusion in self.scope.trial.fusions:
            if fusion.label not in names:
                continue
            if isinstance(fusion.rule, Vote):
                votes[fusion.label] = fusion.spec
            elif isinstance(fusion.rule, Merge):
                nets = self.scope.nets(fusion.rule, at.round)
                merged[fusion.label] = Merged(fusion=fusion.spec, nets=nets)
        return {"votes": votes, "merged": merged}

    def write(self) -> bool:
        """Adds the new measurements to measures.json and removes the merged nets.

        Returns whether there were any.
        """
        new = bool(self.tallies.blocks)
        self.tallies.write()
        if self.scope.keep is None:
            self.forget_merged()
        return new

    def nets(self, fusion: NamedFusion) -> list[str]:
        """The files of the nets that a fusion uses, after the last epoch."""
        at = self.scope.final
        if not isinstance(fusion.rule, Merge):
            return [str(at.upload(client)) for client in self.scope.clients(at.round)]
        count = self.scope.nets(fusion.rule, at.round)
        return [str(self.scope.folder.merged(fusion.label, at.epoch, i)) for i in range(count)]

    def forget_merged(self) -> None:
        shutil.rmtree(self.scope.folder.path / "merged", ignore_errors=True)
