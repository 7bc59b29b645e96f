"""The commands that use a saved model: predict and export."""

from __future__ import annotations

import sys
from json import dumps
from pathlib import Path
from typing import Annotated

import typer

from accord.commands.options import ModelFolder


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


def export(
    model: ModelFolder,
    onnx: Annotated[Path, typer.Option(help="the ONNX file to write")],
) -> None:
    """Write a saved model as one ONNX file."""
    from accord.model.export import export_onnx
    from accord.model.predictor import Predictor

    difference = export_onnx(Predictor.load(model), onnx)
    print(f"{onnx}: gives the same outputs as the model (largest difference {difference:.1e})")
