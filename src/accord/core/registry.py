"""Registries that map names to parts. A new part is one new file that registers itself."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from accord.core.errors import AccordError, nearest

T = TypeVar("T")


class Registry(Generic[T]):
    """The parts of one family, by name.

    `package` is the package whose modules hold the parts. The modules are imported at the first
    look-up, so a new part needs only a new file.
    """

    def __init__(self, family: str, package: str | None = None) -> None:
        self.family = family
        self._package = package
        self._parts: dict[str, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        def add(part: T) -> T:
            if name in self._parts:
                raise ValueError(f"two parts of family {self.family!r} are named {name!r}")
            self._parts[name] = part
            return part

        return add

    def _discover(self) -> None:
        if self._package is None:
            return
        name, self._package = self._package, None  # an imported module may itself look up a part
        try:
            package = importlib.import_module(name)
            for module in pkgutil.iter_modules(package.__path__):
                importlib.import_module(f"{name}.{module.name}")
        except BaseException:
            self._package = name  # not all parts are known: the next look-up must try again
            raise

    def get(self, name: str) -> T:
        self._discover()
        if name not in self._parts:
            known = sorted(self._parts)
            hint = nearest(name, known) or "."
            raise AccordError(f"unknown {self.family} {name!r}{hint} Known: {', '.join(known)}.")
        return self._parts[name]

    def names(self) -> list[str]:
        self._discover()
        return sorted(self._parts)

    def __contains__(self, name: object) -> bool:
        self._discover()
        return name in self._parts

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())
