"""The registry of sections: each is one file in `sections/`, with its place in the report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from accord.core.registry import Registry
from accord.page.parts import Part
from accord.page.subject import Subject

Maker = Callable[[Subject], list[Part]]


@dataclass(frozen=True)
class Chapter:
    """How a section is made. `make` returns no parts if the record has nothing for it."""

    title: str
    place: int  # sections are in the order of their places
    make: Maker


sections: Registry[Chapter] = Registry("section of a report", "accord.page.sections")


def section(name: str, title: str, place: int) -> Callable[[Maker], Maker]:
    """Registers the function that makes the parts of a section."""

    def add(make: Maker) -> Maker:
        sections.register(name)(Chapter(title, place, make))
        return make

    return add
