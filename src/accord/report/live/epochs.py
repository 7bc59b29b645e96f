"""The epochs that the clients of a running trial have done, from its events.jsonl."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accord.core.names import shown
from accord.core.reading import json_of, open_plain
from accord.report.live.picture import Bar, TrialLine


class Epochs:
    """The last epoch of each client. Only what was added to the file is read again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.last: dict[str, int] = {}
        self.damaged = 0  # lines that are no events
        self._file: tuple[int, int] = (0, 0)  # inode and time of the file that was read
        self._read = 0  # bytes

    def look(self) -> float:
        """Reads the new lines; returns when the file changed last, or 0 if there is none."""
        try:
            now = self.path.stat()
        except FileNotFoundError:
            return 0.0
        if (now.st_ino, now.st_mtime_ns) != self._file:
            if now.st_ino != self._file[0] or now.st_size < self._read:
                self.last, self.damaged, self._read = {}, 0, 0  # it was written again
            self._file = (now.st_ino, now.st_mtime_ns)
            self._add()
        return now.st_mtime

    def _add(self) -> None:
        with open_plain(self.path) as file:
            file.seek(self._read)
            whole, newline, _ = file.read().rpartition(b"\n")  # the last line may be incomplete
        self._read += len(whole) + len(newline)
        for line in whole.splitlines():
            try:
                event = json_of(line)
                client, epoch = str(event["client"]), int(event["epoch"])
            except (ValueError, KeyError, TypeError, OverflowError):
                self.damaged += 1
                continue
            self.last[client] = max(epoch, self.last.get(client, 0))


def epochs_asked(info: Mapping[str, Any]) -> int:
    """The number of epochs of a client over all rounds; at least 1."""
    config = info.get("config", {})
    rounds = config.get("rounds", {}).get("count")
    epochs = config.get("budget", {}).get("epochs")
    return max(1, (epochs if isinstance(epochs, int) else 1) * (rounds or 1))


def share_done(info: Mapping[str, Any], last: Mapping[str, int]) -> float:
    """The part of a trial's training that is done; a client counts as much as its images.

    If a round asks only some clients, all rounds count alike.
    """
    names = [str(name) for name in info.get("client_files", ())] or list(last)
    asked = info.get("asked") or len(names)
    if last and asked < len(names):
        each = _epochs_of_round(info)
        number = (max(last.values()) - 1) // each
        done = number * each * asked + sum(v - number * each for v in _now(info, last).values())
        return min(1.0, done / (epochs_asked(info) * asked))
    counts = [sum(row) for row in info.get("label_counts") or ()]
    if len(counts) != len(names) or not sum(counts):
        counts = [1] * len(names)
    whole = epochs_asked(info) * sum(counts)
    done = sum(last.get(name, 0) * count for name, count in zip(names, counts, strict=True))
    return min(1.0, done / whole) if whole else 0.0


def bars_of(line: TrialLine, info: Mapping[str, Any], last: Mapping[str, int]) -> list[Bar]:
    """The clients that have begun and are not done; if all are done, the trial is measured."""
    total = epochs_asked(info)
    names = [str(name) for name in info.get("client_files", ())]
    asked = info.get("asked") or len(names)
    now = _now(info, last) if asked < len(names) else last
    if names and sum(epoch >= total for epoch in now.values()) >= asked:
        return [Bar(line.title, "server", 1.0, "measuring")]
    return [
        Bar(line.title, f"client {shown(name)}", epoch / total, f"epoch {epoch} of {total}")
        for name, epoch in now.items()
        if epoch < total
    ]


def _epochs_of_round(info: Mapping[str, Any]) -> int:
    return epochs_asked(info) // max(1, info.get("config", {}).get("rounds", {}).get("count") or 1)


def _now(info: Mapping[str, Any], last: Mapping[str, int]) -> dict[str, int]:
    """The clients that train in the latest round, of which some client has done an epoch."""
    each = _epochs_of_round(info)
    before = (max(last.values(), default=1) - 1) // each * each
    return {name: epoch for name, epoch in last.items() if epoch > before}
