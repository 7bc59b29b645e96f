"""The server's teacher of a recipe: from a saved model, trained by the server, or random."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from torch import Tensor

from accord.core.errors import AccordError
from accord.core.randomness import torch_generator
from accord.data.allocation import Allocation
from accord.messages import NetHeader, TeacherHeader
from accord.messages.saved_model import SavedModel, digest_of, net_file
from accord.model.predictor import Predictor
from accord.nets.net import fresh_net
from accord.study.recipe import TrainingRecipe
from accord.study.study import Trial


@dataclass(frozen=True)
class Teacher:
    """The weights of a teacher, and what is needed to use them."""

    header: TeacherHeader
    weights: dict[str, Tensor]


def trained_here(trial: Trial) -> bool:
    """Whether the server trains the teacher itself, on its public images."""
    asked = trial.setup.teacher
    return trial.needs_teacher and asked.model is None and not asked.allow_random


def _refuse_other_teacher(trial: Trial) -> None:
    """Refuses labels for a trial whose server trains no teacher with them."""
    if not trained_here(trial):
        raise AccordError(
            "labels_from and labels_model are for a recipe whose teacher the server trains on its "
            "public images; found a recipe without one. Set method: from-teacher or "
            "in-turn-from-teacher, and remove teacher.model and teacher.allow_random."
        )


def labelling_model(trial: Trial) -> SavedModel | None:
    """The saved model that labels the public images, if the recipe names one."""
    recipe = trial.recipe
    if not isinstance(recipe, TrainingRecipe) or recipe.labels_model is None:
        return None
    return SavedModel.load(Path(recipe.labels_model))


def refuse_other_labels(trial: Trial, allocation: Allocation) -> None:
    """Refuses labels that the server cannot use, or that a model of other images would make."""
    recipe = trial.recipe
    if isinstance(recipe, TrainingRecipe) and (recipe.labels_from or recipe.labels_model):
        _refuse_other_teacher(trial)
    model = labelling_model(trial)
    if model is not None:
        refuse_other_images(model, allocation, "labels_model")


def refuse_other_images(model: SavedModel, allocation: Allocation, where: str) -> None:
    """Refuses a model for images of another size, or of other classes, than those of the study."""
    _, height, width, channels = allocation.dataset.train.images.shape
    expected = {
        "classes": allocation.classes,
        "height": height,
        "width": width,
        "channels": channels,
    }
    for name, wanted in expected.items():
        found = getattr(model.header, name)
        if found != wanted:
            raise AccordError(
                f"{where}: the model {model.folder} has {name} {_said(found)}; the study has "
                f"{_said(wanted)}. Choose a model for these images."
            )


def model_of(trial: Trial) -> SavedModel | None:
    """The saved model that the teacher is read from; None if it is trained or random."""
    asked = trial.setup.teacher
    if not trial.needs_teacher or asked.model is None:
        return None
    if not (Path(asked.model) / "model.json").is_file():
        if asked.allow_random:
            return None
        raise AccordError(
            f"teacher.model: {asked.model} is no saved model: it holds no model.json. Train a "
            "teacher with `accord teacher`, remove teacher.model so that the server trains one on "
            "its public images, or set teacher.allow_random for a random one."
        )
    return SavedModel.load(Path(asked.model))


def teacher_from(trial: Trial, allocation: Allocation) -> Teacher:
    """The teacher in the saved model, else a random one; the model is checked."""
    found = model_of(trial)
    if found is None:
        return random_teacher(trial, allocation)
    _check_model(found, trial, allocation)
    predictor = Predictor.load(found.folder)
    header = predictor.header
    told = TeacherHeader(net=header.net, mean=header.mean, std=header.std)
    return Teacher(told, predictor.weights(0))


def random_teacher(trial: Trial, allocation: Allocation) -> Teacher:
    """A teacher with initial weights, of the net that the study asks for."""
    header = teacher_header(trial, allocation)
    channels, classes = allocation.dataset.train.images.shape[3], len(allocation.classes)
    draws = torch_generator(trial.seed, "teacher")
    return Teacher(header, fresh_net(header.net, channels, classes, draws).state_dict())


def teacher_header(trial: Trial, allocation: Allocation) -> TeacherHeader:
    """What describes a teacher that is trained here, or random."""
    net, asked = trial.setup.net, trial.setup.teacher
    backbone = asked.backbone or net.backbone
    return TeacherHeader(
        net=NetHeader(backbone=backbone, norm=net.norm, head="linear"),
        mean=allocation.dataset.mean,
        std=allocation.dataset.std,
    )


def digest_of_model(found: SavedModel) -> str:
    """A value that changes when the teacher's weights change."""
    path = found.folder / net_file(0)
    return _digest(found.folder, path.stat().st_mtime_ns if path.exists() else 0)


@lru_cache(maxsize=8)
def _digest(folder: Path, changed: int) -> str:  # noqa: ARG001 - part of the cache's key
    return digest_of(SavedModel.load(folder).weights(0))


def _check_model(found: SavedModel, trial: Trial, allocation: Allocation) -> None:
    """Refuses a model that cannot be the teacher of this study."""
    header, asked = found.header, trial.setup.teacher
    channels = allocation.dataset.train.images.shape[3]
    if header.net.map is not None or header.nets != 1:
        has = "a closed form" if header.net.map is not None else f"{header.nets} nets"
        raise AccordError(
            f"teacher.model: expected a model of one trained net; {found.folder} has {has}. Train "
            "one with `accord teacher`."
        )
    if asked.backbone not in (None, header.net.backbone):
        raise AccordError(
            f"teacher.model: {found.folder} has the backbone {header.net.backbone}; expected "
            f"teacher.backbone = {asked.backbone}. Change one of the two."
        )
    if header.classes != allocation.classes:
        raise AccordError(
            f"teacher.model: {found.folder} knows other classes than the study's images: found "
            f"{_some(header.classes)}; expected {_some(allocation.classes)}."
        )
    if header.channels != channels:
        raise AccordError(
            f"teacher.model: {found.folder} is for images with {header.channels} channels; the "
            f"study's images have {channels}. Set data.image.channels, or choose another model."
        )


def _said(value: int | tuple[str, ...]) -> str:
    return str(value) if isinstance(value, int) else _some(value)


def _some(names: tuple[str, ...]) -> str:
    listed = ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
    return f"{len(names)} classes ({listed})"
