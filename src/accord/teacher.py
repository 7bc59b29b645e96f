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

from accord.budget import Budget
from accord.data.imageset import ImageSet
from accord.evaluate import summed_votes
from accord.fusion.base import Outputs, client_weights
from accord.objective.negatives import Rows
from accord.recipe import resolve
from accord.study import POOLED, Trial
from accord.uploads import UploadFiles

NAME = "teacher"


def teacher_trial(trial: Trial) -> Trial:
    """The teacher's own trial: the clients' net, start and budget, but its own loss and epochs.

    A map's teacher is the control `public-teacher`; a bank's is plain cross-entropy.
    """
    bank, fixed = trial.recipe.bank, trial.recipe.map
    plain = resolve("ce-ensemble" if bank else "public-teacher", Path())
    epochs = bank.teacher_epochs if bank else fixed.teacher_epochs if fixed else None
    head = trial.recipe.head
    own = {"head": head, "anchors": trial.recipe.anchors if head == "anchors" else None}
    recipe = plain.model_copy(update={"name": NAME, "fusion": (), **own})
    asked = {**recipe.budget, **({"epochs": epochs} if epochs else {}), "checkpoints": ()}
    budget = {**trial.setup.budget.model_dump(), **asked}
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
