"""The task in which a client answers a briefing; it continues from its saved state, if any."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from accord.client.base import Client, Precision
from accord.client.make import make_client
from accord.core.errors import AccordError, ClientError
from accord.core.names import shown
from accord.data.imageset import ImageSet
from accord.federation.tasks.base import Answer, Task, Tell, briefing_at, register
from accord.messages import GIVEN_LABELS, Briefing, Memory, State
from accord.record.folders import RoundFolder, TrialFolder
from accord.record.record import Record

SAVE_EVERY = 10.0  # seconds between two saved states, when no checkpoint asks for one
TELL_EVERY = 0.2  # seconds between two progress messages within an epoch


@register("answer")
class AnswerBriefing(Task):
    """One client's part of a round; if `client` is None, it is the server's teacher `name`."""

    name: str
    client: int | None  # index in the allocation; None: the images are the public ones
    round: int = 1
    remembers: int | None = None  # the round whose memory, if any, the client continues from
    at_server: bool = False  # the server's own work: a teacher, or a reference of pooled images
    autocast: bool = False
    compile: bool = False

    @property
    def about(self) -> str:
        return "training" if self.client is None else f"client {shown(self.name)}"

    @property
    def subject(self) -> str:
        return "the teacher" if self.client is None else f"client {shown(self.name)}"

    def perform(self, record: Record, tell: Tell) -> Answer:
        trial = self.folder(record)
        folder = trial.round(self.round)
        briefing = briefing_at(folder.briefing)
        memory = remembered_by(self.name, trial, self.remembers)
        precision = Precision(torch.device(self.device), self.autocast, self.compile)
        images = self._images(record)
        if self.client is None and GIVEN_LABELS in briefing.tensors:
            images = replace(images, labels=briefing.tensors[GIVEN_LABELS].numpy())
        client = make_client(images, briefing, self.name, precision, memory)
        work(client, folder, tell)
        return {}

    def _images(self, record: Record) -> ImageSet:
        allocation = self.images(record)
        return allocation.part("public") if self.client is None else allocation.client(self.client)

    def out_of_memory(self, record: Record, said: str) -> ClientError:
        briefing = Briefing.load(self.folder(record).round(self.round).briefing).header
        if briefing.uploads == "sums":
            return super().out_of_memory(record, said)
        return ClientError(
            f"out of memory ({said}). Make budget.batch (now {briefing.budget.batch}) smaller, or "
            f"choose a smaller net.backbone than {briefing.net.backbone}."
        )


def remembered_by(name: str, trial: TrialFolder, number: int | None) -> Memory | None:
    """What client `name` has kept from round `number`; None if it kept nothing."""
    path = trial.round(number).memory(name) if number is not None else None
    return Memory.load(path) if path is not None and path.exists() else None


def work(client: Client, folder: RoundFolder, tell: Tell) -> None:
    """Does the work of a client until the end of its round, and saves its state regularly.

    A client that was interrupted continues from its saved state.
    """
    state = _usable_state(folder, client)
    if state:
        client.restore(state)
        client.seconds = folder.read_seconds(client.name)
        for event in client.timed_telemetry():
            tell({"event": event})
        tell({"share": client.share_done(0), "restored": True})
    saved = time.monotonic()
    while not client.done:
        event = client.run_epoch(_throttled(client, tell))
        tell({"event": event, "share": client.share_done(0)})
        if client.at_checkpoint:
            if client.done:
                _keep_memory(client, folder)
            folder.write_seconds(client.name, client.seconds)
            client.upload().save(upload_path(client, folder, client.epoch))
        late = time.monotonic() - saved > SAVE_EVERY
        state = client.state() if not client.done and (client.at_checkpoint or late) else None
        if state is not None:
            folder.write_seconds(client.name, client.seconds)
            state.save(folder.state(client.name))
            saved = time.monotonic()
    folder.state(client.name).unlink(missing_ok=True)


def _keep_memory(client: Client, folder: RoundFolder) -> None:
    """Saves the memory, before the upload: if an upload exists, its memory exists too.

    After the last round, and in a one-shot trial, no later round needs a memory.
    """
    header = client.briefing.header
    memory = client.memory() if header.round < header.rounds else None
    if memory is not None:
        memory.save(folder.memory(client.name))


def upload_path(client: Client, folder: RoundFolder, epoch: int) -> Path:
    return folder.upload(client.name, epoch, last=epoch == client.last_epoch)


def _usable_state(folder: RoundFolder, client: Client) -> State | None:
    """The saved state; None if it is damaged or does not fit: the client then starts again."""
    try:
        state = State.load(folder.state(client.name))
    except AccordError:
        return None
    first = client.briefing.header.first_epoch
    passed = [first + epoch for epoch in client.budget.checkpoints]
    passed = [epoch for epoch in passed if epoch <= state.header.epoch]
    whole = all(upload_path(client, folder, epoch).exists() for epoch in passed)
    fits = state.header.briefing == client.briefing.digest and state.header.client == client.name
    return state if fits and whole else None


def _throttled(client: Client, tell: Tell) -> Callable[[float], None]:
    """A function that reports the share of the round that is done, a few times per second."""
    last = time.monotonic()

    def tell_share(share: float) -> None:
        nonlocal last
        if time.monotonic() - last > TELL_EVERY:
            last = time.monotonic()
            tell({"share": client.share_done(share)})

    return tell_share
