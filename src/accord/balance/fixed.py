"""A constant weight, the same for every client (OursV5, V7, V8 of the notes)."""

from __future__ import annotations

from pydantic import Field
from torch import Tensor

from accord.balance.base import Balance, Readings, Step, Weigher, Weights, balances
from accord.core.schedules import Fall, falling


@balances.register("fixed")
class Fixed(Balance):
    """L = L_loc + s(p)·λ·L_al with a constant λ."""

    lambda_: float = Field(5.0, ge=0, alias="lambda", description="λ, the alignment weight")
    attenuation: Fall = Field(
        "constant", description="s(p): constant (1), linear (1 − p) or cosine (½(1 + cos πp))"
    )

    def start(self, label_counts: Tensor) -> Weigher:  # noqa: ARG002 - λ is equal at every client
        return FixedWeigher(self.lambda_, self.attenuation)


class FixedWeigher(Weigher):
    """A weigher with the weight λ·s(p)."""

    def __init__(self, lambda_: float, attenuation: Fall = "constant") -> None:
        super().__init__()
        self.lambda_, self.attenuation = lambda_, attenuation

    def weigh(self, step: Step) -> Weights:
        return Weights(align=self.lambda_ * falling(self.attenuation, step.progress))

    def readings(self, progress: float) -> Readings:
        return Readings(self.lambda_, falling(self.attenuation, progress))
