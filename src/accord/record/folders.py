"""The files of one trial, and of each of its rounds.

RUN/trials/<id>/trial.json    one trial: config, versions, partition hash, label counts, rounds
                events.jsonl  one line per client and epoch
                measures.json per checkpoint: every fusion, every client
                briefing.safetensors, uploads/, round.json, state/, memory/   of round 1
                seconds/      core time of each client's epochs, which its upload does not tell
                rounds/2/     the same files of round 2, and its server state server.safetensors
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from accord.core.budget import MOST_ROUNDS
from accord.core.errors import AccordError
from accord.core.files import append_text, read_json, write_atomic, write_json
from accord.core.names import file_name
from accord.core.reading import json_of, read_text
from accord.record.checks import check_event, check_measures, check_trial, count

MOST_EVENTS = 4 * 2**30  # bytes of events.jsonl

LONGEST = 1e12  # seconds of an epoch; a larger number is a damaged one


def client_file(client: str) -> str:
    """The name of a client's files, without their suffix; a client may have any name."""
    return f"client-{file_name(client)}"


class RoundFolder:
    """The files of one round."""

    def __init__(self, path: Path, number: int) -> None:
        self.path, self.number = path, number
        self.briefing = path / "briefing.safetensors"
        self.server_state = path / "server.safetensors"  # at its start; a one-shot trial has none
        self.report = path / "round.json"  # the clients that were asked and that answered

    def upload(self, client: str, epoch: int, last: bool) -> Path:
        """A client's upload after `epoch`; the name of the last one does not contain the epoch."""
        at = "" if last else f"@{epoch}"
        return self.path / "uploads" / f"{client_file(client)}{at}.safetensors"

    def state(self, client: str) -> Path:
        """The saved state of an interrupted client."""
        return self.path / "state" / f"{client_file(client)}.safetensors"

    def memory(self, client: str) -> Path:
        """What a client keeps from this round for its next one."""
        return self.path / "memory" / f"{client_file(client)}.safetensors"

    def seconds(self, client: str) -> Path:
        """The core time of a client's epochs. Uploads hold no times, so that they never vary."""
        return self.path / "seconds" / f"{client_file(client)}.json"

    def write_seconds(self, client: str, spent: Mapping[int, float]) -> None:
        write_json(self.seconds(client), {str(epoch): spent[epoch] for epoch in sorted(spent)})

    def read_seconds(self, client: str) -> dict[int, float]:
        """Epoch → core time. Times are for people: a missing or damaged file is no error."""
        try:
            found = read_json(self.seconds(client))
            spent = {int(epoch): float(value) for epoch, value in found.items()}
        except (AccordError, OSError, ValueError, TypeError, AttributeError, OverflowError):
            return {}
        return {epoch: s for epoch, s in spent.items() if 0 <= s <= LONGEST}


class TrialFolder:
    """The files of one trial, or of a teacher."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.id = path.name
        self.events = path / "events.jsonl"

    @property
    def briefing(self) -> Path:
        """The first briefing, with the initial weights of the trial."""
        return self.round(1).briefing

    def round(self, number: int) -> RoundFolder:
        """The folder of a round. Round 1 is in the trial's own folder, as in a one-shot trial."""
        path = self.path if number == 1 else self.path / "rounds" / str(number)
        return RoundFolder(path, number)

    @property
    def rounds(self) -> int:
        """The number of rounds of the trial."""
        found = self.info().get("config", {}).get("rounds", {}).get("count")
        return found if count(found) and 1 <= found <= MOST_ROUNDS else 1

    @property
    def last_round(self) -> RoundFolder:
        return self.round(self.rounds)

    @property
    def total(self) -> Path:
        """The total of all clients' sums, in a trial whose clients upload sums."""
        return self.path / "total.safetensors"

    def merged(self, fusion: str, epoch: int, index: int) -> Path:
        """A net that a fusion made from the uploads; it is deleted after it has been measured."""
        return self.path / "merged" / f"{fusion}@{epoch}" / f"{index}.safetensors"

    def info(self) -> dict[str, Any]:
        path = self.path / "trial.json"
        if not path.exists():
            return {}
        found = mapping(read_json(path), path)
        with _refusing(path):
            check_trial(found)
        return found

    def write_info(self, info: dict[str, Any]) -> None:
        write_json(self.path / "trial.json", info)

    def measures(self) -> dict[str, Any]:
        path = self.path / "measures.json"
        if not path.exists():
            return {"checkpoints": []}
        found = mapping(read_json(path), path)
        if not isinstance(found.get("checkpoints"), list):
            raise damaged(path, "it has no list 'checkpoints'")
        with _refusing(path):
            check_measures(found["checkpoints"])
        return found

    def write_measures(self, checkpoints: list[dict[str, Any]]) -> None:
        write_json(self.path / "measures.json", {"checkpoints": checkpoints})

    def append_event(self, event: dict[str, Any]) -> None:
        """Adds an event while the trial runs; the file is written again, in order, at the end."""
        append_text(self.events, json.dumps(event) + "\n")

    def read_events(self) -> list[dict[str, Any]]:
        """Every complete line of events.jsonl; while a trial runs, the last one may not be."""
        if not self.events.exists():
            return []
        events = []
        *lines, rest = read_text(self.events, MOST_EVENTS).split("\n")
        if rest and self.info().get("status") == "finished":
            raise damaged(self.events, "its last line is incomplete")
        for number, line in enumerate(lines, start=1):
            try:
                event = json_of(line)
                check_event(event)
            except ValueError as error:
                raise damaged(self.events, f"line {number}: {error}") from None
            events.append(event)
        return events

    def write_events(self, events: list[dict[str, Any]]) -> None:
        write_atomic(self.events, "".join(json.dumps(e) + "\n" for e in events).encode())

    def state_of_files(self) -> tuple[int, ...]:
        """A value that changes when the files that `rows` reads change."""
        paths = (self.path / "trial.json", self.path / "measures.json")
        return tuple(path.stat().st_mtime_ns if path.exists() else 0 for path in paths)


@contextmanager
def _refusing(path: Path) -> Iterator[None]:
    """A ValueError about the content of a file, as an AccordError with the name of the file."""
    try:
        yield
    except ValueError as error:
        raise damaged(path, error) from None


def mapping(value: Any, path: Path) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise damaged(path, f"expected a mapping, found {type(value).__name__}")
    return value


def damaged(path: Path, why: object) -> AccordError:
    return AccordError(
        f"{path} is damaged: {why}. Restore it from a copy, or run the study "
        "again with another folder for its record."
    )
