"""What the server keeps between two rounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import Field
from torch import Tensor

from accord.core.config import Config
from accord.messages.base import Message
from accord.messages.briefing import Briefing, BriefingHeader

SERVER = "server."  # prefix of tensors that no briefing carries


class ServerStateHeader(Config):
    """The round that begins with this state, and what led to it."""

    briefing: BriefingHeader
    answered: tuple[str, ...] = ()  # clients whose uploads made it
    own: dict[str, Any] = Field(default={})  # whatever else a method has to remember


@dataclass(frozen=True)
class ServerState(Message):
    """The state with which a round begins: all that its briefing says, and the server's own."""

    header: ServerStateHeader
    kind: ClassVar[str] = "server state"
    header_type: ClassVar[type[Config]] = ServerStateHeader

    @property
    def round(self) -> int:
        return self.header.briefing.round

    @classmethod
    def first(cls, briefing: Briefing, **server: Tensor) -> ServerState:
        """The state of round 1, whose briefing is given."""
        own = {SERVER + name: tensor for name, tensor in server.items()}
        return cls(ServerStateHeader(briefing=briefing.header), {**briefing.tensors, **own})

    def briefing(self) -> Briefing:
        """What clients are told of it."""
        told = {n: t for n, t in self.tensors.items() if not n.startswith(SERVER)}
        return Briefing(self.header.briefing, told)

    def next(
        self, changed: dict[str, Tensor], answered: tuple[str, ...], **own: Any
    ) -> ServerState:
        """The state of the next round: `changed` tensors take the place of those of now."""
        told = self.header.briefing.model_copy(update={"round": self.round + 1})
        header = ServerStateHeader(briefing=told, answered=answered, own={**self.header.own, **own})
        return ServerState(header, {**self.tensors, **changed})
