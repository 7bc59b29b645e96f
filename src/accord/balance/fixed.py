"""A constant weight, the same for every client (OursV5, V7, V8 of the notes)."""

from __future__ import annotations

from pydantic import Field
from torch import Tensor

from accord.balance.base import Balance, Readings, Setting, Weigher, balances


@balances.register("fixed")
class Fixed(Balance):
    """L = L_loc + s(p)·λ·L_al with constant λ; s = 1, or 1 − p when `decay` is set."""

    lambda_: float = Field(5.0, ge=0, alias="lambda", description="λ")
    decay: bool = Field(False, description="multiply λ by 1 − p, progress p over all training")

    def start(self, setting: Setting) -> Weigher:  # noqa: ARG002 - the same at every client
        return FixedWeigher(self)


class FixedWeigher(Weigher):
    def __init__(self, rule: Fixed) -> None:
        super().__init__()
        self.rule = rule

    def readings(self, progress: float) -> Readings:
        return Readings(self.rule.lambda_, 1 - progress if self.rule.decay else 1.0)

    def weigh(self, local: Tensor, align: Tensor, progress: float) -> Tensor:
        return local + self.readings(progress).lambda_effective * align
