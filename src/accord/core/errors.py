"""Two kinds of errors: the user's mistake (exit code 2) and a failed trial (exit code 1)."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class AccordError(Exception):
    """An error that the user can correct.

    The message says what was expected, what was found, and what to do.
    """


class ClientError(Exception):
    """One client could not finish its training. Its trial fails; the other trials continue."""


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint such as `; did you mean 'alpha'?`, or an empty text when no known name is similar."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""
