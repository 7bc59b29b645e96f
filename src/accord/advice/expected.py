"""The expected cost of one advised recipe, from the same estimate as `accord run --dry-run`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from accord.advice.choices import Choice
from accord.advice.gather import first_cell
from accord.record.record import Record
from accord.report.durations import spoken
from accord.report.estimate import estimate
from accord.study.study import check_study

Spec = dict[str, Any]


@dataclass(frozen=True)
class Expected:
    """The cost of one seed of one recipe on this machine."""

    seconds: float  # with all workers
    core_seconds: float
    megabytes_up: float  # of one client, in all rounds
    megabytes_down: float
    gigabytes: float  # memory of one worker

    def line(self) -> str:
        return (
            f"{spoken(self.seconds)} for one seed on this machine ({spoken(self.core_seconds)} on "
            f"one core), {self.megabytes_up:.1f} MB up and {self.megabytes_down:.1f} MB down per "
            f"client, {self.gigabytes:.1f} GB of memory per worker"
        )

    def to_json(self) -> Spec:
        return asdict(self)


def expect(study: Spec, choice: Choice, data_root: Path | None, workers: int | None) -> Expected:
    """Times a few steps of the recipe alone, with one seed."""
    alone = {**first_cell(study), "recipes": [choice.entry], "seeds": [0], "references": False}
    with TemporaryDirectory() as folder:
        record = Record(Path(folder) / "record")
        found = estimate(check_study(alone, Path()), record, data_root, workers)
    clients = [cost for cost in found.costs if cost.is_trial]
    count = max(len(cost.sizes) for cost in clients)
    return Expected(
        seconds=found.wall_seconds,
        core_seconds=found.core_seconds,
        megabytes_up=sum(cost.upload_bytes for cost in clients) / count / 1e6,
        megabytes_down=sum(cost.download_bytes for cost in clients) / count / 1e6,
        gigabytes=found.memory / 1e9,
    )
