"""The command that recommends a recipe for a federation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from accord.commands.options import DataRoot, Workers
from accord.report.terminal import say, show


def advise(
    study: Annotated[Path | None, typer.Argument(metavar="[STUDY.yaml]")] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="PATH", help="images: a folder, an .npz or a parquet")
    ] = None,
    column: Annotated[str | None, typer.Option(help="the column that names the sites")] = None,
    clients: Annotated[int | None, typer.Option(help="simulate so many clients")] = None,
    image: Annotated[int | None, typer.Option(help="make images so many pixels wide")] = None,
    public: Annotated[
        float | None, typer.Option(metavar="FRACTION", help="share of images at the server")
    ] = None,
    unlabelled: Annotated[
        bool, typer.Option("--unlabelled", help="the public images have no labels")
    ] = False,
    exchanges: Annotated[
        int | None, typer.Option(help="uploads of each client that are possible (default: 1)")
    ] = None,
    megabytes: Annotated[
        float | None, typer.Option(help="megabytes that a client may upload in all")
    ] = None,
    private: Annotated[
        bool, typer.Option("--private", help="sums must not show the features of single images")
    ] = False,
    one_net: Annotated[
        bool, typer.Option("--one-net", help="the model must be one ordinary net")
    ] = False,
    gpu: Annotated[
        bool | None, typer.Option("--gpu/--no-gpu", help="clients have a GPU (default: as here)")
    ] = None,
    out: Annotated[Path, typer.Option(help="the study that is written")] = Path("advised.yaml"),
    cost: Annotated[bool, typer.Option("--cost/--no-cost", help="estimate the cost")] = True,
    data_root: DataRoot = None,
    workers: Workers = None,
    json: Annotated[bool, typer.Option("--json", help="show everything as JSON")] = False,
    table: Annotated[
        bool, typer.Option("--table", help="show all rules as a Markdown table, and stop")
    ] = False,
) -> None:
    """Recommend a recipe, fusion and budget for a federation, and write a study with them."""
    if table:
        from accord.advice.table import markdown

        say(markdown())
        return
    from accord.api import advise as make_advice

    found = make_advice(
        study,
        data=data,
        column=column,
        clients=clients,
        image=image,
        public=public,
        unlabelled=unlabelled,
        exchanges=exchanges,
        megabytes=megabytes,
        private=private,
        one_net=one_net,
        gpu=gpu,
        out=out,
        cost=cost,
        data_root=data_root,
        workers=workers,
    )
    if json:
        say(found.to_json())
        return
    root = f" --data-root {data_root}" if data_root else ""
    show(*found.lines(), "", f"study: {out}", f"next: accord run {out}{root}")
