"""The pictures of the examples in measures.json, found again in the dataset."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from accord.core.config import parse
from accord.core.errors import AccordError
from accord.core.names import shown
from accord.data.datasets import load
from accord.data.images import Bytes, Dataset
from accord.data.locate import remembered_root
from accord.data.schemes import make_scheme
from accord.data.settings import ELSEWHERE, DataConfig
from accord.data.split import measured_part
from accord.record.record import Record

Tell = Callable[[str], None]


def example_images(
    record: Record,
    info: Mapping[str, Any],
    examples: Sequence[Mapping[str, Any]],
    data_root: Path | None = None,
    tell: Tell = lambda line: None,  # noqa: ARG005
) -> list[Bytes]:
    """The pixels (H, W, C) of each of a trial's examples; `info` is the trial's trial.json.

    `image` of an example is a row of the dataset's test part. If the dataset has no test part, the
    test images are some of its training images, and `image` is a row of the training part. Raises
    AccordError if the images are not there, or are not those of the trial.
    """
    trial = shown(str(info.get("id", "unknown")))
    try:
        config, content = info["config"], info["images"]
        rows = [int(example["image"]) for example in examples]
        dataset = _dataset(record, config, data_root, tell)
    except (KeyError, TypeError, ValueError) as error:
        raise AccordError(
            f"the images of {trial} cannot be found, because its files are damaged: {error!r}. "
            "Restore them from a copy."
        ) from None
    part = measured_part(dataset)
    if dataset.folder.name != content or not all(0 <= row < len(part) for row in rows):
        raise AccordError(
            f"the images of {dataset.name} are not those that {trial} was measured on. Restore the "
            "old ones to see its examples."
        )
    return [np.array(part.images[row]) for row in rows]


def _dataset(
    record: Record, config: Mapping[str, Any], data_root: Path | None, tell: Tell
) -> Dataset:
    """The dataset of a trial, from where the record found it."""
    data, scheme = parse(DataConfig, config["data"], "data"), make_scheme(config["partition"])
    if data.name == ELSEWHERE:
        raise AccordError("only the clients of this study have images, and they do not show them.")
    return load(
        data.name,
        path=Path(data.path) if data.path else None,
        root=remembered_root(data.name, data_root, record.roots()),
        size=data.image.size,
        channels=data.image.channels,
        sites=scheme.reads_sites,
        tell=tell,
    )
