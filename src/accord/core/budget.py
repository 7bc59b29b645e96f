"""The section `budget` of a study: how long and how a client trains."""

from __future__ import annotations

from bisect import bisect_right
from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from accord.core.config import Config
from accord.core.schedules import falling

MOST_ROUNDS = 10_000  # of a method; more would only be a slip of the pen
MOST_BATCH = 1_000_000  # images of a step, for the same reason
MOST_EPOCHS = 1_000_000  # of local training, for the same reason


class Budget(Config):
    """How long and how a client trains. All defaults except `epochs` are those of FAFI."""

    epochs: int = Field(10, ge=1, le=MOST_EPOCHS)
    batch: int = Field(
        128, ge=1, le=MOST_BATCH, description="number of images per step, before views are made"
    )
    lr: float = Field(0.05, gt=0)
    momentum: float = Field(0.9, ge=0, lt=1)
    weight_decay: float = Field(0.0, ge=0)
    muon: float | None = Field(
        None,
        gt=0,
        le=1,
        description="learning rate of Muon for the kernels of convolutions, which keep their "
        "length; null: SGD for all parameters",
    )
    schedule: Literal["constant", "linear", "cosine", "multistep"] = Field(
        "constant", description="how the learning rate falls over all local training"
    )
    milestones: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        (),
        description="for multistep: epochs, counted over all rounds, after which the learning rate "
        "is multiplied by gamma",
    )
    gamma: float = Field(0.1, gt=0, le=1, description="for multistep: the factor at a milestone")
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

    @model_validator(mode="after")
    def _milestones_belong_to_multistep(self) -> Budget:
        if self.schedule == "multistep" and not self.milestones:
            raise ValueError("the schedule multistep needs milestones, for example [60, 120]")
        if self.milestones and self.schedule != "multistep":
            raise ValueError(
                f"milestones are for the schedule multistep; found the schedule {self.schedule}"
            )
        if list(self.milestones) != sorted(set(self.milestones)):
            raise ValueError(f"expected milestones in rising order; found {list(self.milestones)}")
        return self

    @model_serializer(mode="wrap")
    def _only_what_is_used(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leaves out Muon if it is not used, so that it changes no other briefing and no record."""
        values: dict[str, Any] = dump(self)
        return {key: value for key, value in values.items() if key != "muon" or value is not None}

    @property
    def rates(self) -> str:
        """The learning rates in words."""
        return f"lr {self.lr:g}" + ("" if self.muon is None else f", Muon {self.muon:g}")

    def lr_factor(self, progress: float, epoch: int) -> float:
        """The factor of the learning rate at progress p, after `epoch` epochs of all rounds.

        For multistep it is γ^(number of milestones ≤ epoch), as in MultiStepLR of PyTorch.
        """
        if self.schedule == "multistep":
            return float(self.gamma ** bisect_right(self.milestones, epoch))
        return falling(self.schedule, progress)

    def changed(self, own: dict[str, Any]) -> Budget:
        """The budget with the values of `own`; keys that depend on a changed key are reset."""
        if "epochs" in own:
            own = {"checkpoints": (), **own}
        if own.get("schedule", "multistep") != "multistep":
            own = {"milestones": (), **own}
        return Budget.model_validate({**self.model_dump(), **own})

    def with_checkpoint(self, epoch: int) -> Budget:
        return self.changed({"checkpoints": (*self.checkpoints, epoch)})
