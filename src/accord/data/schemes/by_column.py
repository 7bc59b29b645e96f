"""A natural federation: a column of the data holds the client of each image."""

from __future__ import annotations

from numpy.random import Generator
from pydantic import Field

from accord.core.errors import AccordError, nearest
from accord.core.names import natural
from accord.data.images import Indices
from accord.data.schemes.base import Pool, Scheme, register
from accord.data.schemes.grouping import groups


@register("by-column")
class ByColumn(Scheme):
    """One client per distinct value of a column, in natural order: 2 comes before 10."""

    varies = False

    column: str = Field(min_length=1, description="column that holds the client of each image")
    clients: int | None = Field(
        None, ge=1, description="number of clients; if given, it is checked against the data"
    )

    @property
    def named_by(self) -> str:
        return self.column

    def draw(self, pool: Pool, rng: Generator) -> list[Indices]:  # noqa: ARG002
        if self.column not in pool.columns:
            known = ", ".join(sorted(pool.columns)) or "none"
            raise AccordError(
                f"the data has no column {self.column!r}{nearest(self.column, pool.columns) or '.'}"
                f" Columns found: {known}."
            )
        column = pool.columns[self.column]
        parts = sorted(groups(column), key=lambda part: natural(str(column[part[0]])))
        if self.clients is not None and self.clients != len(parts):
            raise AccordError(
                f"column {self.column!r} has {len(parts)} distinct values and therefore as many "
                f"clients; found clients {self.clients}. Remove `clients`."
            )
        return parts
