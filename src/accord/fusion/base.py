"""What every fusion offers the server.

Every rule is a sum over clients of votes, then a decision: clients are streamed one at a time,
their features are computed once for all rules, and memory does not grow with their number. A rule
that makes one net of many (`average`) merges the uploads first and lets that net vote alone. A
bound such as `client-mean` fuses nothing and summarises the clients' own measures.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

from accord.config import Config
from accord.messages import Upload, UploadHeader
from accord.metrics import Metrics
from accord.registry import Registry


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

    def __len__(self) -> int: ...
    def load(self, index: int) -> Upload: ...
    def summaries(self) -> list[Summary]: ...


class Combiner(Protocol):
    """A rule at work on one batch of images: scores = decide(Σ_k vote(k, outputs_k)).

    softmax(scores) are the confidences.
    """

    def vote(self, client: int, outputs: Outputs) -> Tensor: ...
    def decide(self, total: Tensor) -> Tensor: ...


class Fusion(Config, ABC):
    """The parameters of a rule; the concrete kinds are below."""


class Vote(Fusion):
    """Keeps every client's net and combines what they say of an image."""

    @abstractmethod
    def combiner(self, clients: Sequence[Summary]) -> Combiner: ...


class Merge(Fusion):
    """Makes one net of all uploads."""

    @abstractmethod
    def merge(self, uploads: Uploads) -> Upload: ...


class Bound(Fusion):
    """Fuses nothing: summarises what the clients' own nets reach."""

    @abstractmethod
    def summarise(
        self, test: Sequence[Metrics], validation: Sequence[Metrics]
    ) -> tuple[Metrics, float | None]:
        """Test metrics and validation accuracy, from each client's (`validation` may be empty)."""


fusions: Registry[type[Fusion]] = Registry("fusion", "accord.fusion")

Weights = Literal["count", "sqrt", "equal"]


def client_weights(clients: Sequence[Summary], weights: Weights) -> Tensor:
    """w_k ∝ n_k, √n_k or 1, summing to 1."""
    counts = torch.tensor([client.header.samples for client in clients], dtype=torch.float64)
    chosen = {"count": counts, "sqrt": counts.sqrt(), "equal": torch.ones_like(counts)}[weights]
    return chosen / chosen.sum()
