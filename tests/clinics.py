"""Real digits of several clinics, whose column names the clinic of each image."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accord.core.randomness import numpy_generator
from tests_support import digits

# Two clinics with many test images and different digits; one with a single test image; one without
# any. Names of clinics may hold any characters.
LARGE, OTHER, SINGLE, NONE = 'Ålesund, "A"', "b/c [red]", "one", "untested"
CLINICS = (OTHER, SINGLE, NONE, LARGE)  # in sorted order
STRANGER = "nobody's"  # a clinic of a test image only: no client has this name

Arrays = dict[str, NDArray[Any]]


def write_clinics(path: Path, train: int = 180, test: int = 60) -> Arrays:
    """Writes an .npz file with a test part, and returns its arrays."""
    images, labels = digits()
    draws = numpy_generator(0, "clinics")
    chosen = draws.permutation(len(images))[: train + test]
    x, y = images[chosen], labels[chosen]
    # The first clinic has all digits, the second none above 6, and the small ones have a few.
    site = np.where((y < 7) & (draws.random(len(y)) < 0.5), OTHER, LARGE).astype("U20")
    site[:train:6], site[1:train:6] = SINGLE, NONE
    site[train], site[train + 1] = SINGLE, STRANGER
    arrays: Arrays = {
        **{"x_train": x[:train], "y_train": y[:train], "clinic_train": site[:train]},
        **{"x_test": x[train:], "y_test": y[train:], "clinic_test": site[train:]},
    }
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return arrays


def study_of(path: Path, **changes: Any) -> dict[str, Any]:
    """A small study of these clinics."""
    return {
        "name": "clinics",
        "data": {"name": "npz", "path": str(path)},
        "partition": {"scheme": "by-column", "column": "clinic"},
        "net": {"backbone": "conv4"},
        "budget": {"epochs": 3, "batch": 16},
        "recipes": ["ce-ensemble"],
        "references": False,
        **changes,
    }
