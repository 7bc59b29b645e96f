"""Keys of trials: equal for trials that can share a training, and readable names."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from accord.federation.devices import use_autocast
from accord.federation.teacher import NAME
from accord.federation.teaching import digest_of_model, model_of, needs_teacher
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
        f"{setup.data} {setup.net} {setup.budget} {trial.recipe.training} {bank_of(trial)} "
        f"{method} {setup.teacher}"
    )


def training_key(trial: Trial, allocation: str, helper: Run | None) -> str:
    """A key that is equal for trials whose recipes differ only in their names and fusions."""
    setup = trial.setup.model_dump(mode="json")
    who = NAME if trial.recipe.name == NAME else "0"
    options = [use_autocast(trial.options, who), trial.options.compile]
    training = trial.recipe.training.model_dump(mode="json")
    parts = [allocation, setup["net"], setup["budget"], training, trial.seed, options]
    bank = bank_of(trial)
    if helper:
        parts.append(helper.folder.id)
    if bank:
        parts.append(bank.model_dump(mode="json", include={"size", "selection"}))
    if trial.recipe.several_rounds:
        parts += [setup["rounds"], trial.method_spec]
    if needs_teacher(trial):
        model = model_of(trial)  # known by its content, because a folder may move
        parts.append({**setup["teacher"], "model": model and digest_of_model(model)})
    return key_of(*parts)


def key_of(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:10]


def trial_id(trial: Trial, training: str) -> str:
    """A readable name of a trial, different for every trial."""
    scheme = trial.setup.partition
    alpha = f"a{scheme.skew:g}" if scheme.skew else ""
    left_out = re.sub(r"[^A-Za-z0-9._-]+", "_", scheme.leave_out or "")[:LONGEST]
    without = f"without-{left_out}" if scheme.leave_out is not None else ""
    words = [trial.recipe.name, alpha, without, f"s{trial.seed}", training]
    return "-".join(word for word in words if word)
