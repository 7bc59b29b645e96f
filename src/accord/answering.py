"""A client on its own: the server's briefing and a folder of images in, one upload out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from accord.data.convert import convert
from accord.data.images import Labels
from accord.data.imageset import ImageSet
from accord.data.known import DATASETS
from accord.data.locate import locate
from accord.data.raw import Progress, Raw, Request, Tell, check_labels
from accord.engines.jobs import one_thread
from accord.errors import AccordError
from accord.messages import Briefing, BriefingHeader, Upload
from accord.summing import Summing


def answer(
    briefing: Path | str, images: Path | str, name: str, tell: Tell = lambda _: None
) -> Upload:
    """The upload of client `name`, who has `images`: what it would have sent in the study itself.

    `images`: a folder with a folder per class, an .npz file or a parquet file. Only recipes with
    fixed features: their uploads can be added to a finished study.
    """
    asked = Briefing.load(Path(briefing))
    if asked.header.net.map is None:
        raise AccordError(
            f"{briefing} asks its clients to train a net. Only uploads of a closed form can be "
            "added to a finished study; choose the briefing of such a trial."
        )
    if not name.strip() or not name.isprintable():
        raise AccordError(f"the client's name: expected a word that people know it by; {name!r}.")
    data = labelled_images(Path(images), asked.header, tell)
    client = Summing(data, asked, name, torch.device("cpu"))
    with one_thread():
        return client.upload(client.run(Progress("looking at its images", len(data), tell).reach))


def labelled_images(path: Path, header: BriefingHeader, tell: Tell) -> ImageSet:
    """A client's own images in the shape and with the classes that a briefing names."""
    suffixes = {".npz": "npz", ".parquet": "parquet"}
    known = DATASETS.get(suffixes.get(path.suffix.lower(), "folder"))
    size = header.height if header.height == header.width else None
    raw = locate(known, path, None).read(Request(known.name, size, header.classes, tell))
    raw, remarks = convert(raw, size, header.channels)
    for remark in remarks:
        tell(f"{path}: {remark}")
    if raw.test is not None:
        tell(f"{path}: its test part is not used")
    found, wanted = raw.train.images.shape[1:], (header.height, header.width, header.channels)
    if found != wanted:
        raise AccordError(
            f"{path}: expected images of {'×'.join(map(str, wanted))}, as the study has them; "
            f"found {'×'.join(map(str, found))}. Resize them."
        )
    labels = _labels(raw, header.classes, path)
    return ImageSet(raw.train.images, np.arange(len(labels)), labels)


def _labels(raw: Raw, classes: tuple[str, ...], path: Path) -> Labels:
    """Labels as the briefing counts classes: by name where the file has names."""
    if raw.classes is None or raw.classes == classes:
        check_labels(raw.train.labels, classes, path)
        return raw.train.labels
    held = np.unique(raw.train.labels).tolist()
    unknown = [raw.classes[label] for label in held if raw.classes[label] not in classes]
    if unknown:
        raise AccordError(
            f"{path}: class {unknown[0]!r} is not among those of the study "
            f"({', '.join(classes[:5])}{', …' if len(classes) > 5 else ''}). Rename or remove it."
        )
    place = {name: index for index, name in enumerate(classes)}
    renumbered = np.array([place.get(name, -1) for name in raw.classes], np.int64)
    return renumbered[raw.train.labels]
