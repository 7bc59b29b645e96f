"""`accord`, and `python -m accord`: Ctrl-C ends it with one line, also while modules are loaded."""

from __future__ import annotations

import sys


def main() -> None:
    try:
        from accord.cli import main as run_command

        run_command()
    except KeyboardInterrupt:
        print("accord: stopped. Run the same command again to go on.", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
