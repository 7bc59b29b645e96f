"""Blocks whose values come from a saved model instead of another recipe of the study."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from accord.core.errors import AccordError
from accord.core.parts import AUTOMATIC, set_by_hand
from accord.core.text import one_line
from accord.messages.saved_model import AGAIN, SavedModel, digest_of
from accord.nets.maps.base import Block

OWN = {"scale", "shift"}  # tensors of a block that come from the study and not from the model


class InModel(Block):
    """A block with tensors of a model that `accord fuse --save` wrote."""

    model: str = Field(description="folder of the saved model")
    digest: str = Field("", description=AUTOMATIC)

    @model_validator(mode="after")
    def _found_out(self) -> Self:
        """Reads the model once. A briefing holds all values, so a client does not need the file."""
        if not self.digest:
            for key in set_by_hand(self):
                raise ValueError(f"`{key}` is set automatically. Remove it")
            found = SavedModel.load(Path(self.model))
            self.refuse(found)
            told = {**self.told_by(found), "digest": digest_of(self.taken_from(found))}
            for name, value in told.items():
                object.__setattr__(self, name, value)
            self._refuse_misfit(found)
        elif not self.told:
            raise ValueError("`digest` is set automatically. Remove it")
        return self

    def sent(self) -> Self:
        """The block in a message: no other machine needs to know where the model is."""
        return self.model_copy(update={"model": ""})

    @abstractmethod
    def refuse(self, found: SavedModel) -> None:
        """Raises AccordError if the block cannot use the model."""

    @abstractmethod
    def told_by(self, found: SavedModel) -> dict[str, object]:
        """The settings of the block that the model determines."""

    @property
    @abstractmethod
    def told(self) -> bool:
        """Whether these settings are known."""

    @abstractmethod
    def named(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """The tensors under the names that the block's module gives them."""

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

    def _refuse_misfit(self, found: SavedModel) -> None:
        """Refuses a model whose tensors are not those of the net or the map that it describes."""
        try:
            with torch.device("meta"):
                expected = self.build(found.header.channels).state_dict()
        except (RuntimeError, ValueError, TypeError, OverflowError, KeyError) as error:
            said = one_line(str(error), 200)
            raise AccordError(
                f"the model {self.model} is damaged: its net cannot be built: {said}. {AGAIN}"
            ) from None
        there = self.named(self.taken_from(found))
        for name in sorted((expected.keys() - OWN) | there.keys()):
            wanted, has = _said(expected.get(name)), _said(there.get(name))
            if wanted != has:
                raise AccordError(
                    f"the model {self.model} is damaged: its tensor {name[:100]!r} should be "
                    f"{wanted}; found {has}. {AGAIN}"
                )


def _said(tensor: Tensor | None) -> str:
    if tensor is None:
        return "absent"
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"
