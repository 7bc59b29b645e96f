"""Makes one client's upload from the server's briefing and a folder of images, without a study."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from pydantic import ValidationError

from accord.client.make import make_client
from accord.core.errors import AccordError, ClientError
from accord.core.files import refuse_unwritable
from accord.data.convert import convert
from accord.data.images import Labels
from accord.data.imageset import ImageSet
from accord.data.known import DATASETS
from accord.data.raw import Progress, Raw, Request, Tell, check_classes, check_labels
from accord.federation.membership import refuse_name
from accord.federation.tasks.base import one_thread
from accord.messages import Briefing, BriefingHeader, Upload

KINDS = {".npz": "npz", ".parquet": "parquet"}  # suffix → format; all others are class folders


def answer(
    briefing: Path | str, images: Path | str, name: str, tell: Tell = lambda _: None
) -> Upload:
    """The upload of client `name` with `images`, the same as if it had taken part in the study.

    `images` is a folder with a folder per class, an .npz file or a parquet file. The briefing must
    be that of a closed form, because only such uploads can be added to a finished study.
    """
    asked = Briefing.load(Path(briefing))
    if asked.header.uploads == "nets":
        raise AccordError(
            f"{briefing} asks its clients to train a net. Only uploads of a closed form can be "
            "added to a finished study; choose the briefing of such a trial."
        )
    refuse_name(name, "the client's name")
    data = labelled_images(Path(images), asked.header, tell)
    try:
        client = make_client(data, asked, name)
    except (RuntimeError, KeyError, ValueError, ValidationError) as error:
        said = " ".join(str(error).split())[:200]
        raise AccordError(
            f"{briefing} is not a whole briefing of a closed form ({said}). Fetch it again."
        ) from None
    progress = Progress("encoding its images", len(data), tell)
    try:
        with one_thread():
            while not client.done:
                client.run_epoch(progress.reach)
            upload = client.upload()
        upload.check(asked, f"the upload of {name}")
    except ClientError as error:
        raise AccordError(
            f"{images}: {error} The briefing {briefing} may be damaged: fetch it again."
        ) from None
    return upload


def refuse_to_write(out: Path, briefing: Path, images: Path) -> None:
    """Raises AccordError if `out` cannot be written, or would replace a file that is no upload."""
    target, source = out.resolve(), images.resolve()
    if target in (briefing.resolve(), source) or source in target.parents:
        raise AccordError(
            f"--out {out} is one of the inputs, or is in the folder of images. Choose another file."
        )
    refuse_unwritable(out, "--out")
    if out.exists() and not _is_upload(out):
        raise AccordError(
            f"--out {out}: expected a new file, or an upload to write again; found another kind of "
            "file. Choose another name."
        )


def _is_upload(path: Path) -> bool:
    try:
        Upload.load(path)
    except (AccordError, OSError):
        return False
    return True


def labelled_images(path: Path, header: BriefingHeader, tell: Tell) -> ImageSet:
    """A client's own images, with the image size and the classes of a briefing."""
    known = DATASETS.get(KINDS.get(path.suffix.lower(), "folder"))
    source = known.find(path) if path.exists() else None
    if source is None:
        raise AccordError(
            f"{path}: expected a folder with a folder per class, an .npz file or a parquet file; "
            f"found {'something else' if path.exists() else 'nothing'}. Give the path of the "
            "client's images."
        )
    size = header.height if header.height == header.width else None
    raw = source.read(Request(known.name, size, header.classes, tell))
    raw, remarks = convert(raw, size, header.channels)
    for remark in remarks:
        tell(f"{path}: {remark}")
    if raw.test is not None:
        tell(f"{path}: its test part is not used")
    found, wanted = raw.train.images.shape[1:], (header.height, header.width, header.channels)
    if found != wanted:
        raise AccordError(
            f"{path}: expected images of {'×'.join(map(str, wanted))}, as in the study; "
            f"found {'×'.join(map(str, found))}. Resize them."
        )
    labels = _labels(raw, header.classes, path)
    return ImageSet(raw.train.images, np.arange(len(labels)), labels)


def _labels(raw: Raw, classes: tuple[str, ...], path: Path) -> Labels:
    """The labels, as indices of the briefing's classes; classes are matched by name if named."""
    check_classes(raw.classes, path)
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
