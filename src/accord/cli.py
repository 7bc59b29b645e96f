"""The commands of the command line. Each command imports what it needs when it runs."""

from __future__ import annotations

import io
import sys
from json import dumps
from pathlib import Path
from typing import Annotated

import click
import typer

from accord.core.errors import AccordError
from accord.report.compare.command import compare
from accord.report.overview import DataRoot, data, doctor, recipes
from accord.report.terminal import show, show_results, tell, width

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
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="a run directory")]
ModelFolder = Annotated[Path, typer.Argument(metavar="MODEL", help="a saved model")]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="changed keys, such as budget.epochs=3"),
]
Out = Annotated[Path | None, typer.Option(help="the folder of the record (default: runs/NAME)")]
Workers = Annotated[int | None, typer.Option(help="processes (default: one per core)")]
Quiet = Annotated[bool, typer.Option("--quiet", help="show no progress")]


@app.command()
def run(
    study: Annotated[Path, typer.Argument(metavar="STUDY.yaml")],
    overrides: Overrides = None,
    out: Out = None,
    workers: Workers = None,
    data_root: DataRoot = None,
    quiet: Quiet = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="show trials and costs only")] = False,
) -> None:
    """Run a study, or continue it: only new trials are trained."""
    from accord.core.yamls import read_yaml
    from accord.engines.local import start_workers, workers_for

    read_yaml(study)  # a file that cannot be read is reported before any process starts
    # The workers load torch while this process loads torch, the study and its images.
    engine = None if dry_run else start_workers(workers_for(workers))
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
            checked, out=out, workers=workers, data_root=data_root, quiet=quiet, engine=engine
        )
    finally:
        if engine is not None:
            engine.close()
    show_results(results)
    if results.failures:
        raise typer.Exit(1)


@app.command()
def results(
    run_dir: RunFolder,
    json: Annotated[bool, typer.Option("--json", help="show every row as JSON")] = False,
    rounds: Annotated[bool, typer.Option("--rounds", help="show accuracy over rounds")] = False,
) -> None:
    """Show the results of a run."""
    from accord.report.results import load

    found = load(run_dir)
    if json:
        print(found.to_json())
    elif rounds:
        from accord.report.rounds import show_rounds

        show(*show_rounds(found.rows, width()))
    else:
        show_results(found)


app.command()(compare)


@app.command()
def fuse(
    run_dir: RunFolder,
    fusion: Annotated[
        list[str], typer.Option(help="a name, or '{use: features, merge: count, as: by-count}'")
    ],
    trial: Annotated[
        str | None, typer.Option(help="use only trials whose name contains this text")
    ] = None,
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


@app.command()
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


@app.command()
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


@app.command()
def predict(
    model: ModelFolder,
    images: Annotated[list[Path], typer.Argument(help="image files, or folders of them")],
    json: Annotated[
        bool, typer.Option("--json", help="show the confidence of every class as JSON")
    ] = False,
) -> None:
    """Classify images with a saved model."""
    from accord.model.predict import predict as predict_files
    from accord.model.predict import prediction_lines
    from accord.model.predictor import Predictor

    unreadable: list[str] = []
    found = predict_files(Predictor.load(model), images, unreadable.append)
    if json:
        print(dumps([one.to_json() for one in found], indent=1, ensure_ascii=False))
    else:
        print("\n".join(prediction_lines(found)))
    for line in unreadable:
        print(f"accord: {line}", file=sys.stderr)
    if unreadable:
        raise typer.Exit(1 if found else 2)


@app.command()
def export(
    model: ModelFolder,
    onnx: Annotated[Path, typer.Option(help="the ONNX file to write")],
) -> None:
    """Write a saved model as one ONNX file."""
    from accord.model.export import export_onnx
    from accord.model.predictor import Predictor

    difference = export_onnx(Predictor.load(model), onnx)
    print(f"{onnx}: gives the same outputs as the model (largest difference {difference:.1e})")


@app.command()
def dials(
    run_dir: RunFolder,
    keys: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY]...", help="dials to show: lambda_raw, loss_align, …"),
    ] = None,
    trial: Annotated[
        str | None, typer.Option(help="use only trials whose name contains this text")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="show every event as JSON")] = False,
) -> None:
    """Show λ, σ, losses and gradients of every client per epoch, also while a study runs."""
    from accord.report.dials import show_dials
    from accord.report.results import load

    found = load(run_dir)
    if json:
        print(dumps([e for e in found.events() if trial is None or trial in e["trial"]], indent=1))
    else:
        show(*show_dials(found.record, keys or (), trial, width()))


for overview in (recipes, data, doctor):
    app.command()(overview)


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
        print(f"accord: {error}", file=sys.stderr)
        code = 2
    except (KeyboardInterrupt, click.Abort):
        code = STOPPED
    if code == STOPPED:  # after Ctrl-C typer returns this code or, in some versions, raises
        print("accord: stopped. Run the same command again to go on.", file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    main()
