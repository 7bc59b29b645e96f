"""The interface of a method: how the server starts, briefs its clients and begins the next round.

A method does not depend on the engine, on files or on the time. After the last round the recipe's
fusions make the predictor, as in a one-shot method.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Self

from accord.core.config import Config
from accord.core.mergenet import MergeNetConfig
from accord.core.registry import Registry
from accord.fusion.base import Scene
from accord.messages import Briefing, BriefingHeader, ServerState, TrainingSpec
from accord.nets.settings import TeacherConfig
from accord.objective import make_term


class Method(Config, ABC):
    """The parameters of a method; its functions compute the server state of each round."""

    @property
    @abstractmethod
    def rounds(self) -> int:
        """The number of rounds. In each round a client gets one briefing and sends one upload."""

    def start(self, opening: Briefing) -> ServerState:
        """The state of round 1, with the initial weights, anchors and bank of the `opening`."""
        told = opening.header.model_copy(update={"rounds": self.rounds})
        return ServerState.first(Briefing(told, opening.tensors))

    def brief(self, state: ServerState) -> Briefing:
        """The message to every client of the round that begins with `state`."""
        return state.briefing()

    @abstractmethod
    def advance(self, state: ServerState, scene: Scene) -> ServerState:
        """The state of the next round, from the uploads of this round (`scene.uploads`)."""

    @property
    def one_by_one(self) -> bool:
        """Whether each round asks one client, which `chosen` names."""
        return False

    def require_clients(self, clients: int) -> None:
        """Raises AccordError if the number of rounds does not suit this number of clients."""

    def chosen(self, clients: tuple[str, ...], seed: int, number: int) -> tuple[str, ...] | None:  # noqa: ARG002
        """The clients that round `number` asks; None: as the study's section `rounds` says."""
        return None

    def measured(self, number: int) -> bool:  # noqa: ARG002 - most methods measure all rounds
        """Whether the results are measured after round `number`; after the last one they are."""
        return True

    @property
    def open_rounds(self) -> bool:
        """Whether the number of rounds depends on the number of clients (`rounds_for`)."""
        return False

    def rounds_for(self, clients: int) -> int:  # noqa: ARG002 - most methods ask all clients
        """The number of rounds with this number of clients."""
        return self.rounds

    def with_rounds(self, count: int | None) -> Self:  # noqa: ARG002
        """The method with `count` rounds, if their number can be chosen; None changes nothing."""
        return self

    def with_settings(self, mergenet: MergeNetConfig, teacher: TeacherConfig) -> Self:  # noqa: ARG002
        """The method with the settings of the study's sections, if it uses them."""
        return self

    @property
    def needs_teacher(self) -> bool:
        """Whether `start` needs the weights of the server's teacher."""
        return False

    @property
    def starts_from(self) -> dict[str, Any] | None:
        """The fusion of the uploads whose net `advance` enriches; None if it only merges."""
        return None

    def fusion_applied(self, number: int) -> bool | None:  # noqa: ARG002
        """Whether round `number` fuses knowledge into the net; None if the method never does."""
        return None

    def require(self, norm: str, public: int) -> None:
        """Raises AccordError if the method cannot work with this norm or number of public images.

        It is called before any training starts.
        """

    def work(self, public: int) -> float:  # noqa: ARG002 - most methods only add
        """The cost of `advance` with this number of public images, in images through the net."""
        return 0.0

    def shortened(self) -> Self:
        """The method with little work, for a rehearsal of `advance` after round 1."""
        return self

    def filled(self, fusion: dict[str, Any], where: str) -> Self:  # noqa: ARG002
        """The checked method, with the values that it takes from the recipe's first `fusion`."""
        return self


def clients_ask_teacher(header: BriefingHeader) -> bool:
    """Whether a term of the clients' objective needs the server's teacher."""
    asked = header.training
    terms = asked.objective if isinstance(asked, TrainingSpec) else {}
    return any(make_term(name, spec, name).uses_teacher() for name, spec in terms.items())


methods: Registry[type[Method]] = Registry("method", "accord.methods")
