"""Keys of trials: equal for trials that can share a training, and readable names."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any

from accord.federation.devices import use_autocast
from accord.federation.teaching import digest_of_model, model_of
from accord.federation.work import Run
from accord.objective.bank import BankConfig
from accord.study.recipe import TrainingRecipe
from accord.study.study import Trial

LONGEST = 40  # characters of a site's name in the name of a trial's folder


def bank_of(trial: Trial) -> BankConfig | None:
    return trial.recipe.bank if isinstance(trial.recipe, TrainingRecipe) else None


def kind_of_work(trial: Trial) -> str:
    """A key that is equal for trials whose clients do the same work, on any images."""
    setup = trial.setup
    method = trial.method_spec
    return (
        f"{setup.data} {setup.shift} {setup.net} {setup.budget} {trial.recipe.training} "
        f"{bank_of(trial)} {method} {setup.teacher}"
    )


def training_key(trial: Trial, allocation: str, clients: Iterable[str], helper: Run | None) -> str:
    """A key that is equal for trials whose recipes differ only in their names and fusions."""
    setup = trial.setup.model_dump(mode="json")
    autocast = {name: use_autocast(trial.options, name) for name in clients}
    same = len({*autocast.values()}) <= 1
    options = [any(autocast.values()) if same else autocast, trial.options.compile]
    training = trial.recipe.training.model_dump(mode="json")
    parts = [allocation, setup["net"], setup["budget"], training, trial.seed, options]
    bank = bank_of(trial)
    if helper:
        parts.append(helper.folder.id)
    if bank:
        parts.append(bank.model_dump(mode="json", include={"size", "selection"}))
    if trial.recipe.several_rounds:
        parts += [setup["rounds"], trial.method_spec]
    if trial.needs_teacher:
        model = model_of(trial)  # known by its content, because a folder may move
        parts.append({**setup["teacher"], "model": model and digest_of_model(model)})
    return key_of(*parts)


def key_of(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:10]


def trial_key(trial: Trial, training: str) -> str:
    """A key that is different for every trial. A trial's folder is found by it."""
    return key_of(trial.recipe.name, training)
