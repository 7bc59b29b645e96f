"""The coordinates of a trial: its values on the grid axes, and their short texts.

The texts are used in progress bars and in the names of trials, so that no two trials read alike.
This module does not import torch, because the rows of a record need it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from accord.core.names import SAFE
from accord.study.settings import LEAVE_OUT

if TYPE_CHECKING:
    from accord.study.study import Trial

ALPHA = "partition.alpha"  # written as `a0.1` also if it is no axis
SELF_EVIDENT = ("data.name", "partition.scheme")  # their values are clear without the key
POOLED = "pooled"  # the column `partition` of trials that have all images in one place
NOBODY = "nobody"  # the column `partition.leave_out` of trials in which all clients take part
# Better words than the keys' own.
WORDS = {LEAVE_OUT: "without", "attack.name": "attack", "attack.clients": "hostile"}
OF_ROUNDS = ("mergenet.start_round", "mergenet.fusion_frequency")
LONGEST = 24  # characters of a value that is written as it is
LONGEST_NAME = 160  # characters of the readable part of a trial's name


def partition_of(trial: Trial) -> str:
    """The column `partition`: the scheme, or that all images are in one place.

    A pooled trial with the images of a scheme's clients is `pooled SCHEME`. Without a scheme it has
    the same images for every partition.
    """
    scheme = trial.setup.partition
    if not trial.recipe.pooled:
        return scheme.name
    return f"{POOLED} {scheme.name}" if scheme.pooled else POOLED


def is_pooled(partition: str | None) -> bool:
    """Whether all images are in one place; a damaged record may not say it."""
    return (partition or "").partition(" ")[0] == POOLED


def depends_on(axis: str, partition: str, idle: Collection[str]) -> bool:
    """Whether a trial depends on a grid axis; `idle` are the sections that it does not use.

    A pooled trial has no rounds in which a fusion could begin. Most of them have no partition.
    """
    section = axis.partition(".")[0]
    if section in idle or (section == "partition" and partition == POOLED):
        return False
    return not (is_pooled(partition) and axis in OF_ROUNDS)


def coordinates(trial: Trial) -> dict[str, Any]:
    """Grid axis → the trial's value, for the axes on which the trial depends."""
    setup = trial.setup.model_dump(mode="json")
    partition = partition_of(trial)
    found = {}
    for axis in trial.axes:
        section, _, key = axis.partition(".")
        if key in setup[section] and depends_on(axis, partition, trial.idle_sections):
            found[axis] = coordinate(axis, setup[section][key])
    return found


def coordinate(axis: str, value: Any) -> Any:
    """The value of a setup on an axis, as it is shown."""
    return NOBODY if axis == LEAVE_OUT and value is None else value


def readable_name(trial: Trial) -> str:
    """The readable part of a trial's name, such as `fafi-a0.1-epochs5-s0`."""
    alpha = trial.setup.partition.skew
    words = [trial.recipe.name, f"a{short(alpha)}" if alpha else ""]
    for label, text in _texts(trial).items():
        between = "_" if label and not text[0].isdigit() else ""
        words.append(f"{label}{between}{text}")
    name = "-".join(word for word in words if word)
    return f"{name[:LONGEST_NAME]}-s{trial.seed}"


def title(trial: Trial) -> str:
    """A trial in a progress bar, such as `fafi (α 0.1, epochs 5, seed 0)`."""
    alpha = trial.setup.partition.skew
    parts = [f"α {short(alpha)}"] if alpha else []
    parts += [f"{label} {text}".strip() for label, text in _texts(trial).items()]
    return f"{trial.recipe.name} ({', '.join([*parts, f'seed {trial.seed}'])})"


def _texts(trial: Trial) -> dict[str, str]:
    """Label of an axis → text of the trial's value, without α."""
    labels = axis_labels(trial.axes)
    found = {axis: value for axis, value in coordinates(trial).items() if axis != ALPHA}
    plain = [short(value) for axis, value in found.items() if axis in SELF_EVIDENT]
    texts = {labels[axis]: short(value) for axis, value in found.items()}
    return {"": "-".join(plain), **{k: v for k, v in texts.items() if k}} if plain else texts


def axis_labels(axes: Sequence[str]) -> dict[str, str]:
    """Axis → its last word, or its whole name if another axis has the same last word."""
    last = [WORDS.get(axis, axis.rpartition(".")[2]) for axis in axes]
    return {
        axis: "" if axis in SELF_EVIDENT else axis if last.count(word) > 1 else word
        for axis, word in zip(axes, last, strict=True)
    }


def short(value: Any) -> str:
    """A value in a few characters that are safe in a file name; different values differ."""
    text = _text(value)
    if SAFE.fullmatch(text.lstrip("-")) and len(text) <= LONGEST:
        return text
    end = re.split(r"[/\\]", text.rstrip("/\\"))[-1]  # the last part of a path
    slug = re.sub(r"[^A-Za-z0-9._-]+", "_", end)[-16:].strip("_.-")
    return f"{slug}~{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, float) and not isinstance(value, bool):
        general = f"{value:g}"
        return general if float(general) == value else repr(value)
    if value is None or isinstance(value, bool | int):
        return "none" if value is None else str(value).lower()
    return json.dumps(value, sort_keys=True)
