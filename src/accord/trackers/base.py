"""The interface of a tracker, and their registry."""

from __future__ import annotations

from abc import ABC, abstractmethod
from importlib.util import find_spec
from typing import ClassVar

from accord.core.errors import AccordError
from accord.core.registry import Registry
from accord.record.record import Record
from accord.trackers.course import Course


class Tracker(ABC):
    """Copies finished trials of a record to another tool.

    It gets a whole trial at a time. To copy the same trial again changes nothing, so that a run
    that was killed and continued leaves no point twice.
    """

    name: ClassVar[str]  # also the name of the extra that installs it
    needs: ClassVar[tuple[str, ...]]  # modules

    def __init__(self, record: Record) -> None:
        self.record = record

    @classmethod
    def require(cls) -> None:
        """Raises AccordError if a package is missing."""
        missing = [module for module in cls.needs if find_spec(module) is None]
        if missing:
            raise AccordError(
                f"track: {cls.name} needs {', '.join(missing)}, which is not installed: "
                f"pip install 'accord[{cls.name}]'. Or remove the key 'track'; it changes no "
                "result."
            )

    @abstractmethod
    def write(self, course: Course) -> None:
        """Copies a trial, unless it is there already. It may raise anything."""


trackers: Registry[type[Tracker]] = Registry("tracker", "accord.trackers")
