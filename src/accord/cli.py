"""The command line. Every command imports what it needs when it runs, so that it starts quickly."""

from __future__ import annotations

if __name__ == "__main__":  # `python -m accord.cli` is `python -m accord`
    from accord.__main__ import main as main_of_process

    main_of_process()

import sys
from pathlib import Path
from typing import Annotated

import typer

from accord.commands.advising import advise
from accord.commands.boundary import bounded
from accord.commands.exchange import answer, brief, show
from accord.commands.flower import flower
from accord.commands.fusing import fuse
from accord.commands.models import export, predict
from accord.commands.overview import data, doctor, recipes
from accord.commands.reading import audit, compare, diagnose, dials, results
from accord.commands.reporting import report
from accord.commands.training import run, teacher
from accord.commands.watching import watch
from accord.core.errors import AccordError

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="One-shot and few-round federated learning on label-skewed data.",
)


@app.callback(invoke_without_command=True)
def about(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="show the version")] = False,
) -> None:
    if version:
        from accord.core.versions import versions

        print(f"accord {versions()['accord']}")
    elif context.invoked_subcommand is None:
        print(context.get_help())


COMMANDS = (
    *(run, watch, results, compare, dials, report, diagnose, audit, fuse, teacher),
    *(brief, answer, show, predict, export),
    *(advise, recipes, data, doctor),
)
for command in COMMANDS:
    app.command()(command)
app.add_typer(flower)


def main() -> None:
    """Runs the command line and ends the process; the exit codes are those of the boundary."""
    sys.exit(bounded(_command))


def _command() -> object:
    # An empty path would mean the current folder, which nobody wants who has an unset variable.
    if "" in sys.argv[1:]:
        place = sys.argv.index("", 1)
        raise AccordError(
            f"Expected a value for each argument, but argument {place} is empty. "
            "Is a variable of the shell unset?"
        )
    try:
        Path.cwd()  # some libraries crash without it
    except OSError as error:
        raise AccordError(
            f"The current folder cannot be used ({error.strerror}). Change to another folder."
        ) from None
    return app(standalone_mode=False)
