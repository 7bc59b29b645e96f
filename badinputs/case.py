"""A case: a command, what is wrong with its input, and how the command should end."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

LONGEST = 20.0  # seconds that a command may compute to refuse an input
PATIENCE = 60.0  # seconds until a command is stopped, on a machine that does other work as well
MOST_MEMORY = 2 * 10**9  # bytes that it may use for that
MOST_LINES = 8  # of an error message
REFUSED, WORKS, EITHER = frozenset({2}), frozenset({0}), frozenset({0, 2})

# Characters that would control a terminal, or that change the direction of text.
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
# What a message about a damaged or unused input says; a command may work without this input.
TOLD = re.compile(
    r"damaged|broken|unreadable|cannot be read|not be read|incomplete|ignored|left out|missing|"
    r"not valid|expected|skipped|unknown|warning|without|no ",
    re.IGNORECASE,
)


def nothing(folder: Path) -> None:
    """Prepares nothing: the words of the command are what is wrong."""


@dataclass(frozen=True)
class Case:
    """A command in a copy of the stage, which `prepare` makes bad first."""

    kind: str
    name: str
    words: tuple[str, ...]
    prepare: Callable[[Path], object] = nothing
    codes: frozenset[int] = REFUSED
    says: str = ""  # a part of the output, whatever the exit code is
    needs: tuple[str, ...] = ()  # the parts of the stage that are copied
    keeps: tuple[str, ...] = ()  # files and folders that must be the same afterwards
    healthy: bool = False  # with exit code 0, the output is the usual one, or tells what is wrong
    output: str = "file"  # where its output goes: file, closed, full (a full disk) or pipe (closed)
    error: str = "file"  # where its error messages go
    disk: int | None = None  # bytes of the largest file that can be written: a full disk
    silent: bool = False  # the reason of a refusal cannot be shown, because the stream is closed

    @property
    def title(self) -> str:
        return f"{self.kind}: {self.name}: accord {' '.join(self.words)}"


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int | None  # None: it was stopped, because it took too long
    output: str  # what it printed
    error: str  # and to the error stream
    seconds: float  # of computing; of waiting, if it was stopped
    memory: int  # bytes


def faults(case: Case, ended: Ended, usual: Ended | None, changed: list[str]) -> list[str]:
    """What is wrong with the way a command ended. `usual`: how it ends with the healthy input."""
    said = ended.output + ended.error
    found = []
    if ended.code is None:
        found.append(f"hangs: {ended.seconds:.0f} s")
    elif ended.seconds > LONGEST:
        found.append(f"computes for {ended.seconds:.0f} s")
    elif ended.code not in case.codes:
        found.append(f"exit code {ended.code}, expected {sorted(case.codes)}")
    if "Traceback" in said:
        found.append("traceback")
    if ended.memory > MOST_MEMORY:
        found.append(f"took {ended.memory / 1e9:.1f} GB")
    if CONTROLS.search(said):
        found.append("control characters reach the terminal")
    if ended.code == 2 and ended.error.count("\n") > MOST_LINES:
        found.append(f"{ended.error.count(chr(10))} lines of error")
    if ended.code == 2 and not ended.error.strip() and not case.silent:
        found.append("refused without a word")
    if case.says and case.says.lower() not in said.lower():
        found.append(f"does not say {case.says!r}")
    if case.healthy and ended.code == 0 and usual is not None:
        same = ended.output == usual.output and usual.code == 0
        if not same and not TOLD.search(ended.error + ended.output):
            found.append("accepted without a word, with another result")
    found += [f"changed {name}" for name in changed]
    return found
