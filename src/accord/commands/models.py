"""The commands that use a saved model: predict and export."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from accord.commands.options import ModelFolder
from accord.report.terminal import say, say_json, tell


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
        say_json([one.to_json() for one in found])
    else:
        say("\n".join(prediction_lines(found)))
    for line in unreadable:
        tell(f"accord: {line}")
    if unreadable:
        raise typer.Exit(1 if found else 2)


def export(
    model: ModelFolder,
    onnx: Annotated[Path, typer.Option(help="the ONNX file to write")],
) -> None:
    """Write a saved model as one ONNX file."""
    from accord.model.export import export_onnx
    from accord.model.predictor import Predictor

    difference = export_onnx(Predictor.load(model), onnx)
    say(f"{onnx}: gives the same outputs as the model (largest difference {difference:.1e})")
