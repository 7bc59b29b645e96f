"""The command that fuses uploads: those of a run, or files that clients have sent."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from accord.commands.options import DataRoot, Quiet, SomeTrials, Workers
from accord.core.errors import AccordError
from accord.report.terminal import say, show_results, tell

OF_RUNS, OF_FILES = "a run directory", "a briefing and uploads"


def fuse(
    source: Annotated[Path, typer.Argument(metavar="RUN|BRIEFING", help="a run, or a briefing")],
    uploads: Annotated[
        list[Path] | None, typer.Argument(help="with a briefing: the files that clients sent")
    ] = None,
    fusion: Annotated[
        list[str] | None,
        typer.Option(help="a name, or '{use: features, merge: count, as: by-count}'"),
    ] = None,
    trial: SomeTrials = None,
    without: Annotated[
        list[str] | None, typer.Option(help="leave this client out, or this file")
    ] = None,
    add: Annotated[
        list[Path] | None, typer.Option(help="add the upload (sums) of a client that came later")
    ] = None,
    remove: Annotated[list[str] | None, typer.Option(help="subtract this client's sums")] = None,
    save: Annotated[
        Path | None,
        typer.Option(metavar="MODEL", help="save the model of the first fusion in this folder"),
    ] = None,
    test: Annotated[
        Path | None, typer.Option(metavar="IMAGES", help="files: measure on these images")
    ] = None,
    public: Annotated[
        Path | None, typer.Option(metavar="IMAGES", help="files: the server's own images")
    ] = None,
    validation: Annotated[
        Path | None,
        typer.Option(metavar="IMAGES", help="files: the server's images on which nobody trained"),
    ] = None,
    following: Annotated[
        Path | None,
        typer.Option("--next", metavar="FILE", help="files: write the next round's briefing"),
    ] = None,
    clients: Annotated[
        int | None, typer.Option(min=1, help="files: number of all clients, if not all answered")
    ] = None,
    workers: Workers = None,
    data_root: DataRoot = None,
    quiet: Quiet = False,
) -> None:
    """Fuse the uploads of a run in other ways, or files that clients have sent."""
    runs = {"--trial": trial, "--add": add, "--remove": remove, "--data-root": data_root}
    files: dict[str, Any] = {"--test": test, "--public": public, "--validation": validation}
    files |= {"--next": following, "--clients": clients}
    if source.is_dir():
        _refuse({**files, "further arguments": uploads}, OF_FILES, source, OF_RUNS)
        if not fusion:
            raise AccordError("no fusion was named. Name one with --fusion, e.g. classwise.")
        chosen = {"trial": trial, "add": add or (), "remove": remove or (), "data_root": data_root}
        _fuse_run(source, fusion, without or [], save, quiet, {**chosen, "workers": workers})
        return
    _refuse_no_briefing(source)
    _refuse({**runs, "--workers": workers}, OF_RUNS, source, OF_FILES)
    from accord.api import fuse_files
    from accord.report.exchange import fused_lines

    found = fuse_files(
        source,
        uploads or [],
        fusion or [],
        without=without or [],
        save=save,
        test=test,
        public=public,
        validation=validation,
        following=following,
        clients=clients,
        tell=(lambda _: None) if quiet else tell,
    )
    say("\n".join(fused_lines(found, save)))


def _fuse_run(
    run_dir: Path,
    fusion: list[str],
    without: list[str],
    save: Path | None,
    quiet: bool,
    options: dict[str, Any],
) -> None:
    from accord.api import fuse as fuse_run

    results = fuse_run(run_dir, fusion, without=without, save=save, quiet=quiet, **options)
    show_results(results)
    if not without and not options["remove"]:  # else the user has looked already
        from accord.auditing.warn import warn

        warn(results.path, tell, options["trial"])
    if save is not None:
        say(f"model: {save}")


def _refuse_no_briefing(source: Path) -> None:
    from accord.messages import Briefing, kind_of

    kind = kind_of(source) if source.is_file() else None
    if kind != Briefing.kind:
        found = (
            f"the message {kind!r}" if kind else "another file" if source.exists() else "nothing"
        )
        raise AccordError(f"{source} is not a run directory and not a briefing; found {found}.")


def _refuse(given: dict[str, Any], meant: str, source: Path, found: str) -> None:
    """Refuses options that belong to the other kind of source."""
    for name, value in given.items():
        if value:
            raise AccordError(
                f"{name}: this is for {meant}; {source} stands for {found}. Remove it."
            )
