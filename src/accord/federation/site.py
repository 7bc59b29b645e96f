"""A client at its own site: it answers briefings with its own images and keeps its own files.

KEEP/<name>/<federation>/      one federation, known by the digest of its first briefing
    images.json                digest of the images that the other files were made from
    briefing.safetensors, state/, uploads/, memory/, rounds/2/ …    as in a trial of a record

Only uploads are ever sent. The other files let the client continue after an interruption, answer a
second time without work, and remember its own values (SCAFFOLD, learnt balances) between rounds.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from pydantic import ValidationError

from accord.client.base import Client, Precision
from accord.client.make import make_client
from accord.core.errors import AccordError, ClientError
from accord.core.files import locked, read_json, write_json
from accord.core.mishaps import lack_of_memory
from accord.core.names import file_name, shown
from accord.core.threads import one_thread
from accord.data.imageset import ImageSet
from accord.federation.tasks.answer import remembered_by, upload_path, work
from accord.federation.tasks.base import Tell
from accord.messages import Briefing, Memory, Upload
from accord.record.folders import RoundFolder, TrialFolder

KEPT_DAYS = 90  # days after which the files of another federation are removed
ROWS = 1_024  # images that are hashed at a time


def keep_root() -> Path:
    """The folder of all clients on this machine: $ACCORD_STATE, or else ~/.local/state/accord."""
    chosen = os.environ.get("ACCORD_STATE")
    return Path(chosen).expanduser() if chosen else Path.home() / ".local/state/accord"


@dataclass(frozen=True)
class Site:
    """One client on this machine, and the folder where it keeps its own files."""

    name: str
    keep: Path

    def folder(self, briefing: Briefing) -> TrialFolder:
        """The client's files in the federation of a briefing."""
        return TrialFolder(self.keep / file_name(self.name) / briefing.federation[:32])

    def seconds(self, briefing: Briefing) -> dict[int, float]:
        """The core time of each epoch of its last answer to `briefing`."""
        return self.folder(briefing).round(briefing.header.round).read_seconds(self.name)

    def last_memory(self, briefing: Briefing) -> int | None:
        """The last round before that of `briefing` from which the client has kept a memory."""
        folder = self.folder(briefing)
        earlier = range(1, briefing.header.round)
        return max((r for r in earlier if folder.round(r).memory(self.name).exists()), default=None)

    def answer(
        self,
        briefing: Briefing,
        data: ImageSet,
        tell: Tell,
        *,
        precision: Precision | None = None,
        remembers: int | None = None,
    ) -> list[Path]:
        """The files of the client's uploads, one per checkpoint; the last one is the answer.

        `tell` gets news about the progress, as from a task of an engine. `remembers` is the round
        whose memory the client continues from.
        """
        folder = self.folder(briefing)
        one = folder.round(briefing.header.round)
        who = f"client {shown(self.name)}"
        busy = f"another process works for {who} in {folder.path}. Wait for its end."
        with locked(folder.path, busy):
            self._forget_other_images(folder, data)
            memory = remembered_by(self.name, folder, remembers)
            client = self._client(data, briefing, precision, memory)
            paths = [upload_path(client, one, epoch) for epoch in _checkpoints(client)]
            if not all(_answers(path, briefing) for path in paths):
                one.path.mkdir(parents=True, exist_ok=True)
                briefing.save(one.briefing)
                _work(client, one, tell)
            self._forget_before(folder, briefing.header.round)
            self._forget_old(folder)
            return paths

    def _client(
        self,
        data: ImageSet,
        briefing: Briefing,
        precision: Precision | None,
        memory: Memory | None,
    ) -> Client:
        for name, tensor in briefing.tensors.items():
            if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
                raise AccordError(
                    f"the briefing is damaged: its tensor {name!r} holds NaN or infinity. Fetch it "
                    "again."
                )
        try:
            return make_client(data, briefing, self.name, precision, memory)
        except (RuntimeError, KeyError, ValueError, ValidationError) as error:
            said = " ".join(str(error).split())[:200]
            raise AccordError(
                f"the briefing cannot be used: its content does not fit together ({said}). Fetch "
                "it again, or ask the server whether it uses another version of Accord."
            ) from None

    def _forget_other_images(self, folder: TrialFolder, data: ImageSet) -> None:
        """Removes unfinished work and uploads that were made from other images.

        Memories are kept: a client may get new images between two rounds.
        """
        path, digest = folder.path / "images.json", digest_of_images(data)
        if path.exists() and read_json(path) != {"sha256": digest}:
            for name in ("state", "uploads", "seconds"):
                for found in (folder.path / name, *folder.path.glob(f"rounds/*/{name}")):
                    shutil.rmtree(found, ignore_errors=True)
        write_json(path, {"sha256": digest})

    def _forget_before(self, folder: TrialFolder, number: int) -> None:
        """Removes large files of earlier rounds, which nobody asks for any more."""
        for before in range(1, number):
            one = folder.round(before)
            for name in ("uploads", "seconds"):
                shutil.rmtree(one.path / name, ignore_errors=True)
            one.briefing.unlink(missing_ok=True)

    def _forget_old(self, current: TrialFolder) -> None:
        """Removes the files of federations in which the client has not worked for a long time."""
        for marker in current.path.parent.glob("*/images.json"):
            old = time.time() - marker.stat().st_mtime > 86_400 * KEPT_DAYS
            ours = re.fullmatch(r"[0-9a-f]{32}", marker.parent.name)
            if old and ours and marker.parent != current.path:
                shutil.rmtree(marker.parent, ignore_errors=True)


def digest_of_images(data: ImageSet) -> str:
    """A hash of a client's images and labels."""
    digest = hashlib.sha256(str(data.images.shape[1:]).encode())
    digest.update(data.labels.astype("<i8").tobytes())
    for start in range(0, len(data), ROWS):
        digest.update(data.images[data.rows[start : start + ROWS]].tobytes())
    return digest.hexdigest()


def _checkpoints(client: Client) -> list[int]:
    first = client.briefing.header.first_epoch
    return [first + epoch for epoch in client.budget.checkpoints]


def _answers(path: Path, briefing: Briefing) -> bool:
    """Whether a file holds a whole upload that answers `briefing`."""
    try:
        return Upload.load(path).header.briefing == briefing.digest
    except AccordError:
        return False


def _work(client: Client, folder: RoundFolder, tell: Tell) -> None:
    try:
        with one_thread():
            work(client, folder, tell)
    except (RuntimeError, MemoryError) as error:
        said = lack_of_memory(error)
        if said is None:
            raise
        raise ClientError(
            f"out of memory ({said}). Use a machine with more memory, or ask the server for a "
            "smaller budget.batch or net.backbone."
        ) from None
