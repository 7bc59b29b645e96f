"""The command line. Every command imports what it needs when it runs, so that it starts quickly."""

from __future__ import annotations

import io
import os
import sys
from typing import Annotated

import click
import typer

from accord.commands.advising import advise
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
from accord.core.text import printable

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


STOPPED = 130
COMMANDS = (
    *(run, watch, results, compare, dials, report, diagnose, audit, fuse, teacher),
    *(brief, answer, show, predict, export),
    *(advise, recipes, data, doctor),
)
for command in COMMANDS:
    app.command()(command)
app.add_typer(flower)


def main() -> None:
    """Runs the command line.

    Exit codes: 0 success, 1 some trial failed, 2 mistake of the user, 130 stopped by Ctrl-C.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show α shows a "?"
    try:
        code = app(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except AccordError as error:
        print("\n".join(map(printable, f"accord: {error}".split("\n"))), file=sys.stderr)
        code = 2
    except BrokenPipeError:
        # The reader of the output has seen enough. Python would complain again at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except OSError as error:
        what, why = error.filename or "a file", error.strerror or error
        print(
            printable(f"accord: {what}: {why}. Solve this problem and run the same command again."),
            file=sys.stderr,
        )
        code = 2
    except (KeyboardInterrupt, click.Abort):
        code = STOPPED
    if code == STOPPED:  # after Ctrl-C typer returns this code or, in some versions, raises
        print("accord: stopped. Run the same command again to go on.", file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    main()
