"""Blocks whose values come from a saved model instead of another recipe of the study."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import Self

from pydantic import Field, model_validator
from torch import Tensor

from accord.core.errors import AccordError
from accord.messages.saved_model import SavedModel, digest_of
from accord.nets.maps.base import Block


class InModel(Block):
    """A block with tensors of a model that `accord fuse --save` wrote."""

    model: str = Field(description="folder of the saved model")
    digest: str = Field("", description="is set automatically; do not set it")

    @model_validator(mode="after")
    def _found_out(self) -> Self:
        """Reads the model once. A briefing holds all values, so a client does not need the file."""
        if not self.digest:
            found = SavedModel.load(Path(self.model))
            self.refuse(found)
            told = {**self.told_by(found), "digest": digest_of(self.taken_from(found))}
            for name, value in told.items():
                object.__setattr__(self, name, value)
        return self

    @abstractmethod
    def refuse(self, found: SavedModel) -> None:
        """Raises AccordError if the block cannot use the model."""

    @abstractmethod
    def told_by(self, found: SavedModel) -> dict[str, object]:
        """The settings of the block that the model determines."""

    @abstractmethod
    def taken_from(self, found: SavedModel) -> dict[str, Tensor]:
        """The tensors of the model that the block uses."""

    def taken(self, channels: int) -> tuple[SavedModel, dict[str, Tensor]]:
        """The model and these tensors, which must be those of the block's `digest`."""
        found = SavedModel.load(Path(self.model))
        if found.header.channels != channels:
            raise AccordError(
                f"the model {self.model} is for images with {found.header.channels} channels; the "
                f"images of the study have {channels}. Set data.image.channels, or choose another "
                "model."
            )
        tensors = self.taken_from(found)
        if digest_of(tensors) != self.digest:
            raise AccordError(
                f"{self.model} is not the model it was when this study began. Restore the earlier "
                "model, or start a new record in another folder."
            )
        return found, tensors
