"""A natural federation: a column of the data holds the client of each image."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from numpy.random import Generator
from pydantic import Field

from accord.core.errors import AccordError, nearest
from accord.core.names import natural
from accord.data.images import Indices
from accord.data.schemes.base import Pool, Scheme, register
from accord.data.schemes.grouping import groups


class Natural(Scheme):
    """A scheme whose clients are those of the data: one per value of the column `named_by`.

    They are in natural order: 2 comes before 10.
    """

    varies = False

    clients: int | None = Field(
        None, ge=1, description="number of clients; if given, it is checked against the data"
    )

    @property
    @abstractmethod
    def named_by(self) -> str:
        """The column whose values are the clients' names."""

    def draw(self, pool: Pool, rng: Generator) -> list[Indices]:  # noqa: ARG002
        column = self.named_by
        if column not in pool.columns:
            known = ", ".join(sorted(pool.columns)) or "none"
            raise AccordError(
                f"the training images have no column {column!r}"
                f"{nearest(column, pool.columns) or '.'} Columns found: {known}. A column has one "
                "text, number or date for each image."
            )
        values = pool.columns[column]
        empty = int(np.sum(np.char.strip(values) == ""))
        if empty:
            raise AccordError(
                f"column {column!r} has no value for {empty:,} of {pool.size:,} images, so their "
                "client is unknown. Fill in the column, or remove these images."
            )
        parts = sorted(groups(values), key=lambda part: natural(str(values[part[0]])))
        if self.clients is not None and self.clients != len(parts):
            raise AccordError(
                f"column {column!r} has {len(parts)} distinct values and therefore as many "
                f"clients; found clients {self.clients}. Remove `clients`."
            )
        return parts


@register("by-column")
class ByColumn(Natural):
    """One client per distinct value of a column, in natural order."""

    column: str = Field(min_length=1, description="column that holds the client of each image")

    @property
    def named_by(self) -> str:
        return self.column
