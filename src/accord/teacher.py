"""The server's teacher: a federation of one client, who holds the public images.

A teacher is briefed, trained and kept exactly as clients are, so that an earlier trial's clients
can stand in for it: both are a folder with a briefing and uploads that answer it.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from accord.bank import BankConfig
from accord.budget import Budget
from accord.data.deal import Deal
from accord.data.imageset import ImageSet
from accord.errors import AccordError
from accord.fusion.base import client_weights
from accord.messages import Briefing
from accord.nets.backbones import build_encoder
from accord.objective.negatives import Rows
from accord.recipe import resolve
from accord.record import TrialFolder
from accord.server import run_net
from accord.study import Trial
from accord.uploads import UploadFiles

NAME = "teacher"


def teacher_trial(trial: Trial, bank: BankConfig) -> Trial:
    """The teacher's own trial: the clients' net, start and budget, but cross-entropy and epochs."""
    plain = resolve("ce-ensemble", Path())
    recipe = plain.model_copy(update={"name": NAME, "head": trial.recipe.head, "fusion": ()})
    budget = {**trial.setup.budget.model_dump(), "epochs": bank.teacher_epochs, "checkpoints": ()}
    setup = trial.setup.model_copy(update={"budget": Budget.model_validate(budget)})
    return replace(trial, setup=setup, recipe=recipe, fusions=())


def uploads_of(folder: TrialFolder) -> UploadFiles:
    """The last uploads of a trial or a teacher, with the briefing they answer."""
    paths = sorted(folder.path.glob("uploads/client-*.safetensors"))
    paths = [path for path in paths if "@" not in path.name]
    if not folder.briefing.is_file() or not paths:
        raise AccordError(
            f"bank.source: expected the folder of a finished trial, RUN/trials/NAME; found no "
            f"briefing with uploads in {folder.path}."
        )
    return UploadFiles(paths, Briefing.load(folder.briefing))


def check_source(source: TrialFolder, trial: Trial, deal: Deal) -> None:
    """An earlier federation must be whole, and its features of the clients' width."""
    files, info = uploads_of(source), source.info()
    if info.get("status") != "finished" or len(files) != info.get("clients", 1):
        raise AccordError(
            f"bank.source: expected the uploads of all {info.get('clients', 1)} clients of a "
            f"finished trial in {source.path}; found {len(files)}, and it is "
            f"{info.get('status', 'not even begun')}. Run its study to the end first."
        )
    header = files.briefing.header
    channels = deal.dataset.train.images.shape[3]
    if header.channels != channels:
        raise AccordError(
            f"bank.source: the nets in {source.path} see images of {header.channels} channels, "
            f"expected {channels}, as here. Choose another, or set data.image.channels."
        )
    wanted = build_encoder(trial.setup.net.backbone, channels, trial.setup.net.norm).width
    found = build_encoder(header.net.backbone, channels, header.net.norm).width
    if wanted != found:
        raise AccordError(
            f"bank.source: the features of {header.net.backbone} in {source.path} have {found} "
            f"numbers, expected {wanted}, as those of net.backbone {trial.setup.net.backbone}. "
            "Choose a source with the clients' net."
        )


def digest_of(source: TrialFolder) -> str:
    """Names the content of an earlier trial, wherever it lies."""
    digest = hashlib.sha256(source.briefing.read_bytes())
    for path in uploads_of(source).paths:
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def encode(files: UploadFiles, images: ImageSet, device: str) -> Rows:
    """norm(Σ_k (n_k/n) f_k(x)) of every image: what the fusion `features` compares, unit length."""
    weights = client_weights(files.summaries(), "count")
    total: Tensor | None = None
    for index in range(len(files)):
        vote = run_net(files, index, images, device).features * weights[index].float()
        total = vote if total is None else total + vote
    if total is None:
        raise ValueError("no uploads to encode with")
    return Rows(F.normalize(total, dim=1), torch.from_numpy(images.labels))
