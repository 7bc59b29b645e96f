"""Federations that do not exist, for tests of the rules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from accord.advice.choosing import choose
from accord.advice.facts import Facts
from accord.advice.gather import Gathered, Source
from accord.advice.written import study_of


def federation(counts: ArrayLike, **changes: Any) -> Facts:
    """Clients with these images of each class: 32×32 pixels in colour unless told."""
    found = np.atleast_2d(np.array(counts, dtype=np.int64))
    values: dict[str, Any] = {
        "counts": found,
        "clients": tuple(f"site-{k}" for k in range(found.shape[0])),
        "classes": tuple(f"class-{c}" for c in range(found.shape[1])),
        "height": 32,
        "width": 32,
        "channels": 3,
    }
    return Facts(**{**values, **changes})


def even(clients: int, images: int, classes: int = 10, **changes: Any) -> Facts:
    """Clients that hold `images` images each, of all classes as equally as possible."""
    row = [images // classes + (c < images % classes) for c in range(classes)]
    return federation([row] * clients, **changes)


def written_study(facts: Facts, augment: str = "upright") -> dict[str, Any]:
    """The study that is written for these facts, with other images that exist."""
    sections = {
        "data": {
            "name": "digits",
            **({"public": 0.2} if facts.public else {}),
            **({"validation": 0.2} if facts.validation else {}),
        },
        "partition": {"scheme": "dirichlet", "alpha": 0.5, "clients": 3},
    }
    source = Source("advised", sections, Path())
    return study_of(Gathered(facts, source, augment), choose(facts))
