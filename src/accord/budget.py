"""The sections `net` and `budget` of a study: what a client trains, how long and how."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from accord.config import Config
from accord.nets.backbones import backbones
from accord.schedules import Fall


class NetConfig(Config):
    """The clients' net."""

    backbone: str = "resnet10"
    norm: Literal["batch", "group"] = "batch"

    @field_validator("backbone")
    @classmethod
    def _known_backbone(cls, value: str) -> str:
        backbones.get(value)
        return value


class Budget(Config):
    """How long and how a client trains. Defaults are FAFI's, but for the epochs."""

    epochs: int = Field(10, ge=1)
    batch: int = Field(128, ge=1, description="images per step, before views")
    lr: float = Field(0.05, gt=0)
    momentum: float = Field(0.9, ge=0, lt=1)
    weight_decay: float = Field(0.0, ge=0)
    schedule: Fall = Field("constant", description="of the lr, over all local training")
    clip: float | None = Field(1.0, gt=0, description="gradient norm; null: none")
    checkpoints: tuple[int, ...] = Field((), description="epochs after which to measure")
    look_every: int = Field(
        20, ge=1, description="steps between looks at the gradients of both losses, for telemetry"
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
                f"checkpoints lie between 1 and epochs = {self.epochs}; found {outside}: change "
                "budget.checkpoints as well"
            )
        epochs = tuple(sorted({*self.checkpoints, self.epochs}))
        object.__setattr__(self, "checkpoints", epochs)
        return self

    def with_checkpoint(self, epoch: int) -> Budget:
        return Budget.model_validate(
            {**self.model_dump(), "checkpoints": (*self.checkpoints, epoch)}
        )
