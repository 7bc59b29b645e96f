"""The logs of a trial: what happened in each round, in sentences, with the time.

logs/server.log         the server's rounds
logs/client-NAME.log    what one client did in its rounds
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from accord.core.files import append_text
from accord.core.names import listed, shown
from accord.core.text import printable
from accord.federation.rounds import Round
from accord.messages import Upload
from accord.record.folders import TrialFolder, client_file


class TrialLog:
    """Adds lines to the logs of one trial. A run that is continued adds to the same files."""

    def __init__(self, folder: TrialFolder) -> None:
        self.folder = folder

    def server(self, line: str) -> None:
        self._add("server", line)

    def client(self, name: str, line: str) -> None:
        self._add(client_file(name), line)

    def _add(self, who: str, line: str) -> None:
        path = self.folder.path / "logs" / f"{who}.log"
        now = time.strftime("%Y-%m-%d %H:%M:%S")
        append_text(path, f"{now}  {printable(' '.join(line.split()))}\n")

    # --- sentences about a round ---------------------------------------------------------------

    def began(self, recipe: str, rounds: Sequence[Round]) -> None:
        done = sum(one.closed for one in rounds)
        how = f"continues after {done} of {_several(len(rounds), 'round')}" if done else "begins"
        self.server(f"The trial of recipe {recipe} {how}.")

    def asked(self, one: Round, missing: Sequence[str], images: dict[str, int]) -> None:
        if not missing:
            return
        size = _megabytes(one.folder.briefing.stat().st_size)
        told = f"{_several(len(missing), 'client')}: {listed(missing)}"
        self.server(f"Round {one.number}: sent the briefing ({size}) to {told}.")
        for name in missing:
            self.client(
                name,
                f"Round {one.number}: received the briefing ({size}) and began with "
                f"{_several(images[name], 'image') if images[name] else 'its own images'}.",
            )

    def answered(self, one: Round, name: str) -> None:
        """A client's line about the upload that has just arrived."""
        path = one.upload(name, one.last_epoch)
        header = Upload.load(path).header
        events = [event for event in header.telemetry if event.get("loss") is not None]
        loss = ""
        if events:
            seconds = sum(one.folder.read_seconds(name).values())
            loss = (
                f"trained {_several(len(events), 'epoch')} in {seconds:.1f} s of core time; the "
                f"loss went from {events[0]['loss']:.3f} to {events[-1]['loss']:.3f}; "
            )
        own = ""
        if header.train_accuracy is not None:
            own = f"accuracy on its own images {100 * header.train_accuracy:.1f} %; "
        size = _megabytes(path.stat().st_size)
        self.client(name, f"Round {one.number}: {loss}{own}sent its upload ({size}).")

    def failed(self, number: int, name: str, reason: str) -> None:
        self.client(name, f"Round {number}: failed: {reason}")

    def closed(self, one: Round) -> None:
        report = one.report
        self.server(
            f"Round {one.number}: {len(report.answered)} of "
            f"{_several(len(report.asked), 'client')} answered "
            f"({_megabytes(report.upload_bytes)} in all, {report.seconds:.1f} s of core time)."
        )
        for name, reason in report.failed.items():
            self.server(
                f"Round {one.number}: client {shown(name)} failed and was left out: {reason}"
            )

    def stopped(self, one: Round, answered: int) -> None:
        self.server(
            f"Round {one.number}: only {answered} of {_several(len(one.asked), 'client')} "
            f"answered; the round needs {one.needed}. The trial stops here. Run the same command "
            "again to continue."
        )

    def advanced(self, number: int, clients: int, result: dict[str, Any]) -> None:
        """The server's line about the state that it made of a round's uploads."""
        spent = f"{result['seconds']:.1f} s of core time"
        line = f"Round {number}: merged {_several(clients, 'net')} in {spent}."
        told = result["told"]
        if told.get("learnt") == "clients":
            line += " The adapter learnt from the change of the clients' weights."
        if told.get("learnt") == "public":
            line += (
                " The adapter learnt from public images; its loss went from "
                f"{told['first_loss']:.3f} to {told['last_loss']:.3f}."
            )
        if told.get("fused") and "change" in told:
            line += (
                " The fusion of knowledge changed the paired layers by "
                f"{100 * told['change']:.1f} %."
            )
        elif told.get("fused"):
            line += " The clients fused their nets with the teacher's layers."
        elif "fused" in told:
            line += " No fusion was due in this round."
        self.server(line)

    def measured(self, number: int) -> None:
        """The server's lines about the accuracy after a round."""
        for checkpoint in self.folder.measures()["checkpoints"]:
            if checkpoint["round"] != number:
                continue
            for fusion, found in checkpoint["fusions"].items():
                self.server(f"Round {number}: {_sentence(fusion, checkpoint, found)}")


def _sentence(fusion: str, checkpoint: dict[str, Any], found: dict[str, Any]) -> str:
    parts = [f"accuracy {100 * found['accuracy']:.1f} %"]
    if found["fusion_applied"] and found["accuracy_before"] is not None:
        parts[0] += f" ({100 * found['accuracy_before']:.1f} % before the fusion)"
    if found["top5"] is not None:
        parts.append(f"top-5 {100 * found['top5']:.1f} %")
    parts.append(f"test loss {found['loss']:.3f}")
    if checkpoint["train_loss"] is not None:
        parts.append(f"training loss {checkpoint['train_loss']:.3f}")
    return f"{fusion} after epoch {checkpoint['epoch']}: {', '.join(parts)}."


def _several(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.2f} MB"
