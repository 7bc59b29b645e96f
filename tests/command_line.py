"""The types of the fixtures that call the command line in this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Done(NamedTuple):
    code: int
    out: str
    error: str


Here = Callable[..., Done]
Refused = Callable[..., None]
