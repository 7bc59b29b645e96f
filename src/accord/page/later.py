"""Functions of other rooms that a report uses if they are there."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any


def find(module: str, name: str) -> Callable[..., Any] | None:
    """The function `name` of a module; None if there is no such module."""
    try:
        found: Callable[..., Any] = getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        if error.name is None or not module.startswith(error.name):
            raise
        return None
    return found
