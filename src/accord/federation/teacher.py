"""The server's teacher: a federation of one client, which holds the public images.

A teacher is briefed, trained and stored in the same way as clients. The clients of an earlier trial
can therefore replace it: both are a folder with a briefing and uploads.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from accord.core.mergenet import MergeNetConfig
from accord.data.imageset import ImageSet
from accord.federation.teaching import trained_here
from accord.fusion.base import Outputs, client_weights
from accord.fusion.evaluate import summed_votes
from accord.fusion.uploads import UploadFiles
from accord.nets.settings import TeacherConfig
from accord.objective.negatives import Rows
from accord.study.recipe import ClosedFormRecipe, TrainingRecipe
from accord.study.resolve import resolve
from accord.study.settings import RoundsConfig
from accord.study.setups import POOLED
from accord.study.study import Trial
from accord.study.syntax import Spec

NAME = "teacher"


def teacher_trial(trial: Trial) -> Trial:
    """The teacher's trial: the clients' net, initial weights and budget, its own loss and epochs.

    The teacher of a map, of MergeNet and of distillation is trained as the recipe `public-teacher`,
    the teacher of a bank with cross-entropy only.
    """
    recipe = trial.recipe
    bank = recipe.bank if isinstance(recipe, TrainingRecipe) else None
    plain = resolve("ce-ensemble" if bank else "public-teacher", Path())
    net = trial.setup.net
    if not isinstance(plain, TrainingRecipe):
        raise TypeError("a teacher trains a net")
    epochs = bank.teacher_epochs if bank else None
    own: Spec = {"head": "linear", "anchors": None}
    if trained_here(trial):
        asked_for = trial.setup.teacher
        epochs = asked_for.epochs
        net = net.model_copy(update={"backbone": asked_for.backbone or net.backbone})
    elif isinstance(recipe, TrainingRecipe):
        anchors = recipe.anchors if recipe.head == "anchors" else None
        own = {"head": recipe.head, "anchors": anchors}
    elif isinstance(recipe, ClosedFormRecipe):
        epochs = recipe.map.teacher_epochs
    taught = plain.model_copy(update={"name": NAME, "fusion": (), **own})
    asked = {**taught.budget, **({"epochs": epochs} if epochs else {}), "checkpoints": ()}
    budget = trial.setup.budget.changed(asked)
    alone = {
        "budget": budget,
        "net": net,
        "partition": POOLED,
        "rounds": RoundsConfig(),
        "mergenet": MergeNetConfig(),
        "teacher": TeacherConfig(),
    }
    setup = trial.setup.model_copy(update=alone)
    return replace(trial, setup=setup, recipe=taught, fusions=(), axes=())


def encode(files: UploadFiles, images: ImageSet, device: str) -> Rows:
    """norm(Σ_k (n_k/n) f_k(x)) of every image, of unit length, as in the fusion `features`."""
    weights = client_weights(files.summaries(), "count")

    def weighted(client: int, outputs: Outputs) -> Tensor:
        return outputs.features * weights[client].float()

    total = summed_votes(files, images, weighted, device)
    return Rows(F.normalize(total, dim=1), torch.from_numpy(images.labels))
