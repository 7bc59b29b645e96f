"""What every balance offers the client loop.

A `Balance` holds the parameters of a rule; `start` gives a `Weigher`, its running state at one
client. A weigher is a module: parameters it learns (σ) and buffers it keeps are part of a
client's checkpoint without further ado.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from accord.config import Config
from accord.registry import Registry


@dataclass(frozen=True)
class Setting:
    """What a rule may know of its client before the first step."""

    label_counts: Tensor
    lr: float


@dataclass(frozen=True)
class Readings:
    """A rule's dials at some progress, for telemetry."""

    lambda_raw: float
    attenuation: float

    @property
    def lambda_effective(self) -> float:
        return self.lambda_raw * self.attenuation


class Weigher(nn.Module, ABC):
    """One client's running balance."""

    @abstractmethod
    def weigh(self, local: Tensor, align: Tensor, progress: float) -> Tensor:
        """The loss to minimise at progress p ∈ [0, 1] of all local training."""

    @abstractmethod
    def readings(self, progress: float) -> Readings: ...

    def backward(self, local: Tensor, align: Tensor, progress: float) -> Tensor:
        """Fills the gradients and returns the loss; rules that mix gradients override this."""
        loss = self.weigh(local, align, progress)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Optimiser groups of what the rule learns: each with its own lr, momentum and decay."""
        return []


class Balance(Config, ABC):
    """The parameters of a rule."""

    @abstractmethod
    def start(self, setting: Setting) -> Weigher: ...


balances: Registry[type[Balance]] = Registry("balance", "accord.balance")
