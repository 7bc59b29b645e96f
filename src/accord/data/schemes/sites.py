"""Clients that hold their own images elsewhere: on other machines, which this one cannot read."""

from __future__ import annotations

from typing import Annotated

from numpy.random import Generator
from pydantic import Field, field_validator

from accord.data.images import Indices
from accord.data.schemes.base import Pool, Scheme, register

SITE = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"  # names of sites are used in file names


@register("sites")
class Sites(Scheme):
    """One client per name. The images of the study, if there are any, belong to the server."""

    varies = False
    elsewhere = True

    names: tuple[Annotated[str, Field(pattern=SITE, max_length=100)], ...] = Field(
        (), description="the names of the clients, as their machines call themselves"
    )

    folders: bool = Field(
        False,
        description="whether the server's images are one folder for each site, as for by-folder",
    )

    @property
    def expected_clients(self) -> int | None:
        return len(self.names) or None

    @property
    def reads_sites(self) -> bool:
        return self.folders

    @field_validator("names")
    @classmethod
    def _differ(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(value)) < len(value):
            raise ValueError(f"names should differ; found {list(value)}")
        return value

    def draw(self, pool: Pool, rng: Generator) -> list[Indices]:  # noqa: ARG002
        raise ValueError("the images of sites are elsewhere, and cannot be distributed")
