"""What can go wrong, as two kinds: the user's mistake (exit code 2) and a trial that failed (1)."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class AccordError(Exception):
    """The user can mend this. The message says what was expected, what was found, what to do."""


class ClientError(Exception):
    """One client could not finish its training; its trial fails, the others go on."""


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint such as `; did you mean 'alpha'?`, or nothing when no known name is close."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""
