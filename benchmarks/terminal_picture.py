"""Draws the view of `accord watch`: python -m benchmarks.terminal_picture RUN FILE."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

from rich.console import Console

from accord.report.live.layout import fitted
from accord.report.live.watched import Watched

WIDTH, HEIGHT = 100, 24


def main(run: Path, file: Path) -> None:
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(fitted(Watched(run).look(), WIDTH, HEIGHT))
    drawn = console.export_svg(title=f"accord watch {run}")
    alone = re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)  # fonts of the network
    file.write_text(alone, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
