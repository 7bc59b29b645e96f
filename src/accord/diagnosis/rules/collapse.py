"""Collapse: parallel prototypes, or features that do not tell classes apart."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from accord.diagnosis.finding import Finding
from accord.diagnosis.reading import client
from accord.diagnosis.remedies import run_recipes
from accord.diagnosis.rule import on_trials
from accord.report.evidence import Evidence, RunEvidence

PARALLEL = 0.95  # mean cosine of prototypes; random ones have about 0, an ETF −1/(C−1)
SEPARATED = 0.1  # share of the variance between classes: 0.4 or more in nets of the quickstart,
# and 0 to 0.09 at three clients of studies/svhn-explosion.yaml after λ had exploded
VARIANCE = 0.001  # Σ variance/‖mean‖²; trained nets had 0.3 or more
MOST = 0.5  # share of the clients with two classes or more of which this must be true

TENSORS = ("net.head.prototypes", "class_means", "feature_mean", "feature_var", "label_counts")


@on_trials("prototypes-collapsed")
def prototypes_collapsed(run: RunEvidence, trial: Evidence) -> Iterator[Finding]:
    """The prototypes of the classes that a client holds are nearly parallel."""
    cosines = {}
    for name, found in _uploads(trial):
        held = found["label_counts"] > 0
        cosines[name] = mean_cosine(found["net.head.prototypes"][held])
    worst = _most(cosines, {name: c for name, c in cosines.items() if c > PARALLEL})
    if worst is None:
        return
    yield Finding(
        rule="prototypes-collapsed",
        weight=75,
        title=f"prototypes have collapsed ({trial.recipe})",
        trials=[trial.id],
        evidence=[
            f"The mean cosine of two prototypes of {client(worst)} is {cosines[worst]:.3f}; it is "
            f"above {PARALLEL:g} at {_count(cosines, PARALLEL)} of {len(cosines)} clients."
        ],
        meaning="All classes have nearly the same prototype, so that scores hardly differ.",
        remedy="Keep prototypes apart: ETF anchors (etf-fixed), or the term `separation`.",
        override=run_recipes(run, "etf-fixed"),
        strength=cosines[worst],
    )


@on_trials("features-collapsed")
def features_collapsed(run: RunEvidence, trial: Evidence) -> Iterator[Finding]:
    """The features of a client's own images are all alike, or alike for all classes."""
    told: dict[str, tuple[float, str]] = {}
    count = 0
    for name, found in _uploads(trial):
        between, relative = separation(found), spread(found)
        count += 1
        if relative < VARIANCE:
            told[name] = (1.0, f"their variance is {relative:.2g} × their squared mean")
        elif between < SEPARATED:
            told[name] = (1 - between, f"classes make up {100 * between:.1f} % of their variance")
    worst = _most(dict.fromkeys(range(count), 0.0), {name: one[0] for name, one in told.items()})
    if worst is None:
        return
    yield Finding(
        rule="features-collapsed",
        weight=75,
        title=f"features do not tell classes apart ({trial.recipe})",
        trials=[trial.id],
        evidence=[
            f"Features of {client(worst)} on its own images: {told[worst][1]}; so or alike at "
            f"{len(told)} of {count} clients with two classes or more."
        ],
        meaning="The encoder gives nearly the same features to all classes. No fusion repairs it.",
        remedy="Lower λ or the learning rate, and see whether L_loc falls (`accord dials RUN`).",
        override=run_recipes(run, "fafi"),
        strength=told[worst][0],
    )


def mean_cosine(rows: Any) -> float:
    """The mean cosine of two different rows."""
    unit = rows.double() / rows.double().norm(dim=1, keepdim=True)
    count = len(unit)
    return float(((unit @ unit.T).sum() - count) / (count * (count - 1)))


def separation(found: dict[str, Any]) -> float:
    """The share of the variance of features that lies between the means of classes."""
    counts = found["label_counts"].double()
    shares = counts / counts.sum()
    means = found["class_means"].double()
    middle = shares @ means
    between = (shares[:, None] * (means - middle).square()).sum()
    return float(between / found["feature_var"].double().sum())


def spread(found: dict[str, Any]) -> float:
    """The sum of the variances of features, as a multiple of the squared length of their mean."""
    return float(
        found["feature_var"].double().sum() / found["feature_mean"].double().square().sum()
    )


def _uploads(trial: Evidence) -> Iterator[tuple[str, dict[str, Any]]]:
    """The statistics of each client that holds two classes or more; its upload must be a net."""
    for name in trial.clients:
        found = trial.tensors(name, TENSORS)
        if len(found) == len(TENSORS) and int((found["label_counts"] > 0).sum()) > 1:
            yield name, found


def _most(of: dict[Any, float], found: dict[Any, float]) -> Any:
    """The strongest case, if there are enough."""
    if not found or len(found) < MOST * len(of):
        return None
    return max(found, key=lambda name: found[name])


def _count(values: dict[str, float], bound: float) -> int:
    return sum(value > bound for value in values.values())
