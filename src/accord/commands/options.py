"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="a run directory")]
RunFolders = Annotated[list[Path], typer.Argument(metavar="RUN...", help="run directories")]
ModelFolder = Annotated[Path, typer.Argument(metavar="MODEL", help="a saved model")]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="changed keys, such as budget.epochs=3"),
]
Out = Annotated[Path | None, typer.Option(help="the folder of the record (default: runs/NAME)")]
Workers = Annotated[int | None, typer.Option(help="processes (default: one per core)")]
Quiet = Annotated[bool, typer.Option("--quiet", help="show no progress")]
SomeTrials = Annotated[
    str | None,
    typer.Option(help="use only trials whose name begins with this text, or else contains it"),
]
DataRoot = Annotated[
    Path | None, typer.Option(help="the folder of the datasets (default: ./data, …)")
]
