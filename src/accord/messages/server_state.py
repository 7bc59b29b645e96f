"""What the server keeps between two rounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import Field
from torch import Tensor

from accord.core.config import Config
from accord.messages.base import Message
from accord.messages.briefing import Briefing, BriefingHeader

SERVER = "server."  # prefix of tensors that the briefing does not contain


class ServerStateHeader(Config):
    """The round that begins with this state, and the clients of the round before.

    After the last of R rounds there is a state with the number R + 1, which briefs nobody.
    """

    round: int = Field(ge=1)
    briefing: BriefingHeader  # of any round; the number of its round is not used
    answered: tuple[str, ...] = ()  # clients whose uploads this state was computed from
    own: dict[str, Any] = Field(default={})  # other values that a method needs later


@dataclass(frozen=True)
class ServerState(Message):
    """The state at the start of a round: the content of its briefing, and the server's own data."""

    header: ServerStateHeader
    kind: ClassVar[str] = "server state"
    header_type: ClassVar[type[Config]] = ServerStateHeader

    @property
    def round(self) -> int:
        return self.header.round

    @classmethod
    def first(cls, briefing: Briefing, **server: Tensor) -> ServerState:
        """The state of round 1, made from the first briefing."""
        own = {SERVER + name: tensor for name, tensor in server.items()}
        header = ServerStateHeader(round=briefing.header.round, briefing=briefing.header)
        return cls(header, {**briefing.tensors, **own})

    def briefing(self) -> Briefing:
        """The briefing of the round: the part of the state that clients receive."""
        told = {n: t for n, t in self.tensors.items() if not n.startswith(SERVER)}
        return Briefing(self.header.briefing.model_copy(update={"round": self.round}), told)

    def with_own(self, own: dict[str, Any]) -> ServerState:
        """The same state with further values of the server."""
        told = {**self.header.own, **own}
        return ServerState(self.header.model_copy(update={"own": told}), self.tensors)

    def next(
        self, changed: dict[str, Tensor], answered: tuple[str, ...], **own: Any
    ) -> ServerState:
        """The state of the next round, in which the `changed` tensors replace the current ones."""
        told = self.header.briefing
        if told.first is None:
            told = told.model_copy(update={"first": self.briefing().digest})
        header = ServerStateHeader(
            round=self.round + 1,
            briefing=told,
            answered=answered,
            own={**self.header.own, **own},
        )
        return ServerState(header, {**self.tensors, **changed})
