"""`accord`, and `python -m accord`: Ctrl-C ends it with one line, also while modules are loaded."""

from __future__ import annotations

import os
import sys

from accord.core import stopping

stopping.install()  # this module is loaded by a process that is the command, and by no other


def main() -> None:
    # NumPy's own threads would only wait: worker processes use the cores, one thread each.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from accord.core.streams import mend_streams

    mend_streams()
    from accord.cli import main as run_command

    stopping.begin_work()
    try:
        run_command()
    except stopping.Stopped as stopped:  # it arrived between two steps of the boundary
        print(stopping.LINE, file=sys.stderr)
        sys.exit(stopped.code)
    finally:
        stopping.end_work()


if __name__ == "__main__":
    main()
