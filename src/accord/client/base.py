"""The interface of every client.

A client works epoch by epoch. It can be saved and restored between any two epochs, and it can make
an upload after any epoch. It does not know the engine, the files or the other clients.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch

from accord.client.hostile import Hostile
from accord.client.telemetry import Event
from accord.core.clock import Stopwatch
from accord.data.imageset import ImageSet
from accord.messages import Briefing, Memory, State, Upload

Tell = Callable[[float], None]  # is called with the share of the epoch that is done
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Precision:
    """Device and number format of this machine's computations. They are in no message."""

    device: torch.device = CPU
    autocast: bool = False
    compile: bool = False


class Client(ABC):
    """One client that works on one briefing.

    `epoch` is the number of finished local epochs over all rounds. This round ends at `last_epoch`.
    """

    def __init__(self, data: ImageSet, briefing: Briefing, name: str, precision: Precision) -> None:
        header = briefing.header
        self.hostile = Hostile.at(briefing, name)  # None for an honest client
        self.draws_as = self.hostile.draws_as if self.hostile else name
        self.data = self.hostile.images(data) if self.hostile else data
        self.briefing, self.name, self.precision = briefing, name, precision
        self.budget = header.budget
        self.classes = len(header.classes)
        self.epoch = header.first_epoch
        self.last_epoch = header.first_epoch + self.budget.epochs
        self.telemetry: list[Event] = []
        self.seconds: dict[int, float] = {}  # epoch → its core time, which is in no message
        held = data.label_counts(self.classes)
        self.said = self.hostile.attack.counts(held) if self.hostile else held  # counts it sends

    @property
    def done(self) -> bool:
        return self.epoch >= self.last_epoch

    @property
    def at_checkpoint(self) -> bool:
        return self.epoch - self.briefing.header.first_epoch in self.budget.checkpoints

    def share_done(self, of_epoch: float) -> float:
        """The share of this round that is done; `of_epoch` is the share of the current epoch."""
        done = self.epoch - self.briefing.header.first_epoch
        return min(1.0, (done + of_epoch) / self.budget.epochs)

    def run_epoch(self, tell: Tell | None = None) -> Event:
        """Does the work of one epoch and returns its telemetry with its seconds."""
        spent = Stopwatch(self.precision.device.type)
        event = self.one_epoch(tell)
        self.telemetry.append(event)
        self.seconds[self.epoch] = spent.seconds
        return {**event, "seconds": self.seconds[self.epoch]}

    def timed_telemetry(self) -> list[Event]:
        """The telemetry of all epochs, with the seconds of each; None if they are not known."""
        return [{**e, "seconds": self.seconds.get(e["epoch"])} for e in self.telemetry]

    @abstractmethod
    def one_epoch(self, tell: Tell | None = None) -> Event:
        """Does the work of one epoch, counts it in `epoch`, and returns its telemetry.

        `tell` is called with the share of the epoch that is done.
        """

    @abstractmethod
    def upload(self) -> Upload:
        """The message to the server after the epochs that are finished."""

    def state(self) -> State | None:
        """Everything that the next epoch depends on; None if nothing has to be saved."""
        return None

    def restore(self, state: State) -> None:  # noqa: B027 - some clients have no state
        """Loads `state`. The results are then bit for bit those of an uninterrupted client."""

    def memory(self) -> Memory | None:
        """What the client itself keeps for its next round; None if it keeps nothing."""
        return None


def answer(client: Client) -> Upload:
    """The client's upload after all epochs of its round."""
    while not client.done:
        client.run_epoch()
    return client.upload()
