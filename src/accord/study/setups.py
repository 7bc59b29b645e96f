"""The setup of a trial: the study's sections, with the values that a recipe replaces."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from accord.attacks.settings import NO_ATTACK
from accord.core.budget import Budget
from accord.core.config import Config, parse
from accord.core.errors import AccordError
from accord.core.mergenet import MergeNetConfig
from accord.data.schemes import Scheme, make_scheme
from accord.data.settings import NO_SHIFT
from accord.messages.saved_model import SavedModel
from accord.nets.settings import TeacherConfig
from accord.study.recipe import ClosedFormRecipe, Recipe, TrainingRecipe
from accord.study.settings import RoundsConfig, Setup
from accord.study.syntax import Spec

C = TypeVar("C", bound=Config)
POOLED = make_scheme({"scheme": "iid", "clients": 1})


def setup_for(recipe: Recipe, setup: Setup) -> Setup:
    """The study's setup for one recipe, with the recipe's budget, rounds and images."""
    changes: dict[str, Any] = {
        "budget": budget_for(recipe, setup.budget),
        "rounds": _rounds_for(recipe, setup.rounds),
        **_teaching_for(recipe, setup),
    }
    if recipe.pooled == "public":  # the server's images are not those of any client
        setup = setup.model_copy(update={"shift": NO_SHIFT})
    if recipe.pooled:  # nobody attacks the images in one place
        setup = setup.model_copy(update={"attack": NO_ATTACK})
        changes |= _without_rounds(changes)
        copies = recipe.copies if isinstance(recipe, TrainingRecipe) else 1
        changes["partition"] = _pooled(setup, copies)
    if recipe.pooled == "public":
        changes["data"] = setup.data.model_copy(update={"dealt": "public"})
    return setup.model_copy(update=changes)


def budget_for(recipe: Recipe, budget: Budget) -> Budget:
    """The budget of one recipe.

    A recipe's own values replace those of the study. A closed form has one epoch, and an alignment
    stage ends with a checkpoint.
    """
    if isinstance(recipe, ClosedFormRecipe):
        return budget.changed({"epochs": 1})
    if not isinstance(recipe, TrainingRecipe):
        raise TypeError(f"{type(recipe).__name__} has no budget")
    budget = budget.changed(recipe.budget)
    stage = recipe.alignment_epochs
    if not stage:
        return budget
    if stage >= budget.epochs:
        raise AccordError(
            f"recipes.{recipe.name}.alignment_epochs: expected fewer than budget.epochs = "
            f"{budget.epochs}, so that some epochs are left for all terms; found {stage}."
        )
    return budget.with_checkpoint(stage)


def _rounds_for(recipe: Recipe, rounds: RoundsConfig) -> RoundsConfig:
    """The rounds of one recipe: the defaults if it is one-shot, else with the number filled in.

    If the number depends on the number of clients, it is filled in when that is known.
    """
    method = recipe.make_method().with_rounds(rounds.count)
    if not recipe.several_rounds:
        return RoundsConfig()
    if recipe.pooled:
        return rounds.model_copy(update={"count": method.rounds_for(1)})
    return rounds if method.open_rounds else rounds.model_copy(update={"count": method.rounds})


def _teaching_for(recipe: Recipe, setup: Setup) -> dict[str, Config]:
    """The sections `mergenet` and `teacher` of one recipe; the defaults if it uses no teacher."""
    mergenet, teacher = MergeNetConfig(), TeacherConfig()
    if not isinstance(recipe, TrainingRecipe):
        return {"mergenet": mergenet, "teacher": teacher}
    where, method = f"recipes.{recipe.name}", recipe.make_method()
    if recipe.uses_mergenet:
        mergenet = _changed(setup.mergenet, recipe.mergenet, f"{where}.mergenet")
        method = method.with_settings(mergenet, teacher)
    if method.needs_teacher or recipe.clients_ask_teacher:
        teacher = _changed(setup.teacher, recipe.teacher, f"{where}.teacher")
        teacher = _like_the_model(teacher, setup.teacher.model)
        merges = recipe.uses_mergenet and method.needs_teacher
        if "trainable" not in recipe.teacher and (recipe.pooled or not merges):
            # No server meets these clients with the teacher: it stays as it is.
            teacher = teacher.model_copy(update={"trainable": False})
    return {"mergenet": mergenet, "teacher": teacher}


def _like_the_model(teacher: TeacherConfig, model: str | None) -> TeacherConfig:
    """A random teacher has the backbone of the study's own model, which it is compared with."""
    stands_in = teacher.allow_random and teacher.model is None and teacher.backbone is None
    if not stands_in or model is None or not (Path(model) / "model.json").is_file():
        return teacher
    backbone = SavedModel.load(Path(model)).header.net.backbone
    return teacher.model_copy(update={"backbone": backbone})


def _changed(section: C, own: Spec, where: str) -> C:
    return parse(type(section), {**section.model_dump(), **own}, where)


def _without_rounds(changes: dict[str, Any]) -> dict[str, Any]:
    """A pooled recipe has one client, which trains the epochs of all rounds without a break.

    It is measured after as many epochs as the end of each round.
    """
    budget, rounds = changes["budget"], changes["rounds"]
    count = rounds.count or 1
    if count == 1:
        return {"rounds": RoundsConfig(count=rounds.count)}
    ends = [
        number * budget.epochs + epoch for number in range(count) for epoch in budget.checkpoints
    ]
    longer = budget.changed({"epochs": count * budget.epochs, "checkpoints": tuple(ends)})
    always = {"start_round": 1, "fusion_frequency": 1}
    return {
        "budget": longer,
        "rounds": RoundsConfig(count=1),
        "mergenet": changes["mergenet"].model_copy(update=always),
    }


def _pooled(setup: Setup, copies: int) -> Scheme:
    """The scheme of `copies` clients that each hold the images of all clients.

    If the study's scheme has a part in the choice of the images, the clients hold exactly the
    images of its clients. Otherwise all partitions have the same pooled images.
    """
    scheme = setup.partition
    shifted = not setup.shift.changes_nothing
    if scheme.named_by or scheme.leave_out or setup.data.test_per_client or shifted:
        return scheme.model_copy(update={"pooled": copies})
    if copies == 1:
        return POOLED
    return make_scheme({"scheme": "copies", "clients": copies})
