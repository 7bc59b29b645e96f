"""The commands that train: run a study, or one teacher."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from accord.commands.options import DataRoot, Out, Overrides, Quiet, Workers
from accord.report.terminal import show, show_results, tell


def run(
    study: Annotated[Path, typer.Argument(metavar="STUDY.yaml")],
    overrides: Overrides = None,
    out: Out = None,
    workers: Workers = None,
    data_root: DataRoot = None,
    quiet: Quiet = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="show trials and costs only")] = False,
    cluster: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="use the workers of a Dask cluster")
    ] = None,
) -> None:
    """Run a study, or continue it: only new trials are trained."""
    from accord.core.yamls import read_yaml
    from accord.engines.local import refuse_two_kinds_of_workers, start_workers, workers_for

    refuse_two_kinds_of_workers(cluster, workers)
    read_yaml(study)  # a file that cannot be read is reported before any process starts
    # The workers load torch while this process loads torch, the study and its images.
    engine = None
    if not dry_run and cluster is None:
        engine = start_workers(workers_for(workers))
    try:
        from accord.api import run as run_study
        from accord.study.study import load_study

        checked = load_study(study, overrides or [])
        if dry_run:
            from accord.record.record import Record
            from accord.report.estimate import estimate

            record = Record(out or Path("runs") / checked.name)
            show(*estimate(checked, record, data_root, workers).lines())
            return
        results = run_study(
            checked,
            out=out,
            workers=workers,
            data_root=data_root,
            quiet=quiet,
            cluster=cluster,
            engine=engine,
        )
    finally:
        if engine is not None:
            engine.close()
    show_results(results)
    from accord.auditing.warn import warn

    warn(results.path, tell)
    if results.failures:
        raise typer.Exit(1)


def teacher(
    source: Annotated[str, typer.Argument(help="a study (*.yaml), or the name of a dataset")],
    save: Annotated[Path, typer.Option(metavar="MODEL", help="the folder of the model")],
    overrides: Overrides = None,
    backbone: Annotated[str | None, typer.Option(help="default: the study's backbone")] = None,
    epochs: Annotated[int | None, typer.Option(help="default: those of public-teacher")] = None,
    on: Annotated[str, typer.Option(help="learn from public or all (train) images")] = "public",
    seed: Annotated[int, typer.Option(help="the seed of the public images and of the net")] = 0,
    out: Out = None,
    workers: Workers = None,
    data_root: DataRoot = None,
    quiet: Quiet = False,
) -> None:
    """Train one net (a teacher) on images of a study or a dataset, and save it as a model."""
    from accord.api import teacher as train_teacher
    from accord.report.taught import show_taught

    results = train_teacher(
        source,
        save,
        overrides=overrides or (),
        backbone=backbone,
        epochs=epochs,
        on=on,
        seed=seed,
        out=out,
        workers=workers,
        data_root=data_root,
        quiet=quiet,
    )
    show_taught(results, save)
    if results.failures:
        raise typer.Exit(1)
