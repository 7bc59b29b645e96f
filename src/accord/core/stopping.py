"""Ctrl-C, SIGTERM and SIGHUP: one line, an orderly end, and the exit code 128 + signal.

This module is loaded before all others, so it imports only what Python has loaded already.

While a command works, a signal raises `Stopped`, so that workers end and temporary files are
removed. A second signal ends the process at once, and so does one that arrives while modules are
loaded or after the work. While Python itself ends, signals are ignored. The workers of a process
that was killed notice that their parent is gone.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys

TYPE_CHECKING = False  # as in `typing`, which is not loaded yet
if TYPE_CHECKING:
    from types import FrameType

LINE = "accord: stopped. Run the same command again to go on."


class Stopped(SystemExit):
    """The process was asked to stop. It is no Exception, so that nothing else handles it."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)


class _State:
    """What the handler knows: whether a command works, and which signal has arrived."""

    working = False
    arrived: int | None = None
    told = False


def install() -> None:
    """Handles the signals from now on. A signal that is ignored, as by nohup, stays ignored."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number is not None and signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _handle)
    sys.unraisablehook = _after_unraisable
    atexit.register(_ignore)  # the first one that is registered is the last one that is called


def _ignore() -> None:
    """Python takes its handlers away at its very end, where a signal would then kill it.

    The command is over by then, and its exit code is known.
    """
    for number in (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
        if signal.getsignal(number) == _handle:
            signal.signal(number, signal.SIG_IGN)


def begin_work() -> None:
    """From now on a signal raises `Stopped`, because there may be something to tidy."""
    _State.working = True


def end_work() -> None:
    """From now on a signal ends the process at once."""
    _State.working = False


def arrived() -> int | None:
    """The signal that asked this process to stop; None if there was none."""
    return _State.arrived


def line() -> str | None:
    """The line that tells that the process stops; None if it has been told."""
    told, _State.told = _State.told, True
    return None if told else LINE


def _handle(number: int, frame: FrameType | None) -> None:
    first, _State.arrived = _State.arrived is None, _State.arrived or number
    if not first or not _State.working or _importing(frame):
        _end_now()
    raise Stopped(number)


def _end_now() -> None:
    """Ends the process. The streams of Python may be in use, so the line is written past them."""
    said = line()
    try:
        os.write(2, f"{said}\n".encode() if said else b"")
    finally:  # also if the terminal is gone
        os._exit(128 + (_State.arrived or signal.SIGINT))


def _importing(frame: FrameType | None) -> bool:
    """Whether a module is being loaded, which can take seconds.

    Some modules turn an exception there into another one, or ignore it.
    """
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _after_unraisable(unraisable: sys.UnraisableHookArgs) -> None:
    """Python ignores an exception in a destructor, but a process that was stopped must end."""
    if isinstance(unraisable.exc_value, Stopped):
        _end_now()
    sys.__unraisablehook__(unraisable)
