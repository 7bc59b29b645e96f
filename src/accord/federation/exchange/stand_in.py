"""A saved model in the place of the recipe that another recipe stands on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from accord.core.config import parse
from accord.core.errors import AccordError
from accord.messages.saved_model import SavedModel
from accord.nets.maps import MapConfig
from accord.study.recipe import ClosedFormRecipe
from accord.study.study import Trial


def standing_on(trial: Trial, model: Path | None) -> Trial:
    """The trial with a saved model in the place of the earlier recipe's result."""
    recipe, name = trial.recipe, trial.recipe.stands_on
    if model is None:
        raise AccordError(
            f"recipe {recipe.name!r} stands on {name!r}, whose model it needs. First exchange "
            f"files for that recipe (recipes=[{name}]) and save its model (accord fuse … --save "
            "MODEL); then add --from MODEL to this command."
        )
    changed: dict[str, Any] = {"labels_model": str(model.absolute())}
    if isinstance(recipe, ClosedFormRecipe):
        blocks = [one for spec in recipe.map.blocks for one in _kept(spec, model)]
        values = {**recipe.map.model_dump(), "blocks": blocks}
        found = parse(MapConfig, values, f"recipes.{recipe.name}.map")
        changed = {"map": found}
    return replace(trial, recipe=recipe.model_copy(update=changed), before=None)


def _kept(spec: dict[str, Any], model: Path) -> list[dict[str, Any]]:
    """The blocks that use a saved model in the place of a block `rounds` or `scores`."""
    where = {"model": str(model.absolute()), "weight": spec["weight"]}
    if spec["use"] not in ("rounds", "scores"):
        return [spec]
    header = SavedModel.load(model).header
    closed = header.net.map is not None
    if closed != (spec["use"] == "scores"):
        kinds = {True: "a closed form", False: "trained nets"}
        raise AccordError(
            f"--from {model}: expected a model of {kinds[not closed]}, which the recipe "
            f"{spec['recipe']!r} makes; found a model of {kinds[closed]}."
        )
    if closed:
        return [{"use": "kept-scores", **where}]
    nets = header.nets if spec["of"] == "clients" else 1
    alike = {"use": "encoder", **where, "stages": spec["stages"], "grid": spec["grid"]}
    return [{**alike, "net": index} for index in range(nets)]
