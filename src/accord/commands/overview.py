"""The commands that show what there is: recipes, datasets, and whether this machine is fit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from accord.commands.options import DataRoot
from accord.report.terminal import say_json, show, tell


def recipes(name: Annotated[str | None, typer.Argument()] = None) -> None:
    """List the recipes, or explain one recipe or fusion and its parameters."""
    if name:
        from accord.report.explain import show_recipe

        show(show_recipe(name))
    else:
        from accord.report.listing import show_recipes

        show(show_recipes())


def data(
    data_root: DataRoot = None,
    download: Annotated[str | None, typer.Option(help="download this dataset")] = None,
    json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """List the known datasets: where they are, or where to put which file."""
    from dataclasses import asdict

    from accord.data.inventory import inventory
    from accord.report.listing import show_datasets

    if download:
        from accord.data.download import download as fetch

        fetch(download, data_root or Path("data"), tell)
    entries = inventory(data_root)
    if json:
        say_json([asdict(entry) for entry in entries])
    else:
        show(show_datasets(entries))


def doctor(data_root: DataRoot = None) -> None:
    """Check whether this machine can run Accord, and advise what to do."""
    from accord.report.doctor import examine, table

    found = examine(data_root)
    show(table(found))
    if any(check.verdict == "wrong" for check in found):
        raise typer.Exit(1)
