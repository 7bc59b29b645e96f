"""Makes one client's upload from the server's briefing and its own images, without a study."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from accord.checks import check_upload
from accord.client.base import Precision
from accord.core.errors import AccordError, ClientError
from accord.core.names import shown
from accord.core.targets import refuse_file
from accord.data.convert import convert
from accord.data.images import Labels
from accord.data.imageset import ImageSet
from accord.data.known import DATASETS
from accord.data.raw import Part, Progress, Request, Tell, check_classes, check_labels
from accord.federation.devices import check_device, choose_device
from accord.federation.membership import refuse_name
from accord.federation.site import Site, keep_root
from accord.messages import Briefing, BriefingHeader, Upload, is_whole

KINDS = {".npz": "npz", ".parquet": "parquet"}  # suffix → format; all others are class folders


def answer(
    briefing: Path | str,
    images: Path | str,
    name: str,
    tell: Tell = lambda _: None,
    *,
    keep: Path | str | None = None,
    device: str = "auto",
) -> Upload:
    """The upload of client `name` with `images`, the same as if it had taken part in the study.

    `images` is a folder with a folder per class, an .npz file or a parquet file. The client's own
    files are in the folder `keep`, by default ~/.local/state/accord: if it is interrupted, the same
    call continues, and between two rounds it remembers its own values there.
    """
    asked = Briefing.load(Path(briefing))
    refuse_name(name, "the client's name")
    check_device(device)
    data = labelled_images(Path(images), asked.header, tell)
    site = Site(name, Path(keep) if keep else keep_root())
    trains = asked.header.uploads == "nets"
    progress = Progress("training" if trains else "encoding its images", 1_000, tell)

    def news(content: dict[str, Any]) -> None:
        if content.get("restored"):
            tell(f"it continues after an interruption, with {content['share']:.0%} done")
            progress.begin(content["share"])
        elif "share" in content:
            progress.reach(content["share"])

    try:
        paths = site.answer(
            asked,
            data,
            news,
            precision=precision_on(device),
            remembers=site.last_memory(asked),
        )
        upload = Upload.load(paths[-1])
        check_upload(upload, asked, f"the upload of {name}")
    except ClientError as error:
        hint = "" if trains else f" The briefing {briefing} may be damaged: fetch it again."
        raise AccordError(f"{images}: {error}{hint}") from None
    except AccordError as error:
        raise AccordError(f"{briefing}: {error}") from None
    return upload


def precision_on(device: str) -> Precision:
    """The computations of a client on `device`; "auto": as in a study, CUDA if there is a GPU."""
    chosen = choose_device(device, "")
    return Precision(torch.device(chosen), autocast=chosen.startswith("cuda"))


def refuse_to_write(out: Path, briefing: Path, images: Path, name: str) -> None:
    """Raises AccordError if `out` cannot be written, or would replace a file that is no upload."""
    target, source = out.resolve(), images.resolve()
    if target in (briefing.resolve(), source) or source in target.parents:
        raise AccordError(
            f"--out {out} is one of the inputs, or is in the folder of images. Choose another file."
        )
    refuse_file(
        out,
        "--out",
        "is no upload that could be written again",
        lambda path: is_whole(path, Upload),
    )
    if not out.exists():
        return
    owner = Upload.load(out).header.client
    if owner != name:
        raise AccordError(
            f"--out {out}: it holds the upload of client {shown(owner)}, which would be lost. "
            "Choose another name."
        )


def labelled_images(
    path: Path, header: BriefingHeader, tell: Tell, part: str = "train"
) -> ImageSet:
    """Labelled images, with the image size and the classes of a briefing.

    Of images with a train and a test part, `part` says which one is used; any other part is the
    train part.
    """
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
    chosen = raw.train
    if raw.test is not None:
        chosen = raw.test if part == "test" else raw.train
        tell(f"{path}: its {'train' if part == 'test' else 'test'} part is not used")
    found, wanted = chosen.images.shape[1:], (header.height, header.width, header.channels)
    if found != wanted:
        raise AccordError(
            f"{path}: expected images of {'×'.join(map(str, wanted))}, as in the study; "
            f"found {'×'.join(map(str, found))}. Resize them."
        )
    labels = _labels(chosen, raw.classes, header.classes, path)
    return ImageSet(chosen.images, np.arange(len(labels)), labels)


def _labels(
    part: Part, named: tuple[str, ...] | None, classes: tuple[str, ...], path: Path
) -> Labels:
    """The labels, as indices of the briefing's classes; classes are matched by name if `named`."""
    check_classes(named, path)
    if named is None or named == classes:
        check_labels(part.labels, classes, path)
        return part.labels
    check_labels(part.labels, named, path)
    held = np.unique(part.labels).tolist()
    unknown = [named[label] for label in held if named[label] not in classes]
    if unknown:
        raise AccordError(
            f"{path}: class {unknown[0]!r} is not among those of the study "
            f"({', '.join(classes[:5])}{', …' if len(classes) > 5 else ''}). Rename or remove it."
        )
    place = {name: index for index, name in enumerate(classes)}
    renumbered = np.array([place.get(name, -1) for name in named], np.int64)
    return renumbered[part.labels]
