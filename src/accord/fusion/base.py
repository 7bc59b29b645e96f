"""What every fusion offers the server.

Every rule is a sum over clients of votes, then a decision: clients are streamed one at a time,
their features are computed once for all rules, and memory does not grow with their number. A rule
that makes one net of many (`average`) merges the uploads first and lets that net vote alone. A
bound such as `client-mean` fuses nothing and summarises the clients' own measures.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from inspect import get_annotations
from typing import Any, ClassVar, Literal, Protocol

import torch
from torch import Tensor, nn

from accord.closed_form.sums import Sums
from accord.core.config import Config
from accord.core.metrics import Metrics
from accord.core.parts import make_part
from accord.core.registry import Registry
from accord.data.imageset import ImageSet
from accord.messages import Briefing, Upload, UploadHeader

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Summary:
    """What the server keeps of every client while it streams: all but the encoder's weights."""

    header: UploadHeader
    tensors: dict[str, Tensor]

    @property
    def label_counts(self) -> Tensor:
        return self.tensors["label_counts"]

    @property
    def prototypes(self) -> Tensor:
        return self.tensors["net.head.prototypes"]

    @property
    def class_means(self) -> Tensor:
        """(C, d): the client's mean feature of each class, 0 where it holds none."""
        return self.tensors["class_means"]


@dataclass(frozen=True)
class Outputs:
    """A client's net on some images, in eval mode: features (N, d) and logits (N, C)."""

    features: Tensor
    logits: Tensor


class Uploads(Protocol):
    """The clients' uploads, loaded one at a time."""

    briefing: Briefing

    def __len__(self) -> int: ...
    def load(self, index: int) -> Upload: ...
    def summaries(self) -> list[Summary]: ...


combiners: Registry[type[Combiner]] = Registry("combiner", "accord.fusion")


class Combiner(nn.Module, ABC):
    """A rule at work: scores = decide(Σ_k vote(k, outputs_k)), softmax(scores) the confidences.

    All it knows is in its tensors, one image's scores never depend on another's, and so it can be
    saved, moved and exported with the nets.
    """

    name: ClassVar[str]  # under which it is registered, and found again in a saved model

    def __init__(self, **tensors: Tensor) -> None:
        super().__init__()
        for name, tensor in tensors.items():
            self.register_buffer(name, tensor)

    @classmethod
    def tensors(cls) -> set[str]:
        """The names of all it knows."""
        return {
            key
            for kind in cls.__mro__
            if issubclass(kind, Combiner) and kind is not Combiner
            for key in get_annotations(kind)
        }

    def __init_subclass__(cls, name: str, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.name = name
        combiners.register(name)(cls)

    @abstractmethod
    def vote(self, client: int, outputs: Outputs) -> Tensor: ...

    @abstractmethod
    def decide(self, total: Tensor) -> Tensor: ...


class Fusion(Config, ABC):
    """The parameters of a rule; the concrete kinds are below."""

    @property
    def of(self) -> Literal["nets", "sums"]:
        """What it fuses: what the clients' uploads must hold."""
        return "nets"

    @property
    def exchanges(self) -> int:
        """How often clients and server meet."""
        return 1

    def require(self, norm: str, public: int) -> None:
        """Raises AccordError if it could not work: with such nets, with so many public images.

        Asked before anything trains.
        """


class Vote(Fusion):
    """Keeps every client's net and combines what they say of an image."""

    @abstractmethod
    def combiner(self, clients: Sequence[Summary], briefing: Briefing) -> Combiner: ...


class Merge(Fusion):
    """Makes other nets of the uploads: one of them all, or one for each client."""

    personal: ClassVar[bool] = False  # one net for each client, which is also its own to keep

    @abstractmethod
    def merge(self, scene: Scene) -> Iterator[Upload]:
        """The new nets, in the order of the clients."""

    @abstractmethod
    def asked(self) -> Vote:
        """The rule by which the new nets answer together."""

    def described(self, briefing: Briefing) -> Briefing:
        """The briefing that the new nets answer to: that of the clients, if nets are alike."""
        return briefing

    def work(self, public: int) -> float:  # noqa: ARG002 - most only add
        """What merging takes, in images passed through the net, of so many public ones."""
        return 0.0


@dataclass(frozen=True)
class Scene:
    """What a server has when it merges."""

    uploads: Uploads
    briefing: Briefing
    public: ImageSet  # the server's own images; may be empty
    device: torch.device = CPU
    tell: Callable[[float], None] = lambda share: None  # noqa: ARG005
    total: Sums | None = None  # of all clients' sums, where they upload such
    clients: int = 0  # of the whole federation, those included that this round did not ask


class Bound(Fusion):
    """Fuses nothing: summarises what the clients' own nets reach."""

    @abstractmethod
    def summarise(
        self, test: Sequence[Metrics], validation: Sequence[Metrics]
    ) -> tuple[Metrics, float | None]:
        """Test metrics and validation accuracy, from each client's (`validation` may be empty)."""


fusions: Registry[type[Fusion]] = Registry("fusion", "accord.fusion")


def rule_of(spec: Mapping[str, Any], where: str = "fusion") -> Fusion:
    """The rule that an entry of a study or a recipe describes."""
    return make_part(fusions, plain(spec), where)


def plain(spec: Mapping[str, Any]) -> dict[str, Any]:
    """A fusion's spec without its name in the results."""
    return {key: value for key, value in spec.items() if key != "as"}


Weights = Literal["count", "sqrt", "equal"]


def client_weights(clients: Sequence[Summary], weights: Weights) -> Tensor:
    """w_k ∝ n_k, √n_k or 1, summing to 1."""
    counts = torch.tensor([client.header.samples for client in clients], dtype=torch.float64)
    chosen = {"count": counts, "sqrt": counts.sqrt(), "equal": torch.ones_like(counts)}[weights]
    return chosen / chosen.sum()
