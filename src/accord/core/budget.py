"""The section `budget` of a study: how long and how a client trains."""

from __future__ import annotations

from typing import Any

from pydantic import Field, field_validator, model_validator

from accord.core.config import Config
from accord.core.schedules import Fall

MOST_ROUNDS = 10_000  # of a method; more would only be a slip of the pen


class Budget(Config):
    """How long and how a client trains. All defaults except `epochs` are those of FAFI."""

    epochs: int = Field(10, ge=1)
    batch: int = Field(128, ge=1, description="number of images per step, before views are made")
    lr: float = Field(0.05, gt=0)
    momentum: float = Field(0.9, ge=0, lt=1)
    weight_decay: float = Field(0.0, ge=0)
    schedule: Fall = Field(
        "constant", description="how the learning rate falls over all local training"
    )
    clip: float | None = Field(
        1.0, gt=0, description="largest gradient norm; null means that gradients are not clipped"
    )
    checkpoints: tuple[int, ...] = Field(
        (), description="epochs after which the results are measured"
    )
    look_every: int = Field(
        20,
        ge=1,
        description="telemetry measures the gradients of both losses once in this many steps",
    )

    @field_validator("checkpoints", mode="before")
    @classmethod
    def _one_checkpoint(cls, value: Any) -> Any:
        return [value] if isinstance(value, int) else value

    @model_validator(mode="after")
    def _last_epoch_is_a_checkpoint(self) -> Budget:
        outside = [epoch for epoch in self.checkpoints if not 1 <= epoch <= self.epochs]
        if outside:
            raise ValueError(
                f"every checkpoint must lie between 1 and epochs = {self.epochs}; found {outside}: "
                "change budget.checkpoints as well"
            )
        epochs = tuple(sorted({*self.checkpoints, self.epochs}))
        object.__setattr__(self, "checkpoints", epochs)
        return self

    def with_checkpoint(self, epoch: int) -> Budget:
        return Budget.model_validate(
            {**self.model_dump(), "checkpoints": (*self.checkpoints, epoch)}
        )
