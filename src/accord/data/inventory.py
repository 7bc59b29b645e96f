"""Which datasets are there, and which files the others need: the list of `accord data`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from accord.core.errors import AccordError
from accord.data.download import DOWNLOADS
from accord.data.known import DATASETS, Known
from accord.data.locate import advice, roots_of, search


@dataclass(frozen=True)
class Availability:
    """An entry in the list of `accord data`: where a dataset is, or which files are needed."""

    name: str
    found: bool
    where: str
    note: str


def inventory(root: Path | None = None) -> list[Availability]:
    """Every known dataset and whether it was found. Only file names are checked."""
    return [_availability(DATASETS.get(name), root) for name in DATASETS.names()]


def _availability(known: Known, root: Path | None) -> Availability:
    if known.kind == "builtin":
        return Availability(known.name, True, "inside scikit-learn", "needs no files")
    if known.kind == "generic":
        return Availability(known.name, False, f"set `data.path`: {known.needs}", "your own images")
    searched = roots_of(known, root)
    try:
        sources = (search(known, folder) for folder in searched)
        source = next((source for source in sources if source is not None), None)
    except AccordError as error:
        return Availability(known.name, False, advice(known, searched[0]), str(error))
    if source is not None:
        return Availability(known.name, True, str(source.where), source.kind)
    note = "can be downloaded" if known.name in DOWNLOADS else ""
    return Availability(known.name, False, advice(known, searched[0]), note)
