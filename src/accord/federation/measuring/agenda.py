"""What is still to be measured, and what that will take."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from accord.federation.measuring.scope import Checkpoint, Scope
from accord.federation.rounds import Round
from accord.fusion.base import Merge
from accord.fusion.named import NamedFusion

FORWARD = 1 / 3  # what a forward pass costs, in training steps


@dataclass(frozen=True, eq=False)
class Agenda:
    """Fusions without a measure, checkpoint by checkpoint."""

    scope: Scope

    def missing(self, one: Round | None = None) -> list[tuple[Checkpoint, list[str]]]:
        """Checkpoints with the fusions that have no measure yet, or one to be taken again."""
        scope = self.scope
        measured = {
            checkpoint["epoch"]: checkpoint["fusions"]
            for checkpoint in scope.folder.measures()["checkpoints"]
        }
        found = []
        for checkpoint in scope.checkpoints():
            if one is not None and checkpoint.round is not one:
                continue
            known = measured.get(checkpoint.epoch, {})
            names = [name for name in scope.rules if name not in known]
            kept = checkpoint.epoch == scope.final.epoch and scope.keep is not None
            if kept and scope.keep not in names:
                names.append(str(scope.keep))  # what is kept is measured as it is now
            if names:
                found.append((checkpoint, names))
        return found

    def possible(self, one: Round | None = None) -> list[tuple[Checkpoint, list[str]]]:
        """What is missing and still has its uploads."""
        return [(at, names) for at, names in self.missing(one) if self._has_uploads(at)]

    def remarks(self) -> list[str]:
        """What can no longer be measured: uploads of earlier checkpoints are not kept."""
        lost: dict[str, list[int]] = {}
        for at, names in self.missing():
            if not self._has_uploads(at):
                lost.setdefault(", ".join(names), []).append(at.epoch)
        return [
            f"{self.scope.folder.id}: {names} cannot be measured at {_epochs(epochs)}, because the "
            "uploads of that time were not kept (set keep_checkpoints: true before training)."
            for names, epochs in lost.items()
        ]

    def _has_uploads(self, at: Checkpoint) -> bool:
        return all(at.upload(client).exists() for client in self.scope.clients(at.round))

    # --- costs, in images passed through the net -----------------------------------------------

    def merge_work(self) -> float:
        """Of all merges yet to do."""
        public = len(self.scope.allocation.split.public)
        rules = [rule for at, names in self.missing() for _, rule in self.merges(at, names)]
        return sum(rule.work(public) for rule in rules)

    def measure_work(self) -> float:
        """Of everything yet to measure."""
        allocation = self.scope.allocation
        images = len(allocation.part("test")) + len(allocation.part("validation"))
        return sum(images * self.passes(at, names) for at, names in self.missing())

    def passes(self, at: Checkpoint, names: list[str]) -> float:
        """What an image costs on which `names` are measured; a client who sums has no net."""
        scope = self.scope
        merged = sum(scope.nets(rule, at.round) for _, rule in self.merges(at, names))
        alone = len(scope.clients(at.round)) if scope.trial.recipe.uploads == "nets" else 0
        return (alone + merged) * self.forward

    @property
    def forward(self) -> float:
        """A pass through one net, where a client's work on an image is 1 for each epoch."""
        return FORWARD if self.scope.trial.recipe.uploads == "nets" else 1.0

    def merges(self, at: Checkpoint, names: list[str]) -> Iterator[tuple[NamedFusion, Merge]]:
        """The rules among `names` that make nets of their own, and the one to keep."""
        kept = {self.scope.keep} if at.epoch == self.scope.final.epoch else set()
        for fusion in self.scope.trial.fusions:
            if fusion.label in {*names, *kept} and isinstance(fusion.rule, Merge):
                yield fusion, fusion.rule


def _epochs(numbers: list[int]) -> str:
    """One epoch, or the first and the last of several."""
    if len(numbers) == 1:
        return f"epoch {numbers[0]}"
    return f"{len(numbers)} checkpoints from epoch {numbers[0]} to {numbers[-1]}"
