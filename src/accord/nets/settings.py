"""The section `net` of a study."""

from __future__ import annotations

from typing import Literal

from pydantic import field_validator

from accord.core.config import Config


class NetConfig(Config):
    """The clients' net."""

    backbone: str = "resnet10"
    norm: Literal["batch", "group"] = "batch"

    @field_validator("backbone")
    @classmethod
    def _known_backbone(cls, value: str) -> str:
        # The registry of backbones imports torch, which the reading of settings does not need.
        from accord.nets.backbones import backbones

        backbones.get(value)
        return value
