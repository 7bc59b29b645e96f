"""What a client keeps for itself and never sends: between two epochs, and between two rounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import Field

from accord.core.config import Config
from accord.messages.base import Message


class StateHeader(Config):
    """How far an interrupted client got."""

    client: str
    epoch: int = Field(ge=0)
    briefing: str
    telemetry: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True)
class State(Message):
    """A client's training between two epochs, to go on from after an interruption."""

    header: StateHeader
    kind: ClassVar[str] = "state"
    header_type: ClassVar[type[Config]] = StateHeader


class MemoryHeader(Config):
    """Whose memory it is, and of which round."""

    client: str
    round: int = Field(ge=1)
    briefing: str


@dataclass(frozen=True)
class Memory(Message):
    """What a client keeps from one round for its next: learnt balances, SCAFFOLD's c_k."""

    header: MemoryHeader
    kind: ClassVar[str] = "memory"
    header_type: ClassVar[type[Config]] = MemoryHeader
