"""The course of a trial as trackers get it: parameters, tags, and values per client and epoch."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from accord.record.folders import TrialFolder

MEASURED = ("accuracy", "balanced_accuracy", "worst_class", "validation_accuracy", "ece", "loss")
OF_CLIENT = ("train_accuracy", "test_accuracy")
TAGS = ("study", "dataset", "partition", "alpha", "clients", "recipe", "seed", "status")
NO_DIALS = ("client", "epoch", "round")


@dataclass(frozen=True)
class Value:
    """One measured value; `client` is None for a value of the fused model."""

    client: str | None
    name: str
    epoch: int
    value: float


@dataclass(frozen=True)
class Course:
    """Everything about a trial that trackers show."""

    trial: str
    tags: dict[str, str]
    parameters: dict[str, str]
    values: tuple[Value, ...]

    @cached_property
    def digest(self) -> str:
        """A hash of the content, by which a tracker knows what it has copied already."""
        content = [self.tags, self.parameters, [[*vars(one).values()] for one in self.values]]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def course_of(folder: TrialFolder) -> Course:
    """The course of a trial, from its files."""
    info = folder.info()
    config = {key: value for key, value in info["config"].items() if key != "options"}
    values = {(v.client, v.name, v.epoch): v for v in (*_dials(folder), *_measured(folder))}
    return Course(
        folder.id,
        {key: str(info[key]) for key in TAGS if info.get(key) is not None},
        {key: str(value) for key, value in _flat(config) if value is not None},
        tuple(values.values()),  # if an epoch was done twice, its last event counts
    )


def _dials(folder: TrialFolder) -> Iterator[Value]:
    """Losses, λ, σ, gradients and so on of every client and epoch."""
    for event in folder.read_events():
        for name, value in event.items():
            if name not in NO_DIALS and _is_number(value):
                yield Value(str(event["client"]), name, int(event["epoch"]), float(value))


def _measured(folder: TrialFolder) -> Iterator[Value]:
    """The figures of every fusion at each checkpoint, and the accuracies of the clients' nets."""
    for checkpoint in folder.measures()["checkpoints"]:
        epoch = int(checkpoint["epoch"])
        for fusion, found in checkpoint["fusions"].items():
            for name in MEASURED:
                if _is_number(found.get(name)):
                    yield Value(None, f"{name}/{fusion}", epoch, float(found[name]))
        for client in checkpoint.get("clients", ()):
            for name in OF_CLIENT:
                if _is_number(client.get(name)):
                    yield Value(str(client["client"]), name, epoch, float(client[name]))


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value)


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Nested mappings as dotted keys, such as `budget.epochs`."""
    if not isinstance(value, Mapping):
        yield name, value
        return
    for key, inner in value.items():
        yield from _flat(inner, f"{name}.{key}" if name else str(key))
