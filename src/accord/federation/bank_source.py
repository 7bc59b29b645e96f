"""The source of a bank: an earlier trial whose nets encode the public images."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from accord.core.config import parse
from accord.core.errors import AccordError
from accord.data.allocation import Allocation, allocate
from accord.data.images import Indices
from accord.data.schemes import make_scheme
from accord.data.settings import DataConfig
from accord.data.splitting import split_of
from accord.fusion.uploads import UploadFiles
from accord.messages import Briefing
from accord.nets.backbones.base import build_encoder
from accord.record.folders import TrialFolder
from accord.study.study import Trial


def uploads_of(folder: TrialFolder, *, own: bool = False) -> UploadFiles:
    """The last uploads of a trial or a teacher, with the briefing that they answer.

    `own`: this server has trained the nets itself, so that their numbers are not checked.
    """
    last = folder.last_round
    paths = sorted(last.path.glob("uploads/client-*.safetensors"))
    paths = [path for path in paths if "@" not in path.name]
    if not last.briefing.is_file() or not paths:
        raise AccordError(
            f"bank.source: expected the folder of a finished trial, RUN/trials/NAME; found no "
            f"briefing with uploads in {folder.path}."
        )
    return UploadFiles(paths, Briefing.load(last.briefing), own=own)


def check_source(source: TrialFolder, trial: Trial, allocation: Allocation) -> None:
    """Refuses an unfinished source, one with other features, or one trained on our test images."""
    files, info = uploads_of(source), source.info()
    expected = _answers(info)
    if info.get("status") != "finished" or len(files) != expected:
        raise AccordError(
            f"bank.source: expected a finished trial with the uploads of all "
            f"{expected} clients in {source.path}; found {len(files)} uploads and "
            f"status {info.get('status', 'missing')!r}. Run its study to the end first."
        )
    for index in range(len(files)):
        files.load(index)
    _check_features(files, trial, allocation, source.path)
    _refuse_leak(info, allocation, source.path)


def _answers(info: dict[str, Any]) -> int:
    """The number of clients that answered in a trial's last round; 1 for a teacher."""
    rounds = info.get("rounds")
    return len(rounds[-1]["answered"]) if rounds else info.get("clients", 1)


def _check_features(files: UploadFiles, trial: Trial, allocation: Allocation, path: Path) -> None:
    header = files.briefing.header
    channels = allocation.dataset.train.images.shape[3]
    if header.channels != channels:
        raise AccordError(
            f"bank.source: the nets in {path} see images of {header.channels} channels, expected "
            f"{channels}, as in this study. Choose another source, or set data.image.channels."
        )
    wanted = build_encoder(trial.setup.net.backbone, channels, trial.setup.net.norm).width
    found = build_encoder(header.net.backbone, channels, header.net.norm).width
    if wanted != found:
        raise AccordError(
            f"bank.source: the features of {header.net.backbone} in {path} have {found} numbers, "
            f"expected {wanted}, as those of net.backbone {trial.setup.net.backbone}. Choose a "
            "source that has the same backbone as the clients."
        )


def _refuse_leak(info: dict[str, Any], allocation: Allocation, path: Path) -> None:
    """Refuses a source that was trained on test or validation images of this study."""
    if "images" not in info:
        raise AccordError(
            f"bank.source: {path}/trial.json does not say which images were used for training, "
            "because it was made by an earlier version of Accord. Run its study again."
        )
    if info["images"] != allocation.dataset.folder.name:
        return  # other images, or images that were converted in another way: no comparison
    learnt, ours = _learnt(info, allocation, path), allocation.split
    measured = {"validation": ours.validation, "held-out": allocation.rows("own")}
    if ours.test_from == "train":
        measured["test"] = ours.test
    for part, rows in measured.items():
        shared = len(np.intersect1d(learnt, rows))
        if shared:
            raise AccordError(
                f"bank.source: the clients of {path} have trained on {shared:,} of the "
                f"{len(rows):,} {part} images of this study, so the accuracy on these images would "
                "be too high. Use a source that was made with the same data section and seed."
            )


def _learnt(info: dict[str, Any], allocation: Allocation, path: Path) -> Indices:
    """The images that the nets of an earlier trial were trained on."""
    config, where = info["config"], f"{path}/trial.json"
    asked = (
        parse(DataConfig, config["data"], where),
        make_scheme(config["partition"], where),
        info["seed"],
    )
    if "clients" not in info:  # a teacher, which was trained on the public images only
        return split_of(allocation.dataset, *asked).public
    theirs = allocate(allocation.dataset, *asked)
    clients = (theirs.held(k) for k in range(len(theirs.partition.names)))
    return np.concatenate([theirs.split.public, *clients])


def digest_of(source: TrialFolder) -> str:
    """A hash of the nets of an earlier trial, without its path and its running time."""
    files = uploads_of(source)
    digest = hashlib.sha256(files.briefing.digest.encode())
    for index in range(len(files)):
        upload = files.load(index)
        digest.update(f"{upload.header.client} {upload.header.samples}".encode())
        for name, tensor in sorted(upload.tensors.items()):
            digest.update(name.encode())
            digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()
