"""The command that writes the report of a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from accord.commands.options import SomeTrials
from accord.core.errors import AccordError
from accord.report.terminal import say, tell

if TYPE_CHECKING:
    from accord.page.write import Form


def report(
    run_dirs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="run directories")],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="the file to write (default: RUN/report.html, or ./report.html)"
        ),
    ] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="the tables as Markdown, instead of a page")
    ] = False,
    latex: Annotated[
        bool, typer.Option("--latex", help="the tables as LaTeX, instead of a page")
    ] = False,
    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="RECIPE[:FUSION]",
            help="the recipe to compare all others with (default: fafi, or the first recipe)",
        ),
    ] = None,
    trial: SomeTrials = None,
) -> None:
    """Write a report of one or several runs: one page with tables, figures and findings."""
    from accord.page.write import default_path, make_report, write_report

    if markdown and latex:
        raise AccordError("--markdown and --latex are different forms. Use one of them.")
    form: Form = "markdown" if markdown else "latex" if latex else "html"
    if out is None and form != "html":
        say(make_report(run_dirs, form, trial=trial, baseline=baseline, tell=tell), end="")
        return
    path = out or default_path(run_dirs)
    write_report(run_dirs, path, form, trial=trial, baseline=baseline, tell=tell)
    say(f"report: {path}")
