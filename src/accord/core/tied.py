"""A process that is tied to its parent: it does not outlive it, even if the parent is killed.

python -m accord.core.tied PROGRAM WORD…    runs a program that does not know of Accord this way
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PARENT = "ACCORD_PARENT"  # the number of the process that starts a tied process
PR_SET_PDEATHSIG = 1  # from Linux's prctl.h


def tied_environment() -> dict[str, str]:
    """What the environment of a tied process must contain."""
    return {PARENT: str(os.getpid())}


def end_with_parent() -> None:
    """Lets Linux kill this process when its parent ends. Elsewhere nothing happens.

    The thread that started this process must live as long as this process is needed.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    parent = os.environ.get(PARENT)
    if parent is not None and int(parent) != os.getppid():
        os._exit(0)  # the parent ended before


if __name__ == "__main__":
    end_with_parent()
    os.execv(sys.argv[1], sys.argv[1:])
