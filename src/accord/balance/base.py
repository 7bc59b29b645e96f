"""What every balance offers the client loop.

A `Balance` holds the parameters of a rule; `start` gives a `Weigher`, its running state at one
client and for one alignment term. A weigher is a module: parameters it learns (σ) and buffers it
keeps are part of a client's checkpoint without further ado.
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
    """One step as a balance sees it. The losses are values: no gradient flows back through them."""

    progress: float  # p ∈ [0, 1) over all local training
    local: Tensor  # L_loc
    align: Tensor  # L_al, the loss of the balance's own alignment term
    terms: Mapping[str, Tensor]  # every local loss by its term's name
    gradients: Gradients | None = None  # at every step for rules that want them


@dataclass(frozen=True)
class Weights:
    """What the net minimises at one step: `local`·L_loc + `align`·L_al.

    `local` None: the rule leaves L_loc as it is. `shared` further multiplies ∇L_loc on the
    parameters that both losses reach, for rules that mix gradients.
    """

    align: Tensor | float
    local: Tensor | None = None
    shared: Tensor | None = None


@dataclass(frozen=True)
class Readings:
    """A rule's dials at some progress, for telemetry. None: the rule has no such dial."""

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
    """Parameters a rule learns, and how the optimiser treats them. Never any weight decay."""

    parameters: list[nn.Parameter]
    lr_factor: float = 1.0  # × the net's lr
    momentum: float | Literal["net"] = "net"
    clip: Literal["together", "apart"] = "together"  # one gradient norm with the net's, or its own


class Weigher(nn.Module, ABC):
    """One client's running balance of one alignment term."""

    wants_gradients = False

    @abstractmethod
    def weigh(self, step: Step) -> Weights:
        """The weights of this step, as values. A rule that keeps averages renews them here."""

    @abstractmethod
    def readings(self, progress: float) -> Readings: ...

    def own_loss(self, step: Step) -> Tensor | None:  # noqa: ARG002 - most learn nothing
        """What the rule's own parameters minimise."""
        return None

    def equilibrium(self, local: float, align: float, progress: float) -> float | None:  # noqa: ARG002
        """λ*: where λ_raw would settle if the losses stayed as they are. None: it does not move."""
        return None

    def groups(self) -> list[Group]:
        return []


class Balance(Config, ABC):
    """The parameters of a rule."""

    weighs_local: ClassVar[bool] = False  # its Weights have a `local`
    mixes_gradients: ClassVar[bool] = False  # its Weights have a `shared`

    @abstractmethod
    def start(self, label_counts: Tensor) -> Weigher:
        """The rule at work at a client with n_kc images of class c."""

    def watched(self) -> str | None:
        """The local term whose loss the rule reads, if it is one alone."""
        return None

    def require(self) -> None:
        """Raises AccordError when an optional package that the rule needs is missing."""


balances: Registry[type[Balance]] = Registry("balance", "accord.balance")
