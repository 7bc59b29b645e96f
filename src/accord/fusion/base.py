"""The interface of a fusion rule.

Every rule adds the votes of the clients and then makes a decision. Clients are processed one at a
time, their features are computed once for all rules, and the memory does not grow with the number
of clients. A rule that makes one net from many (`average`) merges the uploads first, and only the
merged net votes. A reference such as `client-mean` does not fuse; it summarises the metrics of the
clients' own nets.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from inspect import get_annotations
from typing import Any, ClassVar, Literal, Protocol, Self

import torch
from torch import Tensor, nn

from accord.closed_form.sums import Sums
from accord.core.config import Config
from accord.core.errors import AccordError
from accord.core.metrics import Metrics
from accord.core.registry import Registry
from accord.data.imageset import ImageSet
from accord.messages import Briefing, ServerState, Upload, UploadHeader

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Summary:
    """The part of an upload that the server keeps in memory: all except the encoder's weights."""

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
        """(C, d): the client's mean feature of each class; 0 if it holds no image of the class."""
        return self.tensors["class_means"]


@dataclass(frozen=True)
class Outputs:
    """The outputs of a client's net in eval mode: features (N, d) and logits (N, C)."""

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
    """The module of a rule: scores = decide(Σ_k vote(k, outputs_k)); softmax gives confidences.

    All its data are in its tensors, and the scores of one image never depend on other images.
    Therefore it can be saved, moved and exported with the nets.
    """

    name: ClassVar[str]  # the name in the registry and in saved models

    def __init__(self, **tensors: Tensor) -> None:
        super().__init__()
        for name, tensor in tensors.items():
            self.register_buffer(name, tensor)

    @classmethod
    def tensors(cls) -> set[str]:
        """The names of its tensors."""
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
    """The parameters of a rule, which is a `Vote`, a `Merge` or a `ReferenceRule` (below)."""

    needs_labelled: ClassVar[bool] = False  # needs labelled images of the server
    needs_validation: ClassVar[bool] = False  # needs images on which nobody trains

    @property
    def of(self) -> Literal["nets", "sums"]:
        """What the clients' uploads must hold: nets or sums."""
        return "nets"

    @property
    def exchanges(self) -> int:
        """The number of message exchanges between clients and server."""
        return 1

    def require(self, norm: str, public: int) -> None:
        """Raises AccordError if the rule cannot work with this norm or number of public images.

        It is called before any training starts.
        """

    def require_own(self, public: int, validation: int) -> None:
        """Raises AccordError if a study's server has too few labelled images of its own."""
        if self.needs_labelled and not public + validation:
            raise AccordError(
                "it needs labelled images of the server, found none: set data.validation or "
                "data.public, for example to 0.1."
            )
        if self.needs_validation and not validation:
            raise AccordError(
                "it needs validation images, found none: set data.validation, for example to 0.05."
            )


class Vote(Fusion):
    """A rule that keeps every client's net and combines their outputs for an image."""

    @abstractmethod
    def combiner(self, clients: Sequence[Summary], briefing: Briefing) -> Combiner: ...


class Merge(Fusion):
    """A rule that makes new nets from the uploads: one for all clients, or one for each client."""

    personal: ClassVar[bool] = False  # makes a personal net for each client
    after_advance: ClassVar[bool] = False  # uses the state that the method made of the uploads

    @abstractmethod
    def merge(self, scene: Scene) -> Iterator[Upload]:
        """The new nets, in the order of the clients."""

    @abstractmethod
    def asked(self) -> Vote:
        """The rule that combines the outputs of the new nets."""

    def described(self, briefing: Briefing) -> Briefing:
        """The briefing that describes the new nets: the clients' own if the nets are alike."""
        return briefing

    def work(self, public: int) -> float:  # noqa: ARG002 - most rules only add weights
        """The cost of merging with `public` public images, in images passed through the net."""
        return 0.0

    def shortened(self) -> Self:
        """The rule with little work, for a rehearsal: all kinds of its steps, but few of them."""
        return self


@dataclass(frozen=True)
class Scene:
    """The inputs of a merge: uploads, briefing and the server's own images."""

    uploads: Uploads
    briefing: Briefing
    public: ImageSet  # the server's own images; may be empty
    validation: ImageSet | None = None  # images that were held out to choose between settings
    device: torch.device = CPU
    tell: Callable[[float], None] = lambda share: None  # noqa: ARG005
    total: Sums | None = None  # the total of all clients' sums, if clients upload sums
    after: ServerState | None = None  # the state after the round, for a rule that uses it
    clients: int = 0  # all clients of the federation, also those not selected in this round

    @property
    def labelled(self) -> ImageSet:
        """Labelled images to choose by: validation images or, without any, public ones."""
        return (
            self.validation if self.validation is not None and len(self.validation) else self.public
        )

    @property
    def answered(self) -> tuple[str, ...]:
        """The clients whose uploads there are."""
        return tuple(summary.header.client for summary in self.uploads.summaries())


class ReferenceRule(Fusion):
    """A reference value without fusion: a summary of the metrics of the clients' own nets."""

    @abstractmethod
    def summarise(
        self, test: Sequence[Metrics], validation: Sequence[Metrics]
    ) -> tuple[Metrics, float | None]:
        """Test metrics and validation accuracy, from those of each client.

        `validation` may be empty.
        """


fusions: Registry[type[Fusion]] = Registry("fusion", "accord.fusion")


Weights = Literal["count", "sqrt", "equal"]


def client_weights(clients: Sequence[Summary], weights: Weights) -> Tensor:
    """w_k ∝ n_k, √n_k or 1, with Σ_k w_k = 1."""
    found = relative_weights([client.header.samples for client in clients], weights)
    return found / found.sum()


def relative_weights(samples: Sequence[int], weights: Weights) -> Tensor:
    """n_k, √n_k or 1 for clients with n_k images, not yet divided by their sum."""
    counts = torch.tensor(samples, dtype=torch.float64)
    return {"count": counts, "sqrt": counts.sqrt(), "equal": torch.ones_like(counts)}[weights]
