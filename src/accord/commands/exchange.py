"""The commands of a federation by files: brief, answer, and show what a file holds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from accord.commands.options import DataRoot, Overrides, Quiet, Workers
from accord.report.terminal import say, tell

BriefingFile = Annotated[Path, typer.Argument(metavar="BRIEFING", help="the server's briefing")]


def brief(
    study: Annotated[Path, typer.Argument(metavar="STUDY.yaml")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="the briefing to write")],
    overrides: Overrides = None,
    start: Annotated[
        Path | None,
        typer.Option("--from", metavar="MODEL", help="start from this model of one net"),
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(help="where a teacher or a map is made (default: runs/NAME-brief)"),
    ] = None,
    workers: Workers = None,
    data_root: DataRoot = None,
    quiet: Quiet = False,
) -> None:
    """Write the briefing of a study with one trial, which is sent to clients as a file."""
    from accord.api import brief as write_briefing

    found = write_briefing(
        study,
        out,
        overrides=overrides or (),
        start_from=start,
        record=record,
        workers=workers,
        data_root=data_root,
        quiet=quiet,
    )
    from accord.report.exchange import written_lines

    say("\n".join(written_lines(found)))


def answer(
    briefing: BriefingFile,
    images: Annotated[
        Path, typer.Argument(help="a folder with a folder per class, an .npz or a parquet file")
    ],
    name: Annotated[str, typer.Option(help="the name of the client that has these images")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="the upload to write")],
    keep: Annotated[
        Path | None,
        typer.Option(help="the client's own files (default: ~/.local/state/accord)"),
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1, …")] = "auto",
    quiet: Quiet = False,
) -> None:
    """Do a client's work for a briefing and write its upload; continue if it was interrupted."""
    from accord.federation.answering import answer as answer_briefing
    from accord.federation.answering import refuse_to_write

    refuse_to_write(out, briefing, images, name)
    told = (lambda _: None) if quiet else tell
    upload = answer_briefing(briefing, images, name, told, keep=keep, device=device)
    size = upload.save(out)
    say(f"{out}: {upload.header.samples} images of {name}, {size / 1e6:.1f} MB")


def show(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="a briefing, upload or model")],
    json: Annotated[bool, typer.Option("--json", help="show everything as JSON")] = False,
) -> None:
    """Explain a briefing, an upload or a saved model: what it holds, and what it reveals."""
    from accord.report.message import described, described_json

    if json:
        say(described_json(file))
    else:
        say("\n".join(described(file)))
