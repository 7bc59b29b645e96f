"""The files of one trial, and of each of its rounds.

RUN/trials/<id>/trial.json    one trial: config, versions, partition hash, label counts, rounds
                events.jsonl  per client and epoch
                measures.json per checkpoint: every fusion, every client
                briefing.safetensors, uploads/, round.json, state/, memory/   of round 1
                rounds/2/     the same of round 2, and server.safetensors: the state it begins with
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from accord.core.errors import AccordError
from accord.core.files import read_json, write_atomic, write_json


class RoundFolder:
    """The files of one round."""

    def __init__(self, path: Path, number: int) -> None:
        self.path, self.number = path, number
        self.briefing = path / "briefing.safetensors"
        self.server_state = path / "server.safetensors"  # with which it begins; none in round 1
        self.report = path / "round.json"  # who was asked and who answered

    def upload(self, client: str, epoch: int, last: bool) -> Path:
        """A client's upload after `epoch`; the last one carries no epoch in its name."""
        at = "" if last else f"@{epoch}"
        return self.path / "uploads" / f"client-{client}{at}.safetensors"

    def state(self, client: str) -> Path:
        """Where an interrupted client stands."""
        return self.path / "state" / f"client-{client}.safetensors"

    def memory(self, client: str) -> Path:
        """What a client keeps of this round for its next."""
        return self.path / "memory" / f"client-{client}.safetensors"


class TrialFolder:
    """The files of one trial, or of a teacher."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.id = path.name
        self.events = path / "events.jsonl"

    @property
    def briefing(self) -> Path:
        """The first briefing, which says what the trial began with."""
        return self.round(1).briefing

    def round(self, number: int) -> RoundFolder:
        """Round 1 stands in the trial's own folder, where a one-shot trial has its files."""
        path = self.path if number == 1 else self.path / "rounds" / str(number)
        return RoundFolder(path, number)

    @property
    def rounds(self) -> int:
        """How many rounds the trial has."""
        found = self.info().get("config", {}).get("rounds", {}).get("count")
        return found if isinstance(found, int) else 1

    @property
    def last_round(self) -> RoundFolder:
        return self.round(self.rounds)

    @property
    def total(self) -> Path:
        """The sum of all clients' sums, of a trial whose clients upload such."""
        return self.path / "total.safetensors"

    def merged(self, fusion: str, epoch: int, index: int) -> Path:
        """A net that a fusion made of the uploads; it is deleted when it has been measured."""
        return self.path / "merged" / f"{fusion}@{epoch}" / f"{index}.safetensors"

    def info(self) -> dict[str, Any]:
        path = self.path / "trial.json"
        return mapping(read_json(path), path) if path.exists() else {}

    def write_info(self, info: dict[str, Any]) -> None:
        write_json(self.path / "trial.json", info)

    def measures(self) -> dict[str, Any]:
        path = self.path / "measures.json"
        if not path.exists():
            return {"checkpoints": []}
        found = mapping(read_json(path), path)
        if not isinstance(found.get("checkpoints"), list):
            raise damaged(path, "it has no list 'checkpoints'")
        return found

    def write_measures(self, checkpoints: list[dict[str, Any]]) -> None:
        write_json(self.path / "measures.json", {"checkpoints": checkpoints})

    def append_event(self, event: dict[str, Any]) -> None:
        """For someone who watches; the whole file is written in order when training is over."""
        self.path.mkdir(parents=True, exist_ok=True)
        with self.events.open("a", encoding="utf-8") as file:
            file.write(json.dumps(event) + "\n")

    def read_events(self) -> list[dict[str, Any]]:
        """Every whole line of events.jsonl; the last one may still be on its way."""
        if not self.events.exists():
            return []
        lines = self.events.read_text("utf-8").split("\n")[:-1]
        try:
            return [json.loads(line) for line in lines]
        except ValueError as error:
            raise damaged(self.events, error) from None

    def write_events(self, events: list[dict[str, Any]]) -> None:
        write_atomic(self.events, "".join(json.dumps(e) + "\n" for e in events).encode())

    def state_of_files(self) -> tuple[int, ...]:
        """Changes when the files behind `rows` do."""
        paths = (self.path / "trial.json", self.path / "measures.json")
        return tuple(path.stat().st_mtime_ns if path.exists() else 0 for path in paths)


def mapping(value: Any, path: Path) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise damaged(path, f"expected a mapping, found {type(value).__name__}")
    return value


def damaged(path: Path, why: object) -> AccordError:
    return AccordError(
        f"{path} is damaged: {why}. Restore it from a copy, or run into another folder with --out."
    )
