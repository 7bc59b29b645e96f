"""What the record of a run says about its trials, for the report and for the diagnosis.

A record may be unfinished, damaged or of an older format. Reading it never fails for such a reason:
what can be read is there, and `missing` says in sentences what is not. Only a folder that is no
record at all is refused.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from accord.core.errors import AccordError
from accord.core.names import shown
from accord.core.reading import refuse_special
from accord.core.text import one_line
from accord.record.folders import TrialFolder
from accord.record.record import Record
from accord.record.rows import Row, rows_of
from accord.report.compare.runs import labelled
from accord.report.dials import Event, clients_of, events_of
from accord.report.results import open_record

# What reading JSON of unknown content can raise, besides AccordError.
ODD = (
    *(AccordError, OSError, KeyError, TypeError, ValueError, AttributeError, RecursionError),
    OverflowError,  # int(math.inf)
)

# What opening a file of tensors can raise.
UNREAD = (AccordError, OSError, SafetensorError, KeyError, ValueError, RuntimeError)

Series = dict[str, dict[int, float]]  # client → epoch → value


@dataclass(frozen=True)
class Evidence:
    """One trial: what its files say."""

    run: str  # label of its run
    folder: TrialFolder
    info: dict[str, Any] = field(repr=False)  # trial.json
    checkpoints: list[dict[str, Any]] = field(repr=False)  # of measures.json, in order
    events: list[Event] = field(repr=False)  # one per client and epoch
    rows: list[Row] = field(repr=False)

    @property
    def id(self) -> str:
        return self.folder.id

    @property
    def recipe(self) -> str:
        return str(self.info.get("recipe", "unknown"))

    @property
    def seed(self) -> int | None:
        found = self.info.get("seed")
        return found if isinstance(found, int) else None

    @property
    def alpha(self) -> float | None:
        found = self.info.get("alpha")
        return float(found) if isinstance(found, int | float) else None

    @property
    def status(self) -> str:
        return str(self.info.get("status", "unknown"))

    @property
    def config(self) -> dict[str, Any]:
        """Everything that was asked for this trial: sections of the study, `recipe`, `fusions`."""
        return _mapping(self.info.get("config"))

    @property
    def classes(self) -> list[str]:
        return [str(name) for name in self.info.get("classes") or ()]

    @property
    def clients(self) -> list[str]:
        """The names of the clients, in the order of the partition."""
        return [str(name) for name in _mapping(self.info.get("client_files"))]

    @property
    def label_counts(self) -> list[list[int]]:
        """Images of each class (columns) at each client (rows); empty if unknown."""
        found = self.info.get("label_counts")
        return found if isinstance(found, list) else []

    @property
    def pooled(self) -> bool:
        """Whether all images are in one place."""
        return bool(_mapping(self.config.get("recipe")).get("pooled"))

    @property
    def final(self) -> dict[str, Any] | None:
        """The last measured checkpoint."""
        return self.checkpoints[-1] if self.checkpoints else None

    def accuracies(self, fusion: str) -> dict[int, float]:
        """Epoch → test accuracy of a fusion."""
        found = {
            c["epoch"]: c["fusions"][fusion] for c in self.checkpoints if fusion in c["fusions"]
        }
        return {epoch: float(one["accuracy"]) for epoch, one in found.items()}

    def series(self, key: str) -> Series:
        """The values of a dial, such as `lambda_raw`: client → epoch → value, where it is known.

        With several alignment terms, a dial's name begins with that of its term; see `dials`.
        """
        found: Series = {}
        for event in self.events:
            value = event.get(key)
            if isinstance(value, int | float) and math.isfinite(value):
                found.setdefault(str(event["client"]), {})[int(event["epoch"])] = float(value)
        order = clients_of(self.folder, self.events)
        return {name: dict(sorted(found[name].items())) for name in order if name in found}

    def dials(self, key: str) -> list[str]:
        """The names of the dials of this kind: `lambda_raw` also means `anchors_lambda_raw`."""
        names = dict.fromkeys(name for event in self.events for name in event)
        return [name for name in names if name == key or name.endswith(f"_{key}")]

    def tensors(self, client: str, wanted: Sequence[str]) -> dict[str, Any]:
        """Some tensors of a client's last upload, by name; a name may end in `*`.

        Only these tensors are read. The result is empty if the upload is not there any more.
        """
        try:
            with self._upload(client) as file:
                names = [n for n in file.keys() if any(_matches(n, one) for one in wanted)]  # noqa: SIM118
                return {name: file.get_tensor(name) for name in names}
        except UNREAD:
            return {}

    def damaged_uploads(self, clients: Sequence[str]) -> list[str]:
        """Sentences about last uploads that are there, but cannot be opened."""
        said = []
        for client in clients:
            try:
                with self._upload(client):
                    pass
            except FileNotFoundError:
                continue
            except UNREAD as error:
                said.append(
                    f"The upload of client {shown(client)} in {shown(self.id)} cannot be read: "
                    f"{_why(error)}"
                )
        return said

    def _upload(self, client: str) -> Any:
        path = self.folder.last_round.upload(client, 0, last=True)
        refuse_special(path)
        return safe_open(path, framework="pt")


@dataclass(frozen=True)
class RunEvidence:
    """A run: its trials, and sentences about what is missing."""

    label: str
    record: Record
    asked: dict[str, Any] = field(repr=False)  # the resolved study; empty if it cannot be read
    trials: list[Evidence]
    missing: list[str]

    @cached_property
    def rows(self) -> list[Row]:
        return [row for trial in self.trials for row in trial.rows]


def read_evidence(paths: Sequence[Path]) -> list[RunEvidence]:
    """The evidence of all runs; a run that is given twice counts once."""
    return [_read(label, path) for label, path in labelled(paths).items()]


def _read(label: str, path: Path) -> RunEvidence:
    record = open_record(path)
    if not (path / "trials").is_dir():
        raise AccordError(
            f"{path} is not a run directory: it has no study.yaml with trials/. Name the folder "
            "of a run."
        )
    missing: list[str] = []
    asked: dict[str, Any] = {}
    axes: list[str] = []
    try:
        asked, axes = record.asked(), record.axes()
    except ODD as error:
        missing.append(f"The study of {shown(label)} cannot be read: {_why(error)}")
    trials = []
    for folder in record.trials():
        found = _trial(label, folder, axes, missing)
        if found is not None:
            trials.append(found)
    _tell_unfinished(label, trials, missing)
    return RunEvidence(label, record, asked, trials, missing)


def _trial(
    label: str, folder: TrialFolder, axes: Sequence[str], missing: list[str]
) -> Evidence | None:
    """What can be read of a trial; None if that is nothing."""
    try:
        info = folder.info()
    except ODD as error:
        missing.append(f"The trial {shown(folder.id)} cannot be read: {_why(error)}")
        return None
    if not info:
        missing.append(f"The trial {shown(folder.id)} has not begun, or its trial.json is missing.")
        return None
    checkpoints: list[dict[str, Any]] = []
    rows: list[Row] = []
    events: list[Event] = []
    try:
        checkpoints = sorted(folder.measures()["checkpoints"], key=lambda one: int(one["epoch"]))
        rows = list(rows_of(folder, axes))
        _check(rows)
    except ODD as error:
        checkpoints, rows = [], []
        missing.append(f"The results of {shown(folder.id)} cannot be read: {_why(error)}")
    try:
        events = events_of(folder)
    except ODD as error:
        missing.append(f"The telemetry of {shown(folder.id)} cannot be read: {_why(error)}")
    return Evidence(label, folder, info, checkpoints, events, rows)


def _check(rows: Sequence[Row]) -> None:
    """Refuses accuracies that are no numbers, so that later code can rely on them."""
    for row in rows:
        if not isinstance(row["accuracy"], int | float) or not 0 <= row["accuracy"] <= 1:
            raise ValueError(f"expected an accuracy between 0 and 1, found {row['accuracy']!r}")


def _tell_unfinished(label: str, trials: Sequence[Evidence], missing: list[str]) -> None:
    counts = Counter(trial.status for trial in trials if trial.status != "finished")
    for status, count in counts.items():
        are = "trial is" if count == 1 else "trials are"
        missing.append(f"{count} {are} {one_line(status, 20)} in {shown(label)}.")
    if not any(trial.rows for trial in trials):
        missing.append(f"No trial of {shown(label)} has results yet.")


def _why(error: BaseException) -> str:
    text = one_line(f"{error}", 300) or type(error).__name__
    return text if isinstance(error, AccordError) else f"{type(error).__name__}: {text}."


def _matches(name: str, wanted: str) -> bool:
    return name.startswith(wanted[:-1]) if wanted.endswith("*") else name == wanted


def _mapping(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}
