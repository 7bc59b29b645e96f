"""What rules read of a trial: figures that are numbers, standard errors, sizes and texts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from accord.core.names import shown
from accord.report.evidence import Evidence

Figures = Mapping[str, Any]
REFERENCE_FUSIONS = ("client-mean", "client-best")
REFERENCE_RECIPES = ("central", "local-only", "public-teacher")
FALL = 2.0  # standard errors: a larger difference is not chance in 19 of 20 cases
FALL_UNKNOWN = 0.02  # the same, where the number of test images is not recorded


def number(value: Any) -> float | None:
    """A finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def share(value: Any) -> float | None:
    """A number between 0 and 1, such as an accuracy, or None."""
    found = number(value)
    return found if found is not None and 0 <= found <= 1 else None


def fusions_at_end(trial: Evidence) -> dict[str, Figures]:
    """The fusions of the last checkpoint with an accuracy, by name."""
    found = (trial.final or {}).get("fusions", {})
    return {name: one for name, one in found.items() if share(one.get("accuracy")) is not None}


def is_variant(figures: Figures) -> bool:
    """Whether a fusion was measured without some clients, or with further ones."""
    return bool(figures.get("without") or figures.get("added"))


def own_fusion(trial: Evidence) -> tuple[str, Figures] | None:
    """The fusion that belongs to the recipe, with its figures at the last checkpoint."""
    found = {k: v for k, v in fusions_at_end(trial).items() if not is_variant(v)}
    found = {k: v for k, v in found.items() if k not in REFERENCE_FUSIONS}
    asked = trial.config.get("recipe", {}).get("fusion") or [{}]
    first = asked[0].get("as") if isinstance(asked[0], Mapping) else None
    name = first if first in found else next(iter(found), None)
    return (name, found[name]) if name is not None else None


def in_turn(trial: Evidence) -> bool:
    """Whether one net visits the clients: there is one net, and it forgets what it sees no more."""
    method = trial.config.get("recipe", {}).get("method")
    return isinstance(method, Mapping) and str(method.get("use")).startswith("in-turn")


def images_measured(figures: Figures) -> int | None:
    """The number of test images behind the figures of a fusion."""
    try:
        return sum(sum(row) for row in figures["confusion"]) or None
    except (KeyError, TypeError):
        return None


def best_guess(trial: Evidence, figures: Figures) -> float | None:
    """The accuracy of always naming the most frequent class of the test images: chance."""
    try:
        counts = [sum(row) for row in figures["confusion"]]
        return float(max(counts) / sum(counts))
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        return 1 / len(trial.classes) if trial.classes else None


def margin(one: float, other: float, images: int | None) -> float:
    """Two standard errors of the difference of two accuracies.

    √(a(1−a)/n + b(1−b)/n) ignores that both were measured on the same images. Their errors are
    then alike, and the true standard error is smaller.
    """
    if not images:
        return FALL_UNKNOWN
    return FALL * math.sqrt((one * (1 - one) + other * (1 - other)) / images)


def images_of(trial: Evidence) -> dict[str, list[int]]:
    """Client → its number of images of each class."""
    counts = trial.label_counts
    names = trial.clients or [str(index) for index in range(len(counts))]
    return {name: [int(n) for n in row] for name, row in zip(names, counts, strict=True)}


def one_shot(trial: Evidence) -> bool:
    """Whether clients and server exchange one message; unknown counts as one."""
    return trial.folder.rounds == 1


def balances_of(trial: Evidence) -> dict[str, Mapping[str, Any]]:
    """Alignment term → its balance."""
    terms = trial.config.get("recipe", {}).get("align") or {}
    return {name: term["balance"] for name, term in terms.items()}


def client_figures(trial: Evidence, key: str) -> dict[str, float]:
    """Client → a share such as `test_accuracy` at the last checkpoint."""
    found = {
        str(one["client"]): share(one.get(key)) for one in (trial.final or {}).get("clients", ())
    }
    return {name: value for name, value in found.items() if value is not None}


def mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found)


def last_half(values: Mapping[int, float]) -> list[float]:
    """The values of the second half of the epochs; of an odd number, also the middle one."""
    found = list(values.values())
    return found[len(found) // 2 :]


def percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def points(value: float) -> str:
    return f"{100 * value:.1f} points"


def amount(value: float) -> str:
    """A number in few characters."""
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e7 else f"{value:.3g}"


def client(name: str) -> str:
    return f"client {shown(name)}"


def course(values: Mapping[int, float], epochs: Sequence[int]) -> str:
    """The values at some epochs: `12 (epoch 1), 65.2 (epoch 10)`."""
    there = [epoch for epoch in dict.fromkeys(epochs) if epoch in values]
    return ", ".join(f"{amount(values[epoch])} (epoch {epoch})" for epoch in there)
