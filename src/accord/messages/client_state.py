"""What a client keeps between two epochs and between two rounds. It never sends these files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import Field

from accord.core.config import Config
from accord.messages.base import Message


class StateHeader(Config):
    """How far an interrupted client has come."""

    client: str
    epoch: int = Field(ge=0)
    briefing: str
    telemetry: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True)
class State(Message):
    """The state of a client's training between two epochs, used to resume after an interruption."""

    header: StateHeader
    kind: ClassVar[str] = "state"
    header_type: ClassVar[type[Config]] = StateHeader


class MemoryHeader(Config):
    """The client that a memory belongs to, and its round."""

    client: str
    round: int = Field(ge=1)
    briefing: str


@dataclass(frozen=True)
class Memory(Message):
    """What a client keeps from one round for its next one: learnt balances, SCAFFOLD's c_k."""

    header: MemoryHeader
    kind: ClassVar[str] = "memory"
    header_type: ClassVar[type[Config]] = MemoryHeader
