"""The server's teacher: a federation of one client, who holds the public images.

A teacher is briefed, trained and kept exactly as clients are, so that an earlier trial's clients
can stand in for it: both are a folder with a briefing and uploads that answer it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from accord.bank import BankConfig
from accord.budget import Budget
from accord.data.imageset import ImageSet
from accord.evaluate import summed_votes
from accord.fusion.base import Outputs, client_weights
from accord.objective.negatives import Rows
from accord.recipe import resolve
from accord.study import POOLED, Trial
from accord.uploads import UploadFiles

NAME = "teacher"


def teacher_trial(trial: Trial, bank: BankConfig) -> Trial:
    """The teacher's own trial: the clients' net, start and budget, but cross-entropy and epochs."""
    plain = resolve("ce-ensemble", Path())
    head = trial.recipe.head
    own = {"head": head, "anchors": trial.recipe.anchors if head == "anchors" else None}
    recipe = plain.model_copy(update={"name": NAME, "fusion": (), **own})
    budget = {**trial.setup.budget.model_dump(), "epochs": bank.teacher_epochs, "checkpoints": ()}
    alone = {"budget": Budget.model_validate(budget), "partition": POOLED}
    setup = trial.setup.model_copy(update=alone)
    return replace(trial, setup=setup, recipe=recipe, fusions=())


def encode(files: UploadFiles, images: ImageSet, device: str) -> Rows:
    """norm(Σ_k (n_k/n) f_k(x)) of every image: what the fusion `features` compares, unit length."""
    weights = client_weights(files.summaries(), "count")

    def weighted(client: int, outputs: Outputs) -> Tensor:
        return outputs.features * weights[client].float()

    total = summed_votes(files, images, weighted, device)
    return Rows(F.normalize(total, dim=1), torch.from_numpy(images.labels))
