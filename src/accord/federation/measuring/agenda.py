"""The measurements that are still missing, and their cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from accord.federation.measuring.blocks import blocks_at
from accord.federation.measuring.scope import Checkpoint, Scope
from accord.federation.rounds import Round
from accord.fusion.base import Merge
from accord.fusion.named import NamedFusion

FORWARD = 1 / 3  # cost of a forward pass, where a training step costs 1


@dataclass(frozen=True, eq=False)
class Agenda:
    """The fusions that have not been measured yet, for each checkpoint."""

    scope: Scope

    def missing(self, one: Round | None = None) -> list[tuple[Checkpoint, list[str]]]:
        """Checkpoints with the fusions that must be measured, or measured again."""
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
            # Without test images nothing can be measured; a model can still be saved.
            rules = scope.measurable(checkpoint) if len(scope.allocation.split.test) else {}
            names = [name for name in rules if name not in known]
            kept = checkpoint.epoch == scope.final.epoch and scope.keep is not None
            if kept and scope.keep not in names:
                names.append(str(scope.keep))  # a model that is saved is measured again
            if names:
                found.append((checkpoint, names))
        return found

    def possible(self, one: Round | None = None) -> list[tuple[Checkpoint, list[str]]]:
        """The missing measurements whose uploads still exist."""
        return [(at, names) for at, names in self.missing(one) if self._has_uploads(at)]

    def remarks(self) -> list[str]:
        """Remarks on measurements that are impossible, because their uploads were not kept."""
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
        clients = self.scope.clients(at.round)
        return bool(clients) and all(at.upload(client).exists() for client in clients)

    # --- costs, in images passed through the net -----------------------------------------------

    def merge_work(self) -> float:
        """The cost of all missing merges."""
        public = len(self.scope.allocation.split.public)
        rules = [rule for at, names in self.missing() for _, rule in self.merges(at, names)]
        return sum(rule.work(public) for rule in rules)

    def measure_work(self) -> float:
        """The cost of all missing measurements."""
        return sum(
            len(block) * self.passes(at, names)
            for at, names in self.missing()
            for block in blocks_at(self.scope, at)
        )

    def passes(self, at: Checkpoint, names: list[str]) -> float:
        """The cost of measuring `names` on one image; a client that sums has no net."""
        scope = self.scope
        merged = sum(scope.nets(rule, at.round) for _, rule in self.merges(at, names))
        alone = len(scope.clients(at.round)) if scope.trial.recipe.uploads == "nets" else 0
        return (alone + merged) * self.forward

    @property
    def forward(self) -> float:
        """The cost of a forward pass, where a client's work on an image in an epoch costs 1."""
        return FORWARD if self.scope.trial.recipe.uploads == "nets" else 1.0

    def merges(self, at: Checkpoint, names: list[str]) -> Iterator[tuple[NamedFusion, Merge]]:
        """The fusions among `names` that make their own nets, and the one to keep."""
        kept = {self.scope.keep} if at.epoch == self.scope.final.epoch else set()
        for fusion in self.scope.trial.fusions:
            if fusion.label in {*names, *kept} and isinstance(fusion.rule, Merge):
                yield fusion, fusion.rule


def _epochs(numbers: list[int]) -> str:
    """The epochs in words: one epoch, or the first and the last of several."""
    if len(numbers) == 1:
        return f"epoch {numbers[0]}"
    return f"{len(numbers)} checkpoints from epoch {numbers[0]} to {numbers[-1]}"
