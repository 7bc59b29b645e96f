"""The bank: features of public images that the server sends to clients as a reference.

Before the images are distributed to clients, the server sets some aside as public images. It
trains a teacher with the clients' architecture on them, or takes the net of an earlier federation.
The teacher encodes the public images, and the server sends a selection of these features.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from pydantic import Field, model_validator

from accord.core.config import Config
from accord.core.errors import AccordError
from accord.core.randomness import numpy_generator
from accord.data.images import Indices, Labels
from accord.data.strata import balanced_subset
from accord.objective.negatives import Rows

USUAL_SIZE = 4096
EPOCHS = 20  # training epochs of a teacher


class BankConfig(Config):
    """The settings that decide which public features every client receives."""

    size: int | None = Field(
        None,
        ge=1,
        description=f"number of rows; null means {USUAL_SIZE}, or all public images if fewer",
    )
    selection: Literal["balanced", "random"] = Field(
        "balanced",
        description="balanced takes each class as equally as the public images allow; random "
        "ignores the classes",
    )
    teacher_epochs: int = Field(
        EPOCHS,
        ge=1,
        description="training epochs of the teacher that encodes the public images",
    )
    source: str | None = Field(
        None,
        description="folder of an earlier trial; its fused features are used, without a teacher",
    )

    @model_validator(mode="after")
    def _one_encoder(self) -> BankConfig:
        if self.source is not None and self.teacher_epochs != EPOCHS:
            raise ValueError("a bank has either a teacher (teacher_epochs) or a source, not both")
        return self

    def rows(self, labels: Labels) -> int:
        """The number of rows of a bank of public images with these labels."""
        available = len(labels)
        if not available:
            raise AccordError(
                "a bank needs public images, found none: set data.public, e.g. data.public=0.1."
            )
        if self.size is not None and self.size > available:
            raise AccordError(
                f"bank.size: expected at most the {available:,} public images there are; found "
                f"{self.size:,}. Use a smaller bank.size, raise data.public, or omit bank.size."
            )
        return self.size or min(USUAL_SIZE, available)

    def select(self, labels: Labels, seed: int) -> Indices:
        """The sorted positions of the chosen rows."""
        rows = self.rows(labels)
        order = numpy_generator(seed, "bank").permutation(len(labels))
        if self.selection == "random":
            return np.sort(order[:rows])
        present = len(np.unique(labels))
        if rows < present:
            raise AccordError(
                f"bank.size: expected at least {present}, one row for each class; found {rows}. "
                "Use a larger bank.size, or set bank.selection to random."
            )
        return np.sort(order[balanced_subset(labels[order], rows, "bank.size")])


def choose(public: Rows, config: BankConfig, seed: int) -> Rows:
    """The bank, which is a selection of all public features."""
    chosen = torch.from_numpy(config.select(public.labels.numpy(), seed))
    return Rows(public.features[chosen], public.labels[chosen])


def stand_in(labels: Labels, width: int) -> Rows:
    """Random unit features for public images, to check a briefing before there is a teacher."""
    draws = torch.Generator().manual_seed(0)
    features = torch.randn(len(labels), width, generator=draws)
    return Rows(torch.nn.functional.normalize(features, dim=1), torch.from_numpy(labels))
