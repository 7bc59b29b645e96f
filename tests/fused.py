"""A small finished run, for tests that fuse it again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import accord
from accord.record.folders import TrialFolder
from accord.record.record import Record

CLIENT = "client-1.safetensors"


def run_of(folder: Path, **changes: Any) -> Path:
    """A finished run: digits, three clients, no public images."""
    study = {
        "name": "mistaken",
        "data": {"name": "digits", "train_limit": 100, "test_limit": 40},
        "partition": {"alpha": 1.0, "clients": 3},
        "net": {"backbone": "conv4"},
        "budget": {"epochs": 1, "batch": 32},
        "recipes": ["fafi"],
        "references": False,
    }
    accord.run({**study, **changes}, out=folder / "run", workers=1, quiet=True)
    return folder / "run"


def fafi(run: Path) -> TrialFolder:
    return next(trial for trial in Record(run).trials() if trial.id.startswith("fafi"))
