"""Made-up images, and the definitions of ridge regression's numbers by NumPy alone."""

from __future__ import annotations

import numpy as np
import torch

from accord.closed_form.ridge import Ridge
from accord.closed_form.sums import Sums
from closed_forms import Data, Floats, made_up


def one_hot(data: Data, classes: int) -> Floats:
    found: Floats = np.eye(classes)[data.labels]
    return found


def scores(found: Ridge, features: Floats) -> Floats:
    told: Floats = (torch.from_numpy(features) @ found.weights.T + found.bias).numpy()
    return told


def usual_scatter(sums: Sums) -> float:
    return float(sums.scatter.diagonal().mean())


def hat(data: Data, penalty: float) -> Floats:
    """H of Ŷ = HY: the mean, and the ridge fit of what is left."""
    n = len(data.features)
    X = data.features - data.features.mean(axis=0)
    found: Floats = 1 / n + X @ np.linalg.solve(X.T @ X + penalty * np.eye(X.shape[1]), X.T)
    return found


def cross_validation(data: Data, classes: int, penalty: float) -> float:
    """GCV by its definition."""
    n, Y, H = len(data.features), one_hot(data, classes), hat(data, penalty)
    return float(((Y - H @ Y) ** 2).sum() / n / (1 - np.trace(H) / n) ** 2)


def least_on_a_fine_scan(data: Data, classes: int, scale: float) -> float:
    """The least GCV of 106 values of λ: in the basis of singular vectors each takes no time."""
    n, Y = len(data.features), one_hot(data, classes)
    U, s, _ = np.linalg.svd(data.features - data.features.mean(axis=0), full_matrices=False)
    left, found = Y - Y.mean(axis=0), []
    for penalty in scale * 10 ** np.linspace(-7.5, 3, 106):
        kept = s**2 / (s**2 + penalty)
        residual = left - (U * kept) @ (U.T @ left)
        found.append((residual**2).sum() / n / (1 - (1 + kept.sum()) / n) ** 2)
    return float(min(found))


def even(seed: int, rows: int, width: int) -> Data:
    """Features alike in spread, so that with few images no direction goes without saying."""
    data = made_up(seed, rows, width, 3)
    draws = np.random.default_rng(seed)
    centres = draws.normal(0, 0.5, size=(3, width))
    return Data(draws.normal(size=(rows, width)) + centres[data.labels], data.labels)


def uneven(seed: int, rows: int, width: int) -> Data:
    return made_up(seed, rows, width, 3)


CLASSES = 3
EDGES: dict[str, Data] = {
    "one image": Data(np.array([[3.0, -2.0]]), np.array([1])),
    "one feature": made_up(0, 9, 1, CLASSES),
    "one feature of one image": Data(np.array([[5.0]]), np.array([2])),
    "one class": Data(made_up(1, 9, 4, 1).features, np.full(9, 1)),
    "the same image": Data(np.full((7, 3), 0.5), np.array([0, 0, 1, 2, 2, 2, 2])),
    "a feature that never changes": Data(
        made_up(2, 9, 4, CLASSES).features * [1, 0, 1, 1] + [0, 0.7, 0, 0], np.arange(9) % 3
    ),
    "two features that are one": Data(np.outer(np.arange(6.0), [1, 1]), np.arange(6) % 3),
    "more features than images": made_up(3, 4, 12, CLASSES),
    "large numbers": Data(1e6 * made_up(4, 9, 4, CLASSES).features, np.arange(9) % 3),
    "small numbers": Data(1e-6 * made_up(5, 9, 4, CLASSES).features, np.arange(9) % 3),
}
