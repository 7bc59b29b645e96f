"""`accord`, and `python -m accord`: Ctrl-C ends it with one line, also while modules are loaded."""

from __future__ import annotations

import os
import sys


def main() -> None:
    # NumPy's own threads would only wait: worker processes use the cores, one thread each.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        from accord.cli import main as run_command

        run_command()
    except KeyboardInterrupt:
        print("accord: stopped. Run the same command again to go on.", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
