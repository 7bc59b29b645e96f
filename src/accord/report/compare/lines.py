"""The lines of a comparison: one per setting, recipe and fusion, with the figures of every seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from accord.core.errors import AccordError
from accord.record.summary import Summary, summarise
from accord.report.compare.runs import Measured


@dataclass(frozen=True)
class Seed:
    """The figures of one seed, unrounded; accuracies are fractions, and None is unknown."""

    run: str
    trial: str
    summary: Summary
    top5: float | None
    seconds: float | None
    server_seconds: float | None
    upload_bytes: int | None
    download_bytes: int | None
    train_accuracy: float | None

    @property
    def gap(self) -> float | None:
        """Training accuracy minus test accuracy, at the last checkpoint."""
        if self.train_accuracy is None:
            return None
        return self.train_accuracy - self.summary.final

    def to_json(self) -> dict[str, Any]:
        found = asdict(self)
        return {**found.pop("summary"), **found, "gap": self.gap}


@dataclass(frozen=True)
class Line:
    """One line; `run` is empty if lines of all runs can be told apart without it."""

    run: str
    setting: dict[str, Any]  # dataset, partition, alpha, clients, grid axes, recipe, fusion
    dataset: tuple[str, str]  # equal for lines on the same images
    dealt: int  # clients of the partition; a fusion may leave some of them out
    rounds: int
    seeds: dict[int, Seed] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name in messages, such as `fedavg:average`, with `@RUN` if runs are told apart."""
        at = f"@{self.run}" if self.run else ""
        return f"{self.recipe}:{self.setting['fusion']}{at}"

    @property
    def recipe(self) -> str:
        return str(self.setting["recipe"])

    @property
    def fusion(self) -> str:
        return str(self.setting["fusion"])

    @property
    def axes(self) -> dict[str, Any]:
        return {key: value for key, value in self.setting.items() if "." in key}

    @property
    def unit(self) -> str:
        return next(iter(self.seeds.values())).summary.unit

    def values(self, key: str) -> list[Any]:
        """A figure of every seed that has it."""
        found = [seed.to_json()[key] for seed in self.seeds.values()]
        return [value for value in found if value is not None]


def lines_of(measured: Sequence[Measured], thresholds: Sequence[float]) -> list[Line]:
    """All lines, in the order of the record.

    Seeds of several runs are in the same line, unless a seed is there twice or the runs were asked
    for different things. Then every line belongs to one run.
    """
    apart = _differ(measured)
    lines: dict[tuple[str, ...], Line] = {}
    for one in measured:
        run = one.run if apart else ""
        key = (run, *_key(one))
        dealt = int(one.info.get("clients") or one.last["clients"])
        rounds = max(row["round"] for row in one.rows)
        line = lines.setdefault(key, Line(run, one.setting, one.dataset, dealt, rounds))
        if one.seed in line.seeds:
            raise AccordError(
                f"the run {one.run} holds two results of {line.recipe}, seed {one.seed}: "
                f"{line.seeds[one.seed].trial}, {one.last['trial']}. Remove one of these folders."
            )
        line.seeds[one.seed] = _seed(one, thresholds)
    return list(lines.values())


def _key(one: Measured) -> tuple[str, ...]:
    return (*one.dataset, *map(str, one.setting.values()))


def _differ(measured: Sequence[Measured]) -> bool:
    """Whether two runs have the same seed of a line, or different settings without a column."""
    configs: dict[tuple[str, ...], str] = {}
    runs: dict[tuple[str, ...], str] = {}
    for one in measured:
        if configs.setdefault(_key(one), one.config) != one.config:
            return True
        if runs.setdefault((*_key(one), str(one.seed)), one.run) != one.run:
            return True
    return False


def _seed(one: Measured, thresholds: Sequence[float]) -> Seed:
    last = one.last
    figures = ("top5", "seconds", "server_seconds", "upload_bytes", "download_bytes")
    return Seed(
        run=one.run,
        trial=last["trial"],
        summary=summarise(one.rows, thresholds),
        **{key: last[key] for key in figures},
        train_accuracy=last["train_accuracy"],
    )
