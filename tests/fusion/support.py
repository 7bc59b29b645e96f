"""What tests of fusions share: every rule there is, and clients made up or dealt by hand."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from traceback import format_exc
from typing import Any

import numpy as np
import pytest
import torch
from filelock import FileLock
from torch import Tensor

from accord.core.parts import make_part
from accord.fusion import Summary, fusions
from accord.fusion.base import Merge, ReferenceRule
from accord.messages import UploadHeader
from tests_support import digits

EYE = torch.eye(2)
Spec = dict[str, Any]

# The settings that take another way through a rule. One that is not here is asked for as it is.
SETTINGS: dict[str, list[Spec]] = {
    "average": [{}, {"recalibrate": True}],
    "classwise": [{"centre": centre} for centre in ("rotated", "mean", "none")],
    "distilled": [{}, {"calibrated": True}],
    "features": [
        *({"merge": merge} for merge in ("mean", "count", "reliability", "confidence")),
        {"merge": "count", "prototypes": "means"},
    ],
    "outputs": [{}, {"prior": True}],
    "split": [{}, {"decides": "client"}, {"cluster": 0.6}],
    "standardised": [{}, {"prototypes": "means"}],
}


def every_rule(**changes: Spec) -> dict[str, Spec]:
    """Name in the results → the entry of a study, for all that is registered and fuses nets.

    The server's own net is left out, because only methods with several rounds have one.
    `changes`: further settings of a rule, which its name in the results does not tell.
    """
    found = {}
    for name in fusions.names():
        kind = fusions.get(name)
        if issubclass(kind, ReferenceRule) or make_part(fusions, name, "fusion").of != "nets":
            continue
        if issubclass(kind, Merge) and kind.after_advance:
            continue
        for settings in SETTINGS.get(name, [{}]):
            label = "-".join([name, *(f"{key}.{value}" for key, value in settings.items())])
            found[label] = {"use": name, **changes.get(name, {}), **settings, "as": label}
    return found


def dealt(path: Path, holdings: Sequence[Mapping[int, int]], tests: int) -> None:
    """Real digits in a file whose column `owner` says whose they are.

    `holdings`: class → number of images, for each client. The last `tests` images are to test on.
    """
    images, labels = digits()
    left = {label: list(np.flatnonzero(labels[:-tests] == label)) for label in range(10)}
    rows, owners = [], []
    for owner, held in enumerate(holdings):
        for label, count in held.items():
            rows += [left[label].pop(0) for _ in range(count)]
            owners += [str(owner)] * count
    np.savez(
        path,
        x_train=images[rows],
        y_train=labels[rows],
        owner=np.array(owners),
        x_test=images[-tests:],
        y_test=labels[-tests:],
    )


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], Any]) -> Any:
    """What `make` returns, made by one of the test processes and read by all, even if it fails.

    `make` is given a folder of its own.
    """
    base = factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    path = shared / f"{name}.json"
    with FileLock(f"{path}.lock"):
        if not path.exists():
            try:
                made = {"made": make(factory.mktemp(name))}
            except Exception:
                made = {"failed": format_exc()}
            path.write_text(json.dumps(made))
        found = json.loads(path.read_text())
    if "failed" in found:
        pytest.fail(found["failed"])
    return found["made"]


def client(
    counts: list[int], prototypes: Tensor = EYE, accuracy: float = 1.0, **moments: Any
) -> Summary:
    tensors = {"label_counts": torch.tensor(counts), "net.head.prototypes": prototypes}
    tensors |= {name: torch.as_tensor(value) for name, value in moments.items()}
    header = UploadHeader(
        client="0", epoch=1, samples=sum(counts), train_accuracy=accuracy, briefing="made up"
    )
    return Summary(header, tensors)
