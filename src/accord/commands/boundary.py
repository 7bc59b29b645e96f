"""The one place where errors become sentences and exit codes.

0 success, 1 some trial failed, 2 a mistake of the user or a problem of the machine, 70 a defect of
Accord, 128 + N stopped by signal N: 130 by Ctrl-C, 143 by SIGTERM, 129 by SIGHUP.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable

import click

from accord.core import stopping
from accord.core.mishaps import sentence_of
from accord.core.streams import (
    OUTPUT,
    ReaderGone,
    forget_output,
    lost_lines,
    replace_missing,
    show_question_marks,
)
from accord.core.text import one_line, printable

MISTAKE, DEFECT = 2, 70
STOPPED = 128 + signal.SIGINT


def bounded(command: Callable[[], object]) -> int:
    """The exit code of `command`. Whatever it raises is told in one line on standard error."""
    replace_missing()
    show_question_marks()
    try:
        found = command()
        sys.stdout.flush()
        code = found if isinstance(found, int) else 0
    except BaseException as error:
        code = _code_of(error)
    if code == STOPPED:  # typer returns this code after Ctrl-C or, in some versions, raises
        _tell_stopped()
    return _checked_streams(code)


def _code_of(error: BaseException) -> int:
    number = stopping.arrived()
    if number is not None:  # some libraries turn the exception of a signal into another one
        _tell_stopped()
        return 128 + number
    if isinstance(error, click.ClickException):
        error.show(sys.stderr)
        return error.exit_code
    if isinstance(error, KeyboardInterrupt | click.Abort):
        return STOPPED
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else 0 if error.code is None else 1
    if isinstance(error, BrokenPipeError) and error.filename in (OUTPUT, None):
        forget_output()  # the reader of the output has seen enough
        return 0
    sentence = sentence_of(error)
    if sentence is None:
        _tell(_defect(error))
        return DEFECT
    _tell(sentence)
    return MISTAKE


def _checked_streams(code: int) -> int:
    """Prints what is left. An exit code of success becomes 2 if lines were lost."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError, ReaderGone) as error:
        forget_output()
        if code == 0 and not isinstance(error, BrokenPipeError | ReaderGone):
            _tell(sentence_of(error) or str(error))
            code = MISTAKE
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.flush()
    return MISTAKE if code == 0 and lost_lines() is not None else code


def _tell_stopped() -> None:
    line = stopping.line()
    if line is not None:
        _tell(line.removeprefix("accord: "))


def _tell(sentence: str) -> None:
    lines = f"accord: {sentence}".split("\n")
    with contextlib.suppress(OSError, ValueError):
        print("\n".join(map(printable, lines)), file=sys.stderr)


def _defect(error: BaseException) -> str:
    """The sentence about a defect of Accord, whose details are written to a log."""
    what = one_line(f"{type(error).__name__}: {error}", 200).rstrip(". ")
    try:
        place = f"The details are in {_write_log(error)}; please report them."
    except OSError as problem:
        place = f"The details could not be written to a log ({problem.strerror or problem})."
    return f"this is a bug in Accord, not a mistake of yours: {what}. {place}"


def _write_log(error: BaseException) -> str:
    """Writes the traceback, the command and the versions to a file that only the user can read."""
    descriptor, path = tempfile.mkstemp(prefix="accord-bug-", suffix=".log")
    lines = [
        f"time: {time.strftime('%Y-%m-%d %H:%M:%S %z')}",
        f"command: {sys.argv!r}",
        f"folder: {_here()}",
        f"versions: {_versions()}",
        "",
        *traceback.format_exception(error),
    ]
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write("\n".join(line.rstrip("\n") for line in lines) + "\n")
    return path


def _here() -> str:
    try:
        return os.getcwd()  # noqa: PTH109
    except OSError as error:
        return str(error)


def _versions() -> str:
    try:
        from accord.core.versions import versions

        return str(versions())
    except Exception as error:  # a log without versions is better than no log
        return f"unknown ({error})"
