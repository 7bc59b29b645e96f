"""Commands to paste: a run with changed keys, or another fusion of the same uploads.

Both add to the record of the run, and nothing is trained twice. A command that this version would
refuse is left out: every changed study is checked here, as `accord run` would check it.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

import yaml

from accord.core.errors import AccordError
from accord.report.evidence import Evidence, RunEvidence
from accord.study.compatibility import joined
from accord.study.library import shipped
from accord.study.settings import takes_list


def run_with(run: RunEvidence, **changes: Any) -> str | None:
    """`accord run` with changed keys (`budget__lr=0.1` means budget.lr), added to the record."""
    keys = {key.replace("__", "."): value for key, value in changes.items()}
    words = [f"{key}={_flow(_both(run, key, value))}" for key, value in keys.items()]
    if not run.asked or not _accepted(run, words):
        return None
    path = run.record.path
    told = ["accord", "run", str(path / "study.yaml"), *words, "--out", str(path)]
    return " ".join(map(shlex.quote, told))


def run_recipes(run: RunEvidence, *entries: str | dict[str, Any]) -> str | None:
    """`accord run` with further recipes; nothing if the run already has them."""
    known = {str(one.get("name")) for one in run.asked.get("recipes", ())}
    new = [one for one in entries if (one if isinstance(one, str) else one["as"]) not in known]
    return run_with(run, recipes=new) if new else None


def run_changed(run: RunEvidence, trial: Evidence, label: str, **changes: Any) -> str | None:
    """`accord run` with a change of the trial's recipe; nothing for a recipe of the user's own."""
    if trial.recipe not in shipped():
        return None
    return run_recipes(run, {"use": trial.recipe, **changes, "as": f"{trial.recipe}-{label}"})


def fuse_with(
    run: RunEvidence,
    trials: Sequence[Evidence],
    *fusions: str,
    without: Sequence[str] = (),
    save: bool = False,
) -> str | None:
    """`accord fuse` for one trial or for all; nothing if the uploads are not there.

    With `save`, the model is saved: for a fusion that has already been measured.
    """
    if not all(has_uploads(trial) for trial in trials):
        return None
    words = ["accord", "fuse", str(run.record.path)]
    words += [word for name in fusions for word in ("--fusion", name)]
    words += [word for name in without for word in ("--without", name)]
    if len(trials) == 1:
        words += ["--trial", trials[0].id]
    if save:
        words += ["--save", "model"]
    return " ".join(map(shlex.quote, words))


def has_uploads(trial: Evidence) -> bool:
    """Whether the last upload of every client is still in the record."""
    names, folder = trial.clients, trial.folder.last_round
    return bool(names) and all(folder.upload(name, 0, last=True).exists() for name in names)


def _both(run: RunEvidence, key: str, value: Any) -> Any:
    """The value of a key and the record's own, as a grid axis, so that the record accepts it."""
    section, _, name = key.partition(".")
    if not name or takes_list(key):
        return value
    before = run.asked[section].get(name)
    old = before if isinstance(before, list) else [before]
    return [*old, value] if value not in old else old


def _accepted(run: RunEvidence, words: Sequence[str]) -> bool:
    """Whether `accord run` would accept the study of a record with these changes."""
    from accord.study.study import load_study

    try:
        joined(run.asked, load_study(run.asked, words).resolved, run.record.path)
    except (AccordError, OSError, TypeError, ValueError, KeyError):
        return False
    return True


def _flow(value: Any) -> str:
    """A value as YAML on one line."""
    text = yaml.safe_dump(value, default_flow_style=True, width=10_000, sort_keys=False)
    return text.removesuffix("...\n").strip()
