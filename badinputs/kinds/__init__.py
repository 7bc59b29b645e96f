"""The kinds of bad inputs, one file each."""

from __future__ import annotations

from collections.abc import Iterator

from badinputs.case import Case
from badinputs.kinds import images, messages, options, records, settings, streams, words


def all_cases() -> Iterator[Case]:
    for kind in (settings, words, options, images, messages, records, streams):
        yield from kind.cases()
