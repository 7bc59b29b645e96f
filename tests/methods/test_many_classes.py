"""A few exchanges with a hundred classes: pairs of digits, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

import accord
from accord.core.randomness import numpy_generator

EACH = {"train": 30, "test": 4}  # images of each class


def write_pairs(path: Path) -> None:
    """Images of 16×16 pixels: a digit beside another one, above their own mirror images."""
    digits, labels = load_digits(return_X_y=True)
    digits = (digits.reshape(-1, 8, 8) * 15).astype(np.uint8)
    draws = numpy_generator(0, "pairs")
    of = [draws.permutation(np.flatnonzero(labels == digit)) for digit in range(10)]
    own = {"train": [some[:100] for some in of], "test": [some[100:] for some in of]}
    parts: dict[str, Any] = {}
    for part, each in EACH.items():
        pairs = np.repeat(np.arange(100), each)
        left, right = (
            np.stack([digits[draws.choice(own[part][digit])] for digit in side])
            for side in (pairs // 10, pairs % 10)
        )
        row = np.concatenate([left, right], axis=2)
        parts[f"x_{part}"] = np.concatenate([row, row[:, ::-1]], axis=1)
        parts[f"y_{part}"] = pairs
    np.savez(path, **parts)


def test_a_hundred_classes_gain_from_every_exchange(tmp_path: Path) -> None:
    write_pairs(tmp_path / "pairs.npz")
    turns = {
        "use": "public-turns",
        "as": "turns",
        "budget": {"epochs": 2, "batch": 64, "lr": 0.1},
        "method": {"turns": 2},
    }
    found = accord.run(
        {
            "name": "pairs",
            "data": {"name": "npz", "path": str(tmp_path / "pairs.npz"), "public": 0.2},
            "partition": {"alpha": 0.05, "clients": 3},
            "net": {"backbone": "conv4"},
            "rounds": {"count": 6},
            "teacher": {"epochs": 6},
            "recipes": [
                turns,
                {
                    "use": "few-rounds-public",
                    "as": "sums",
                    "map": {
                        "blocks": [{"use": "rounds", "recipe": "turns", "grid": 3}],
                        "landmarks": 400,
                    },
                },
            ],
            "references": False,
        },
        out=tmp_path / "run",
        workers=1,
        quiet=True,
    )
    assert not found.failures
    rows = {(row["recipe"], int(row["round"])): row for row in found.rows}
    first, last, sums = rows["turns", 3], rows["turns", 6], rows["sums", 7]
    assert float(last["accuracy"]) > float(first["accuracy"]) + 0.02
    assert float(sums["accuracy"]) > float(last["accuracy"])
    assert 0 <= float(sums["ece"]) < 0.2
