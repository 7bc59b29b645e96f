"""Reads a trial's files for the live view: its status, its title and its last accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from accord.core.text import one_line
from accord.record.folders import TrialFolder
from accord.report.evidence import ODD
from accord.report.live.picture import Point, Status, TrialLine
from accord.study.coordinates import ALPHA, axis_labels, coordinate, depends_on, short

STATUSES: tuple[Status, ...] = ("running", "finished", "failed")


class Lines:
    """The lines of trials. A trial is read again only if its files have changed."""

    def __init__(self, axes: Sequence[str]) -> None:
        self.axes = axes
        self.infos: dict[str, dict[str, Any]] = {}  # trial.json of each trial that could be read
        self.problems: dict[str, str] = {}  # trial → a sentence about what cannot be read
        self._known: dict[str, tuple[object, TrialLine | None]] = {}

    def line(self, folder: TrialFolder) -> TrialLine | None:
        """The line of a trial; None if it has not begun or cannot be read."""
        try:
            state = folder.state_of_files()
            if folder.id not in self._known or self._known[folder.id][0] != state:
                self.problems.pop(folder.id, None)
                self._known[folder.id] = (state, self._read(folder, max(state) / 1e9))
        except ODD as error:
            self._known.pop(folder.id, None)
            self.problems[folder.id] = f"{folder.id} cannot be read: {one_line(str(error), 200)}"
            return None
        return self._known[folder.id][1]

    def _read(self, folder: TrialFolder, changed: float) -> TrialLine | None:
        info = folder.info()
        self.infos[folder.id] = info
        if not info:
            return None
        status = info.get("status")
        if status not in STATUSES:
            raise ValueError(f"expected a status ({', '.join(STATUSES)}), found {status!r}")
        group = group_of(info, self.axes)
        seed = f"seed {info.get('seed')}"
        title = f"{group[:-1]}, {seed})" if group.endswith(")") else f"{group} ({seed})"
        reason = "; ".join(map(str, info.get("failures") or ())) if status == "failed" else ""
        return TrialLine(title, group, status, self._point(folder, info), reason, changed)

    def _point(self, folder: TrialFolder, info: dict[str, Any]) -> Point | None:
        try:
            return last_point(info, folder.measures()["checkpoints"])
        except ODD as error:
            said = one_line(str(error), 200)
            self.problems[folder.id] = f"The accuracy of {folder.id} cannot be read: {said}"
            return None


def group_of(info: dict[str, Any], axes: Sequence[str]) -> str:
    """The title of a trial without its seed, such as `fafi (α 0.1, epochs 5)`."""
    alpha = info.get("alpha")
    parts = [f"α {short(alpha)}"] if alpha else []
    for axis, label in axis_labels(axes).items():
        section, _, key = axis.partition(".")
        there = info.get("config", {}).get(section, {})
        used = depends_on(axis, str(info.get("partition")), info.get("idle") or ())
        if axis != ALPHA and used and key in there:
            parts.append(f"{label} {short(coordinate(axis, there[key]))}".strip())
    recipe = str(info.get("recipe", "unknown"))
    return f"{recipe} ({', '.join(parts)})" if parts else recipe


def last_point(info: dict[str, Any], checkpoints: Sequence[dict[str, Any]]) -> Point | None:
    """The accuracy after the last checkpoint, of the first fusion that the recipe names."""
    if not checkpoints:
        return None
    last = max(checkpoints, key=lambda one: int(one["epoch"]))
    named = [spec.get("as") for spec in info.get("config", {}).get("recipe", {}).get("fusion", ())]
    fusion = next((name for name in named if name in last["fusions"]), None)
    if fusion is None:
        fusion = next(iter(last["fusions"]))
    accuracy = float(last["fusions"][fusion]["accuracy"])
    if not 0 <= accuracy <= 1:
        raise ValueError(f"expected an accuracy between 0 and 1, found {accuracy}")
    return Point(str(fusion), int(last["epoch"]), accuracy)
