"""The record: the run directory, with everything a report, a resume or a stranger needs.

RUN/study.yaml                what was asked, resolved
RUN/results.csv               one row per trial × checkpoint × fusion, made from the trials
RUN/deals/<key>.json, …       who holds which images: split and partition, shared by recipes
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
from pathlib import Path
from typing import Any

import yaml
from filelock import FileLock, Timeout

from accord.errors import AccordError
from accord.files import read_json, write_atomic, write_json
from accord.study import Study, grid_axes, takes_list
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
    "loss",
    "upload_bytes",
    "download_bytes",
    "seconds",
)
COLUMNS = (*SETTING, *MEASURED, "trial")
HAVE_COLUMNS = ("data.name", "partition.scheme", "partition.alpha", "partition.clients")

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

    def state(self, client: str) -> Path:
        return self.path / "state" / f"client-{client}.safetensors"

    def merged(self, fusion: str, epoch: int) -> Path:
        return self.path / "merged" / f"{fusion}@{epoch}.safetensors"

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
            raise AccordError(f"{path} is damaged: it has no list 'checkpoints'. Delete it.")
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

    def trials(self) -> list[TrialFolder]:
        folder = self.path / "trials"
        return [TrialFolder(path) for path in sorted(folder.iterdir())] if folder.is_dir() else []

    def deal(self, key: str) -> Path:
        return self.path / "deals" / f"{key}.json"

    def lock(self) -> FileLock:
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
        return lock

    def refuse_another(self, study: Study) -> None:
        """A folder that holds another study's record, or no record at all, is left alone."""
        if self._is_record():
            _refuse_another(self.asked(), study.resolved, self.path)
        elif any(path.name not in (".lock", "trials") for path in self.path.iterdir()):
            raise AccordError(
                f"{self.path} holds files but is not a run directory. Choose another folder with "
                "--out."
            )

    def _is_record(self) -> bool:
        """A study.yaml alone may be a file of the user's own."""
        return (self.path / "study.yaml").exists() and (self.path / "trials").is_dir()

    def adopt(self, study: Study) -> None:
        """Makes this the record of `study`."""
        (self.path / "trials").mkdir(exist_ok=True)
        write_atomic(self.path / "study.yaml", to_yaml(study.resolved).encode())

    def asked(self) -> dict[str, Any]:
        """The study as it was last asked."""
        path = self.path / "study.yaml"
        if not self._is_record():
            raise AccordError(f"{self.path} is not a run directory: no study.yaml with trials.")
        try:
            found = yaml.safe_load(path.read_text(encoding="utf-8"))
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise AccordError(
                f"{path} is damaged: {' '.join(str(error).split())}. Restore it, or run into "
                "another folder with --out."
            ) from None
        return _mapping(found, path)

    def rows(self) -> list[Row]:
        """All trials' rows; a trial whose files have not changed is not read again."""
        axes = [axis for axis in grid_axes(self.asked()) if axis not in HAVE_COLUMNS]
        rows = []
        for trial in self.trials():
            state = (trial.state_of_files(), tuple(axes))
            if trial.id not in self._known or self._known[trial.id][0] != state:
                self._known[trial.id] = (state, list(trial.rows(axes)))
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


def _mapping(value: Any, path: Path) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise AccordError(f"{path} is damaged: expected a mapping, found {type(value).__name__}.")
    return value


# Keys that may change freely: they only add trials or rows, each with a column of its own.
FREE = ("seeds", "recipes", "fusions", "bounds", "device", "keep_checkpoints")
FREE_IN_SECTION = ("data.path", "partition.alpha", "partition.clients")


def _refuse_another(old: dict[str, Any], new: dict[str, Any], path: Path) -> None:
    """The same study may ask for more, never for something else under the same rows."""
    _refuse_changed_recipes(old.get("recipes", []), new["recipes"], path)
    for key in (key for key in new if key not in FREE):
        pairs: list[tuple[str, Any, Any]] = [(key, old.get(key), new[key])]
        if isinstance(new[key], dict) and isinstance(old.get(key), dict):
            pairs = [
                (f"{key}.{inner}", old[key].get(inner), value) for inner, value in new[key].items()
            ]
        for name, before, now in pairs:
            if name in FREE_IN_SECTION or before == now:
                continue
            if not takes_list(name) and _grew(before, now):
                continue
            raise AccordError(
                f"{path} was made by another study: {name} was {before!r}, now it is {now!r}. "
                "Choose another folder with --out, or ask for both as a grid axis."
            )


def _refuse_changed_recipes(old: list[Any], new: list[Any], path: Path) -> None:
    """Two recipes of one name would share their rows."""
    before = {recipe.get("name"): recipe for recipe in old}
    for recipe in new:
        known = before.get(recipe["name"], recipe)
        changed = [key for key in recipe if key != "about" and known.get(key) != recipe[key]]
        if changed:
            raise AccordError(
                f"{path} holds recipe {recipe['name']!r} with another {changed[0]}: "
                f"{known.get(changed[0])!r}, now {recipe[changed[0]]!r}. Give the changed one a "
                "name of its own with `as: …`."
            )


def _grew(before: Any, now: Any) -> bool:
    """Whether a value became an axis that still holds it, or an axis got longer."""
    olds = before if isinstance(before, list) else [before]
    return isinstance(now, list) and all(value in now for value in olds)
