"""Too few seeds to tell recipes apart, and how many would be needed.

Two recipes are compared by their differences d_i on the same seeds, with a paired t-test:
t = mean(d)/(s/√n) with n − 1 degrees of freedom. n seeds find a true difference D with the
probability (power) P(|T| > t_crit), where T has a noncentral t distribution with the parameter
√n·D/s, and t_crit is the 97.5 % quantile of the t distribution. D and s are estimated from the
seeds that are there.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from accord.diagnosis.finding import Finding
from accord.diagnosis.reading import REFERENCE_RECIPES, own_fusion, points
from accord.diagnosis.remedies import run_with
from accord.diagnosis.rule import rules
from accord.report.evidence import RunEvidence

LEVEL = 0.05  # of the test, on both sides together
POWER = 0.8  # the usual choice: four of five true differences are found
MOST_SEEDS = 1000  # a difference that needs more is of no interest
OFFERED = 20  # seeds in a command; a user should decide on more
PAIRS = 3  # pairs of recipes in the evidence
SMALLEST_SHIFT = 2.8  # √n·D/s of a power of 80 % for a large n: 1.96 + 0.84
FIRST_SEEDS = 3  # seeds for a first estimate of the spread


class Pair(NamedTuple):
    """A recipe, the next best one, and their differences per seed."""

    better: str
    other: str
    alpha: float | None
    differences: list[float]

    @property
    def mean(self) -> float:
        return statistics.mean(self.differences)


@rules.register("few-seeds")
def few_seeds(run: RunEvidence) -> Iterator[Finding]:
    """Neighbours in the ranking of recipes cannot be told apart."""
    for pairs in _ranked(run):
        unclear = [pair for pair in pairs if not clear(pair.differences)]
        if not unclear:
            continue
        count = len(unclear[0].differences)
        needed = FIRST_SEEDS if count == 1 else seeds_needed(unclear[0].differences)
        offered = needed if needed is not None and count < needed <= OFFERED else None
        yield Finding(
            rule="few-seeds",
            weight=45 if count == 1 else 35,
            title="too few seeds to tell recipes apart",
            trials=[],
            evidence=[_told(pair) for pair in unclear[:PAIRS]],
            meaning=(
                "A difference that the seeds do not confirm may be chance. Seeds change the "
                "partition, and this changes the accuracy more than most recipes do."
            ),
            remedy=(
                "Run at least three seeds, to see how much they differ."
                if count == 1
                else "Run more seeds, or do not conclude that one of these recipes is better."
            ),
            override=run_with(run, seeds=_seeds(run, offered)) if offered else None,
            strength=-count,
        )


def clear(differences: Sequence[float]) -> bool:
    """Whether a paired t-test finds a difference from 0 at 5 %."""
    from scipy.stats import t

    count = len(differences)
    if count < 2:
        return False
    spread = statistics.stdev(differences)
    mean = statistics.mean(differences)
    if spread == 0:
        return mean != 0
    return bool(abs(mean) * math.sqrt(count) / spread > t.ppf(1 - LEVEL / 2, count - 1))


def power(effect: float, count: int) -> float:
    """The probability that `count` seeds find a difference of `effect` standard deviations."""
    from scipy.stats import nct, t

    bound = t.ppf(1 - LEVEL / 2, count - 1)
    shift = effect * math.sqrt(count)
    return float(nct.sf(bound, count - 1, shift) + nct.cdf(-bound, count - 1, shift))


def seeds_needed(differences: Sequence[float]) -> int | None:
    """The smallest number of seeds with a power of 80 %; None if it is above 1,000."""
    spread = statistics.stdev(differences)
    if spread == 0:
        return None
    effect = abs(statistics.mean(differences)) / spread
    if effect * math.sqrt(MOST_SEEDS) < SMALLEST_SHIFT:
        return None
    counts = range(2, MOST_SEEDS + 1)
    return next((count for count in counts if power(effect, count) >= POWER), None)


def _ranked(run: RunEvidence) -> Iterator[list[Pair]]:
    """For each setting: each recipe with the next best one, from the best on."""
    settings: dict[str, dict[str, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    alphas: dict[str, float | None] = {}
    for trial in run.trials:
        own = own_fusion(trial)
        if own is None or trial.seed is None or trial.recipe in REFERENCE_RECIPES or trial.pooled:
            continue
        setting = str(_setting(run, trial.info))
        alphas[setting] = trial.alpha
        settings[setting][trial.recipe][trial.seed] = own[1]["accuracy"]
    for setting, recipes in settings.items():
        order = sorted(recipes, key=lambda name: -statistics.mean(recipes[name].values()))
        pairs = []
        for better, other in itertools.pairwise(order):
            seeds = sorted(recipes[better].keys() & recipes[other].keys())
            differences = [recipes[better][seed] - recipes[other][seed] for seed in seeds]
            if differences:
                pairs.append(Pair(better, other, alphas[setting], differences))
        yield pairs


def _setting(run: RunEvidence, info: dict[str, Any]) -> list[Any]:
    """All that differs between trials except recipe and seed."""
    config = info["config"]
    sections = [name for name in run.asked if isinstance(run.asked[name], dict)]
    axes = {
        f"{section}.{key}": config[section].get(key)
        for section in sections
        for key, value in run.asked[section].items()
        if isinstance(value, list) and isinstance(config.get(section), dict)
    }
    return [info.get("dataset"), info.get("alpha"), info.get("clients"), axes]


def _told(pair: Pair) -> str:
    where = "" if pair.alpha is None else f"α {pair.alpha:g}, "
    between = f"{where}{pair.better} − {pair.other}"
    count = len(pair.differences)
    if count == 1:
        return f"{between}: {points(pair.mean)}, with one seed."
    needed = seeds_needed(pair.differences)
    more = f"more than {MOST_SEEDS:,}" if needed is None else f"about {needed:,}"
    return (
        f"{between}: {points(pair.mean)} ± {100 * statistics.stdev(pair.differences):.1f} over "
        f"{count} seeds; a difference of this size needs {more} seeds (paired t-test, 5 %, "
        f"power {100 * POWER:.0f} %)."
    )


def _seeds(run: RunEvidence, count: int) -> list[int]:
    """The seeds of the run and further ones, `count` in all."""
    known = [trial.seed for trial in run.trials if trial.seed is not None]
    found = sorted(set(known))
    new = (seed for seed in range(count + len(found)) if seed not in found)
    while len(found) < count:
        found.append(next(new))
    return sorted(found)
