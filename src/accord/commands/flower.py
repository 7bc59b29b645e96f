"""The commands of Flower: write an app, run a study on this machine, make keys."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from accord.commands.options import DataRoot, Out, Overrides, Quiet
from accord.report.terminal import say, show_results, tell

flower = typer.Typer(
    name="flower", no_args_is_help=True, help="Run a study over Flower, on many machines."
)
StudyFile = Annotated[Path, typer.Argument(metavar="STUDY.yaml")]
MinClients = Annotated[
    int, typer.Option(min=0, help="uploads that a round needs (default: all, or as the study says)")
]
Deadline = Annotated[float, typer.Option(help="seconds to wait for the answer of a client")]
Wait = Annotated[float, typer.Option(help="seconds to wait for a client's node to connect")]


@flower.command()
def app(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="the folder of the app")],
    study: StudyFile,
    overrides: Overrides = None,
    min_clients: MinClients = 0,
    deadline: Deadline = 86_400,
    wait: Wait = 60,
) -> None:
    """Write the folder of a Flower app, for `flwr run`."""
    from accord.flower.app_folder import write_app
    from accord.flower.supported import require_flower
    from accord.study.study import load_study

    require_flower()
    checked = load_study(study, overrides or [])
    write_app(folder, checked, _values(min_clients, deadline, wait))
    say(f"{folder}: the study {checked.name} as a Flower app")
    say(f"Run it on a SuperLink with: flwr run {folder} NAME-OF-THE-CONNECTION --stream")


@flower.command()
def local(
    study: StudyFile,
    overrides: Overrides = None,
    out: Out = None,
    data_root: DataRoot = None,
    secure: Annotated[
        bool, typer.Option("--secure", help="with TLS and keys, as on a network")
    ] = False,
    min_clients: MinClients = 0,
    deadline: Deadline = 86_400,
    wait: Wait = 300,  # many nodes need long to start on one machine
    quiet: Quiet = False,
) -> None:
    """Run a study over Flower on this machine: a SuperLink, and a SuperNode for each client."""
    from dataclasses import replace

    from accord.flower.local import LocalFlower
    from accord.record.record import Record
    from accord.report.results import Results
    from accord.study.study import load_study

    checked = load_study(study, overrides or [])
    record = out or Path("runs") / checked.name
    values = _values(min_clients, deadline, wait)
    told = (lambda _: None) if quiet else tell
    failures = LocalFlower(checked, record, data_root, secure, values, told).run()
    show_results(replace(Results.of(Record(record)), failures=failures))
    if failures:
        raise typer.Exit(1)


@flower.command()
def keys(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="a new folder for the files")],
    host: Annotated[
        list[str], typer.Option(help="a name or address by which clients reach the server")
    ],
    client: Annotated[list[str], typer.Option(help="the name of a client")],
    days: Annotated[int, typer.Option(help="days for which the certificate is valid")] = 365,
) -> None:
    """Make the certificates of a server, and a key for every client."""
    from accord.flower.supported import require_flower

    require_flower()
    from accord.flower.keys import make_keys

    make_keys(folder, host, client, days)
    say(f"{folder / 'server'}: certificates and public keys, for the machine of the SuperLink")
    for name in client:
        say(f"{folder / name}: for the machine of {name} only; send it on a safe way")


def _values(min_clients: int, deadline: float, wait: float) -> dict[str, Any]:
    return {"min-clients": min_clients, "deadline": deadline, "wait": wait}
