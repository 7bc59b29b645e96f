"""Reads runs for a comparison: the rows of their finished trials, with what identifies a trial."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from accord.core.errors import AccordError
from accord.core.names import chosen
from accord.record.record import Record
from accord.record.rows import Row
from accord.report.results import open_record

OWN_IMAGES = ("folder", "npz", "parquet")  # names of formats; their images can be any dataset


@dataclass(frozen=True)
class Measured:
    """All rows of one finished trial and one fusion, in the order of the record."""

    run: str  # label of the run
    rows: list[Row]
    info: dict[str, Any] = field(repr=False)  # trial.json
    axes: tuple[str, ...]

    @property
    def last(self) -> Row:
        return max(self.rows, key=lambda row: int(row["epoch"]))

    @property
    def seed(self) -> int:
        return int(self.last["seed"])

    @property
    def setting(self) -> dict[str, Any]:
        """The values that a line of the table shows, and that make it differ from other lines."""
        keys = ("dataset", "partition", "alpha", "clients", *self.axes, "recipe", "fusion")
        return {key: self.last[key] for key in keys}

    @property
    def dataset(self) -> tuple[str, str]:
        """What must be equal in two trials on the same images."""
        name = str(self.last["dataset"])
        return name, str(self.info.get("images")) if name in OWN_IMAGES else ""

    @property
    def config(self) -> str:
        """Everything that was asked for this training except the seed, as text."""
        asked = dict(self.info.get("config", {}))
        asked = {key: value for key, value in asked.items() if key not in ("fusions", "options")}
        for section, ignored in (("data", ("path",)), ("recipe", ("about", "fusion"))):
            values = asked.get(section, {})
            asked[section] = {key: value for key, value in values.items() if key not in ignored}
        return json.dumps(asked, sort_keys=True)


@dataclass(frozen=True)
class Read:
    """What was read: the measured trials, and the number of unfinished trials left out."""

    measured: list[Measured]
    unfinished: int


def read_runs(paths: Sequence[Path], trial: str | None = None) -> Read:
    """The finished trials of all runs; `trial`: only those that names.chosen chooses."""
    records = {label: open_record(path) for label, path in labelled(paths).items()}
    axes = tuple(dict.fromkeys(axis for record in records.values() for axis in record.axes()))
    measured: list[Measured] = []
    unfinished = 0
    for label, record in records.items():
        found, left_out = _of_run(label, record, axes, trial)
        measured += found
        unfinished += left_out
    return Read(measured, unfinished)


def labelled(paths: Sequence[Path]) -> dict[str, Path]:
    """Label → run. A run that is given twice counts once; equal folder names show their paths."""
    different = {path.resolve(): path for path in paths}
    names = Counter(path.name for path in different)
    return {
        full.name if names[full.name] == 1 else given.as_posix(): given
        for full, given in different.items()
    }


def _of_run(
    label: str, record: Record, axes: tuple[str, ...], trial: str | None
) -> tuple[list[Measured], int]:
    infos = {one.id: one.info() for one in record.trials()}
    finished = [name for name, info in infos.items() if info.get("status") == "finished"]
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in record.rows(axes):
        if row["trial"] in finished:
            groups.setdefault((row["trial"], row["fusion"]), []).append(row)
    if not groups:
        raise AccordError(
            f"{record.path} has no results to compare: none of its {len(infos)} trials is "
            "finished. Run its study to the end first."
        )
    wanted = chosen(infos, trial)
    groups = {key: rows for key, rows in groups.items() if key[0] in wanted}
    if not groups:
        raise AccordError(
            f"{record.path} has no finished trial with {trial!r} in its name. Its finished "
            f"trials are: {', '.join(finished)}."
        )
    found = [Measured(label, rows, infos[name], axes) for (name, _), rows in groups.items()]
    return found, len(wanted.difference(finished))
