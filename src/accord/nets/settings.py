"""The sections `net` and `teacher` of a study."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from accord.core.config import Config


class NetConfig(Config):
    """The clients' net."""

    backbone: str = "resnet10"
    norm: Literal["batch", "group"] = "batch"

    @field_validator("backbone")
    @classmethod
    def _known_backbone(cls, value: str) -> str:
        return _known(value)


class TeacherConfig(Config):
    """The server's teacher, for recipes that learn from one (MergeNet, knowledge distillation)."""

    backbone: str | None = Field(
        None, description="the teacher's backbone; null: that of the model, else net.backbone"
    )
    model: str | None = Field(
        None,
        min_length=1,
        description="folder of a saved model (accord teacher); null: the server trains the teacher "
        "on its public images",
    )
    epochs: int | None = Field(
        None,
        ge=1,
        le=1_000_000,
        description="epochs of a teacher that the server trains; null: those of the recipe "
        "public-teacher",
    )
    trainable: bool = Field(
        False,
        description="the server trains the teacher on, with its public images, in every round with "
        "a fusion",
    )
    allow_random: bool = Field(
        False, description="where there is no model, use a teacher with random weights (a control)"
    )

    @field_validator("backbone")
    @classmethod
    def _known_backbone(cls, value: str | None) -> str | None:
        return None if value is None else _known(value)


def _known(backbone: str) -> str:
    # The registry of backbones imports torch, which the reading of settings does not need.
    from accord.nets.backbones import backbones

    backbones.get(backbone)
    return backbone
