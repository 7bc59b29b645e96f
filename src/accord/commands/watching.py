"""The command that watches a study while it runs elsewhere."""

from __future__ import annotations

import math
from typing import Annotated

import typer

from accord.commands.options import RunFolder
from accord.core.errors import AccordError


def watch(
    run_dir: RunFolder,
    once: Annotated[bool, typer.Option("--once", help="show the present state and end")] = False,
    every: Annotated[
        float, typer.Option(min=0.1, max=3600, metavar="SECONDS", help="time between two looks")
    ] = 2.0,
) -> None:
    """Watch a study that runs in another process, or on a machine that shares the folder."""
    from accord.report.live.watch import watch as watch_record

    if not math.isfinite(every):  # typer compares with its bounds only, which NaN passes
        raise AccordError(f"--every: expected seconds from 0.1 to 3600; found {every}.")

    code = watch_record(run_dir, every=every, once=once)
    if code:
        raise typer.Exit(code)
