"""Standard input, output and error of this process, as whoever starts it may have left them.

A closed stream gets a place of its own, so that no file of ours gets its number and is written
into by mistake. What cannot be printed on standard output is an error; lines on standard error
are about the work, so that a lost line does not stop the work, but it changes the exit code.
"""

from __future__ import annotations

import io
import os
import sys
from typing import TextIO

OUTPUT = "standard output"
ERRORS = "standard error"


_replaced: list[TextIO | None] = []  # kept, because the end of a stream closes its file


class ReaderGone(SystemExit):
    """Who reads standard output has seen enough, as `head` does.

    It is no OSError, because the libraries of the command line end with exit code 1 after one.
    """

    def __init__(self) -> None:
        super().__init__(0)


class Output(io.TextIOWrapper):
    """Standard output. Its errors say that they are about standard output."""

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except OSError as error:
            raise _named(error) from None

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            raise _named(error) from None


class Errors(io.TextIOWrapper):
    """Standard error. It remembers the first problem and never raises an OSError."""

    problem: OSError | None = None

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except OSError as error:
            self._note(error)
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            self._note(error)

    def _note(self, error: OSError) -> None:
        if self.problem is None and not isinstance(error, BrokenPipeError):
            self.problem = error


def _named(error: OSError) -> BaseException:
    """The same error, about standard output."""
    if isinstance(error, BrokenPipeError):
        return ReaderGone()
    return OSError(error.errno, error.strerror, OUTPUT)


def mend_streams() -> None:
    """Prepares the streams of a process that is the command."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:  # it is closed; the system gives the lowest free number
            os.open(os.devnull, os.O_RDONLY)  # so that writing there fails
    _replaced.extend((sys.stdout, sys.stderr))
    sys.stdout = Output(_buffer(sys.stdout, 1), _encoding(sys.stdout), "replace", None, _live(1))
    sys.stderr = Errors(_buffer(sys.stderr, 2), _encoding(sys.stderr), "replace", None, True)


def replace_missing() -> None:
    """Gives this process streams where it has none, as a program without a console has not."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123


def show_question_marks() -> None:
    """A terminal that cannot show α shows a "?"."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def lost_lines() -> OSError | None:
    """Why lines on standard error were lost; None if none was."""
    return sys.stderr.problem if isinstance(sys.stderr, Errors) else None


def forget_output() -> None:
    """Throws away what is still to be printed, so that Python does not try it again at its end."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError, AttributeError):
        sys.stdout = None


def _buffer(stream: TextIO | None, number: int) -> io.BufferedWriter:
    found = getattr(stream, "buffer", None)
    return found if found is not None else open(number, "wb", closefd=False)


def _encoding(stream: TextIO | None) -> str:
    return getattr(stream, "encoding", None) or "utf-8"


def _live(number: int) -> bool:
    """Whether each line is shown at once, as on a terminal."""
    return os.isatty(number)
