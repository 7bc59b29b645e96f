"""The commands that make uploads and fuse them: answer a briefing, and fuse again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from accord.commands.options import DataRoot, Quiet, RunFolder, SomeTrials, Workers
from accord.report.terminal import show_results, tell


def answer(
    briefing: Annotated[Path, typer.Argument(help="the briefing.safetensors of a trial")],
    images: Annotated[
        Path, typer.Argument(help="a folder with a folder per class, an .npz or a parquet file")
    ],
    name: Annotated[str, typer.Option(help="the name of the client that has these images")],
    out: Annotated[Path, typer.Option(help="the upload to write, for accord fuse RUN --add")],
) -> None:
    """Make the upload of a client that joins a closed form after the study."""
    from accord.federation.answering import answer as answer_briefing
    from accord.federation.answering import refuse_to_write

    refuse_to_write(out, briefing, images)
    upload = answer_briefing(briefing, images, name, tell)
    size = upload.save(out)
    print(f"{out}: {upload.header.samples} images of {name}, {size / 1e6:.1f} MB")


def fuse(
    run_dir: RunFolder,
    fusion: Annotated[
        list[str], typer.Option(help="a name, or '{use: features, merge: count, as: by-count}'")
    ],
    trial: SomeTrials = None,
    without: Annotated[list[str] | None, typer.Option(help="leave this client out")] = None,
    add: Annotated[
        list[Path] | None, typer.Option(help="add the upload (sums) of a client that came later")
    ] = None,
    remove: Annotated[list[str] | None, typer.Option(help="subtract this client's sums")] = None,
    save: Annotated[
        Path | None, typer.Option(help="save the model of the first fusion in this folder")
    ] = None,
    workers: Workers = None,
    data_root: DataRoot = None,
    quiet: Quiet = False,
) -> None:
    """Measure other fusions of a run's uploads, without any training."""
    from accord.api import fuse as fuse_run

    results = fuse_run(
        run_dir,
        fusion,
        trial=trial,
        without=without or (),
        add=add or (),
        remove=remove or (),
        save=save,
        data_root=data_root,
        workers=workers,
        quiet=quiet,
    )
    show_results(results)
    if save is not None:
        print(f"model: {save}")
