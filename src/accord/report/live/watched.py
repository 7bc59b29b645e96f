"""Reads the state of a study from the files of its record, while another process writes them."""

from __future__ import annotations

import time
from pathlib import Path

from accord.core.errors import AccordError
from accord.core.lock_state import is_locked
from accord.core.text import one_line
from accord.record.folders import TrialFolder
from accord.record.record import Record
from accord.report.durations import spoken
from accord.report.evidence import ODD
from accord.report.live.asked import Asked, read_asked
from accord.report.live.epochs import Epochs, bars_of, share_done
from accord.report.live.lines import Lines
from accord.report.live.picture import Bar, Picture, TrialLine, standings
from accord.report.results import open_record
from accord.study.settings import result_axes

TOP_FILES = ("study.yaml", "data.json", "results.csv")


class Watched:
    """A record that is watched. Files that have not changed are not read again."""

    def __init__(self, path: Path) -> None:
        self.record = open_record(path)
        if not (path / "trials").is_dir() or not (path / "study.yaml").exists():
            raise AccordError(
                f"{path} is not a run directory: it has no study.yaml with trials/. Name the "
                "folder of a run. The record of a study that has just been started appears after "
                "a few seconds."
            )
        self.written = False  # whether a process is seen that writes the record
        self.changed = 0.0  # when a file changed last
        self._study: tuple[float, Asked | None, str] = (-1.0, None, "")
        self._lines = Lines(())
        self._epochs: dict[str, Epochs] = {}

    def look(self) -> Picture:
        """The state of the study now."""
        began = self._read_study()
        self.written = is_locked(self.record.path / ".lock")
        self.changed = max(self._time_of(name) for name in TOP_FILES)
        lines: list[TrialLine] = []
        bars: list[Bar] = []
        done = now_done = 0.0
        for folder in self.record.trials():
            line = self._lines.line(folder)
            if line is None:
                continue
            lines.append(line)
            share = 1.0 if line.status != "running" else self._running(folder, line, bars)
            self.changed = max(self.changed, line.changed)
            work = share * self._work(folder)
            done += work
            now_done += work if line.changed >= began and line.status != "failed" else 0.0
        asked = self._study[1]
        number = asked.count if asked else None
        total = max(asked.total, done) if asked and number is not None else None
        return Picture(
            name=str(self.record.path),
            trials=tuple(lines),
            asked=number,
            bars=tuple(bars),
            share=None if not total else done / total,
            timing=self._timing(began, done, now_done, total),
            notes=tuple(self._notes()),
            standings=standings(lines),
            written=self.written,
        )

    def ago(self) -> float:
        """The seconds since the last change."""
        return max(0.0, time.time() - self.changed)

    def _read_study(self) -> float:
        """Reads study.yaml if it has changed. Returns its time, at which the run was started."""
        at = self._time_of("study.yaml")
        if at != self._study[0]:
            try:
                self._lines = Lines(result_axes(self.record.asked()))
                self._study = (at, read_asked(self.record), "")
            except ODD as error:
                said = one_line(str(error), 200)
                self._study = (at, None, f"The number of trials is unknown: {said}")
        return at

    def _running(self, folder: TrialFolder, line: TrialLine, bars: list[Bar]) -> float:
        """The part of a running trial that is done; adds its clients to `bars`."""
        info = self._lines.infos[folder.id]
        epochs = self._epochs.setdefault(folder.id, Epochs(folder.events))
        try:
            self.changed = max(self.changed, epochs.look())
            bars += bars_of(line, info, epochs.last)
            return share_done(info, epochs.last)
        except ODD as error:
            said = one_line(str(error), 200)
            self._lines.problems[folder.id] = f"The epochs of {folder.id} cannot be read: {said}"
            return 0.0

    def _work(self, folder: TrialFolder) -> float:
        asked = self._study[1]
        recipe = str(self._lines.infos[folder.id].get("recipe"))
        return asked.work.get(recipe, 1.0) if asked else 1.0

    def _timing(self, began: float, done: float, now_done: float, total: float | None) -> str:
        """The time so far and the time that is left, from the work since the run was started."""
        last = f"last change {spoken(self.ago())} ago"
        if not self.written:
            return f"no process is seen writing; {last}"
        passed = max(0.0, time.time() - began)
        if total is None:
            return f"{spoken(passed)} so far, {last}"
        if now_done < 0.005 * total:
            return f"{spoken(passed)} so far, measuring the speed, {last}"
        left = passed * max(0.0, total - done) / now_done
        return f"{spoken(passed)} so far, about {spoken(left)} left, {last}"

    def _notes(self) -> list[str]:
        notes = [self._study[2]] if self._study[2] else []
        for name, epochs in self._epochs.items():
            if epochs.damaged:
                notes.append(f"{name}: {epochs.damaged} lines of events.jsonl cannot be read.")
        return [*notes, *self._lines.problems.values()]

    def _time_of(self, name: str) -> float:
        try:
            return (self.record.path / name).stat().st_mtime
        except OSError:
            return 0.0


def continuing(record: Record) -> str:
    """The command that continues a study."""
    return f"accord run {record.path / 'study.yaml'} --out {record.path}"
