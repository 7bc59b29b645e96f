"""The interface of a balance: a rule that sets the weights of the local and alignment losses.

A `Balance` holds the parameters of a rule. `start` returns a `Weigher`: the state of the rule at
one client and for one alignment term. A weigher is a module, so the parameters that it learns (σ)
and its buffers are automatically part of a client's checkpoint.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor, nn

from accord.balance.gradients import Gradients
from accord.core.config import Config
from accord.core.registry import Registry


@dataclass(frozen=True)
class Step:
    """The input of a balance at one training step. The losses are detached from the graph."""

    progress: float  # p ∈ [0, 1) over all local training
    local: Tensor  # L_loc
    align: Tensor  # L_al, the loss of the balance's own alignment term
    terms: Mapping[str, Tensor]  # every local loss, by the name of its term
    gradients: Gradients | None = None  # given at every step if the rule wants gradients


@dataclass(frozen=True)
class Weights:
    """The weights of one step: the net minimises `local`·L_loc + `align`·L_al.

    If `local` is None, the rule leaves L_loc unchanged. A rule that mixes gradients sets `shared`,
    a further factor of ∇L_loc on the parameters that both losses depend on.
    """

    align: Tensor | float
    local: Tensor | None = None
    shared: Tensor | None = None


@dataclass(frozen=True)
class Readings:
    """A rule's values at one progress, for telemetry. None means that the rule lacks the value."""

    lambda_raw: float | None
    attenuation: float = 1.0
    sigma_sq_local: float | None = None
    sigma_sq_align: float | None = None
    gamma: float | None = None

    @property
    def lambda_effective(self) -> float | None:
        return None if self.lambda_raw is None else self.lambda_raw * self.attenuation


@dataclass(frozen=True)
class Group:
    """Parameters that a rule learns, and their optimiser settings. They have no weight decay."""

    parameters: list[nn.Parameter]
    lr_factor: float = 1.0  # the learning rate divided by the net's
    momentum: float | Literal["net"] = "net"
    clip: Literal["together", "apart"] = "together"  # one gradient norm with the net, or a separate


class Weigher(nn.Module, ABC):
    """The state of a balance at one client, for one alignment term."""

    wants_gradients = False

    @abstractmethod
    def weigh(self, step: Step) -> Weights:
        """The weights of this step, without gradients. A rule updates its moving averages here."""

    @abstractmethod
    def readings(self, progress: float) -> Readings: ...

    def own_loss(self, step: Step) -> Tensor | None:  # noqa: ARG002 - most rules learn nothing
        """The loss that the rule's own parameters minimise."""
        return None

    def equilibrium(self, local: float, align: float, progress: float) -> float | None:  # noqa: ARG002
        """λ*, to which λ_raw would converge with constant losses; None if λ_raw does not change."""
        return None

    def groups(self) -> list[Group]:
        return []


class Balance(Config, ABC):
    """The parameters of a rule."""

    weighs_local: ClassVar[bool] = False  # its Weights set `local`
    mixes_gradients: ClassVar[bool] = False  # its Weights set `shared`

    @abstractmethod
    def start(self, label_counts: Tensor) -> Weigher:
        """The rule's state at a client with `label_counts`[c] = n_kc images of class c."""

    def watched(self) -> str | None:
        """The name of the local term whose loss the rule reads; None if it reads no single term."""
        return None

    def require(self) -> None:
        """Raises AccordError when an optional package that the rule needs is missing."""


balances: Registry[type[Balance]] = Registry("balance", "accord.balance")
