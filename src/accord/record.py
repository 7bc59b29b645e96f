"""The record: the run directory, with everything a report, a resume or a stranger needs.

RUN/study.yaml                all that was asked, resolved
RUN/data.json                 which images: a hash of their content
RUN/results.csv               one row per trial × checkpoint × fusion, made from the trials
RUN/deals/<key>.json, …       who holds which images: split and partition, shared by recipes
RUN/teachers/<id>/            the server's own nets: a briefing, an upload, all public features
RUN/trials/<id>/trial.json    one trial: config, versions, partition hash, label counts, costs
                events.jsonl  per client and epoch
                measures.json per checkpoint: every fusion, every client
                briefing.safetensors, uploads/, state/ (of unfinished clients)
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from filelock import FileLock, Timeout

from accord.config import keys
from accord.data.settings import DataConfig
from accord.errors import AccordError
from accord.files import read_json, write_atomic, write_json
from accord.joining import HAVE_COLUMNS, joined
from accord.study import Setup, Study, grid_axes
from accord.yamls import to_yaml

# What was measured, and what was found; `trial` names the folder behind a row.
SETTING = (
    "study",
    "dataset",
    "partition",
    "alpha",
    "clients",
    "recipe",
    "fusion",
    "seed",
    "epoch",
)
MEASURED = (
    "accuracy",
    "balanced_accuracy",
    "worst_class",
    "ece",
    "validation_accuracy",
    "personal_accuracy",
    "loss",
    "upload_bytes",
    "download_bytes",
    "exchanges",
    "seconds",
)
COLUMNS = (*SETTING, *MEASURED, "trial")

Row = dict[str, Any]


class TrialFolder:
    """The files of one trial."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.id = path.name
        self.briefing = path / "briefing.safetensors"
        self.events = path / "events.jsonl"

    def upload(self, client: str, epoch: int, last: bool) -> Path:
        """A client's upload after `epoch`; the last one carries no epoch in its name."""
        at = "" if last else f"@{epoch}"
        return self.path / "uploads" / f"client-{client}{at}.safetensors"

    @property
    def total(self) -> Path:
        """The sum of all clients' sums, of a trial whose clients upload such."""
        return self.path / "total.safetensors"

    def state(self, client: str) -> Path:
        return self.path / "state" / f"client-{client}.safetensors"

    def merged(self, fusion: str, epoch: int, index: int) -> Path:
        """A net that a fusion made of the uploads; gone when it is measured."""
        return self.path / "merged" / f"{fusion}@{epoch}" / f"{index}.safetensors"

    def info(self) -> dict[str, Any]:
        path = self.path / "trial.json"
        return _mapping(read_json(path), path) if path.exists() else {}

    def write_info(self, info: dict[str, Any]) -> None:
        write_json(self.path / "trial.json", info)

    def measures(self) -> dict[str, Any]:
        path = self.path / "measures.json"
        if not path.exists():
            return {"checkpoints": []}
        found = _mapping(read_json(path), path)
        if not isinstance(found.get("checkpoints"), list):
            raise _damaged(path, "it has no list 'checkpoints'")
        return found

    def write_measures(self, checkpoints: list[dict[str, Any]]) -> None:
        write_json(self.path / "measures.json", {"checkpoints": checkpoints})

    def append_event(self, event: dict[str, Any]) -> None:
        """For someone who watches; the whole file is written in order when training is over."""
        self.path.mkdir(parents=True, exist_ok=True)
        with self.events.open("a", encoding="utf-8") as file:
            file.write(json.dumps(event) + "\n")

    def write_events(self, events: list[dict[str, Any]]) -> None:
        write_atomic(self.events, "".join(json.dumps(e) + "\n" for e in events).encode())

    def state_of_files(self) -> tuple[int, ...]:
        """Changes when the files behind `rows` do."""
        paths = (self.path / "trial.json", self.path / "measures.json")
        return tuple(path.stat().st_mtime_ns if path.exists() else 0 for path in paths)

    def rows(self, axes: Sequence[str]) -> Iterator[Row]:
        """The trial's lines of results.csv, with a column for each of the grid's `axes`."""
        info = self.info()
        if not info:
            return
        shared = {key: info.get(key) for key in COLUMNS if key in info}
        for checkpoint in self.measures()["checkpoints"]:
            for fusion, measured in checkpoint["fusions"].items():
                metrics = {key: value for key, value in measured.items() if key in COLUMNS}
                yield {
                    **dict.fromkeys(COLUMNS),
                    **shared,
                    **{axis: _coordinate(info, axis) for axis in axes},
                    "fusion": fusion,
                    "epoch": checkpoint["epoch"],
                    "seconds": checkpoint["seconds"],
                    "upload_bytes": checkpoint["upload_bytes"],
                    **metrics,
                    "trial": self.id,
                }


class Record:
    """A run directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._known: dict[str, tuple[object, list[Row]]] = {}

    def trial(self, name: str) -> TrialFolder:
        return TrialFolder(self.path / "trials" / name)

    def teacher(self, name: str) -> TrialFolder:
        return TrialFolder(self.path / "teachers" / name)

    def trials(self) -> list[TrialFolder]:
        folder = self.path / "trials"
        return [TrialFolder(path) for path in sorted(folder.iterdir())] if folder.is_dir() else []

    def deal(self, key: str) -> Path:
        return self.path / "deals" / f"{key}.json"

    @contextmanager
    def lock(self) -> Iterator[None]:
        """One writer at a time; the lock goes with its process, however that ends."""
        self.path.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.path / ".lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise AccordError(
                f"{self.path} is being written by another process. Wait for it, or choose "
                "another folder with --out."
            ) from None
        try:
            yield
        finally:
            lock.release()

    def refuse_another(self, study: Study) -> None:
        """A folder that holds another study's record, or no record at all, is left alone."""
        if not self.path.exists():
            return
        if self._is_record():
            joined(self.asked(), study.resolved, self.path)
        elif any(path.name not in (".lock", "trials") for path in self.path.iterdir()):
            raise AccordError(
                f"{self.path} holds files but is not a run directory: a study.yaml and trials/ "
                "belong there. Choose another folder with --out."
            )

    def _is_record(self) -> bool:
        """A study.yaml alone may be a file of the user's own."""
        return (self.path / "study.yaml").exists() and (self.path / "trials").is_dir()

    def adopt(self, study: Study) -> None:
        """Makes this the record of `study`, besides all that was asked of it before."""
        asked = self._asked_with(study)
        (self.path / "trials").mkdir(exist_ok=True)
        write_atomic(self.path / "study.yaml", to_yaml(asked).encode())

    def _asked_with(self, study: Study) -> dict[str, Any]:
        if not self._is_record():
            return study.resolved
        return joined(self.asked(), study.resolved, self.path)

    def refuse_changed(self, study: Study, data: DataConfig, content: str) -> None:
        """Refuses images that changed since the record was begun: results would mix them."""
        self._refuse_changed(*_images(data, self._asked_with(study)), content)

    def keep_data(self, data: DataConfig, content: str) -> None:
        """Remembers which images these are."""
        self._keep(*_images(data, self.asked()), content)

    def keep_source(self, recipe: str, source: TrialFolder, content: str) -> None:
        """Refuses an earlier trial, behind a recipe's bank, that is no longer what it was."""
        self._keep(f"bank.source of {recipe}", f"the uploads in {source.path}", content)

    def _keep(self, name: str, what: str, content: str) -> None:
        known = self._refuse_changed(name, what, content)
        write_json(self.path / "data.json", {**known, name: content})

    def _refuse_changed(self, name: str, what: str, content: str) -> dict[str, Any]:
        """All that is known of images and sources, if this is not among them as another one."""
        path = self.path / "data.json"
        known = _mapping(read_json(path), path) if path.exists() else {}
        if known.get(name, content) != content:
            raise AccordError(
                f"{what} are not those this record was begun with. Put those back, or run into "
                "another folder with --out."
            )
        return known

    def asked(self) -> dict[str, Any]:
        """All that was ever asked of this record, as one study."""
        path = self.path / "study.yaml"
        if not self._is_record():
            raise AccordError(f"{self.path} is not a run directory: no study.yaml with trials.")
        try:
            found = yaml.safe_load(path.read_text(encoding="utf-8"))
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise _damaged(path, " ".join(str(error).split())) from None
        if not isinstance(found, dict) or not isinstance(found.get("recipes"), list):
            raise _damaged(path, "it is not a resolved study")
        if not all(isinstance(found.get(section), dict) for section in keys(Setup)):
            raise _damaged(path, "it is not a resolved study")
        return found

    def rows(self) -> list[Row]:
        """All trials' rows; a trial whose files have not changed is not read again."""
        axes = [axis for axis in grid_axes(self.asked()) if axis not in HAVE_COLUMNS]
        rows = []
        for trial in self.trials():
            state = (trial.state_of_files(), tuple(axes))
            if trial.id not in self._known or self._known[trial.id][0] != state:
                try:
                    self._known[trial.id] = (state, list(trial.rows(axes)))
                except (KeyError, TypeError, AttributeError) as error:
                    raise _damaged(trial.path / "measures.json or trial.json", error) from None
            rows += self._known[trial.id][1]
        return rows

    def write_results(self) -> list[Row]:
        """results.csv, made anew from every trial's measures."""
        rows = self.rows()
        extra = [key for row in rows for key in row if key not in COLUMNS]
        text = io.StringIO()
        writer = csv.DictWriter(text, [*COLUMNS, *dict.fromkeys(extra)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        write_atomic(self.path / "results.csv", text.getvalue().encode())
        return rows


def _coordinate(info: dict[str, Any], axis: str) -> Any:
    """Where a trial stands on an axis of the grid; a pooled one is on none of the partition's."""
    section, key = axis.split(".")
    if section == "partition" and info["partition"] == "pooled":
        return None
    return info["config"][section].get(key)


def _images(data: DataConfig, asked: dict[str, Any]) -> tuple[str, str]:
    """A name in data.json, and what people call it.

    A file may move, unless paths are an axis of the grid: then each path is a source.
    """
    source = data.path if "data.path" in grid_axes(asked) else data.name
    return f"{source} ({data.image})", f"the images of {data.path or data.name}"


def _mapping(value: Any, path: Path) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _damaged(path, f"expected a mapping, found {type(value).__name__}")
    return value


def _damaged(path: Path, why: object) -> AccordError:
    return AccordError(
        f"{path} is damaged: {why}. Restore it from a copy, or run into another folder with --out."
    )
