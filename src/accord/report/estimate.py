"""Estimates the cost of a study from a rehearsal of each kind of its work (`--dry-run`)."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
from rich.console import RenderableType

from accord.data.allocation import Allocation
from accord.data.images import Images
from accord.engines.local import one_worker, workers_for
from accord.federation.execute import in_this_process
from accord.federation.plan import Plan
from accord.federation.rehearsal.rehearsal import Rehearsal
from accord.record.record import Record
from accord.report.costs import Cost, costs_of
from accord.report.durations import spoken
from accord.report.tables import plain_table
from accord.report.terminal import tell
from accord.study.study import Study

AROUND = 2**16  # bytes of a file that the system maps when a process reads one byte of it


@dataclass(frozen=True)
class Estimate:
    costs: list[Cost]
    workers: int
    memory: int  # bytes of one worker

    @property
    def core_seconds(self) -> float:
        """The time of all work on one core."""
        return sum(cost.seconds for cost in self.costs)

    @property
    def wall_seconds(self) -> float:
        """The time until the end, if the workers have a core each.

        It is the core time divided by the workers, but at least the longest time of one client.
        """
        longest = max((cost.longest for cost in self.costs), default=0.0)
        return max(self.core_seconds / self.workers, longest)

    def lines(self) -> list[RenderableType]:
        """A table of the trials, and the totals."""
        several = any(cost.rounds > 1 for cost in self.costs)
        rounds = ["rounds"] if several else []
        numbers = (*rounds, "clients", "images each", "core time", "MB up", "MB down")
        rows = [cost.cells(several) for cost in self.costs]
        title = f"trials: {sum(cost.is_trial for cost in self.costs)}"
        memory = self.memory * self.workers
        scarce = " (more than this machine has)" if memory > psutil.virtual_memory().total else ""
        disk = sum(cost.disk_bytes for cost in self.costs)
        workers = f"{self.workers} worker{'s' if self.workers > 1 else ''}"
        return [
            plain_table(("trial", *numbers, ""), rows, numbers=numbers, title=title),
            f"core time: about {spoken(self.core_seconds)} of one core, for all work together",
            f"wall time if idle: about {spoken(self.wall_seconds)} with {workers}, if the machine "
            "does nothing else",
            f"memory: about {self.memory / 1e9:.1f} GB per worker, "
            f"{memory / 1e9:.1f} GB in all{scarce}",
            f"record: about {disk / 1e6:.0f} MB",
        ]


def estimate(study: Study, record: Record, data_root: Path | None, workers: int | None) -> Estimate:
    """Rehearses every kind of work; finished work in `record` costs nothing."""
    record.refuse_another(study)
    plan = Plan(study, data_root, tell, remembered=record.roots())
    plan.check()
    runs, count = plan.runs(record), workers_for(workers)
    with tempfile.TemporaryDirectory(prefix="accord-rehearsal-") as folder:
        # As in the study, a single worker is this process itself.
        engine = one_worker() if count > 1 else in_this_process()
        try:
            rehearsal = Rehearsal(Record(Path(folder)), engine, tell)
            rehearsal.measure(runs)
        finally:
            engine.close()
    memory = rehearsal.memory + mapped_bytes([run.allocation for run in runs])
    return Estimate(costs_of(runs, rehearsal), count, memory)


def mapped_bytes(allocations: Sequence[Allocation]) -> int:
    """The bytes of images that a worker has mapped into its memory after it has seen all of them.

    The images are read from files that all workers share, but they count for every worker. The
    system maps more of a file than is read. A rehearsal sees few images.
    """
    files: dict[str, int] = {}
    for allocation in allocations:
        split, dataset = allocation.split, allocation.dataset
        held = {
            "train": (dataset.train, len(split.train) + len(split.public) + len(split.validation)),
            "test": (split.test_part(dataset), len(split.test)),
        }
        for part, (images, rows) in held.items():
            key = f"{dataset.folder} {part}"
            files[key] = max(files.get(key, 0), _mapped(images, rows))
    return sum(files.values())


def _mapped(part: Images, rows: int) -> int:
    return min(part.images.nbytes, rows * max(AROUND, part.images[:1].nbytes))
