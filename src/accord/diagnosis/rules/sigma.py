"""The variances σ² of learnt balances: a shrunken learning rate, and σ that swings."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping

from accord.diagnosis.finding import Finding
from accord.diagnosis.reading import (
    amount,
    balances_of,
    client,
    course,
    last_half,
    mean,
    percent,
)
from accord.diagnosis.remedies import run_changed, run_recipes
from accord.diagnosis.rule import on_trials
from accord.report.evidence import Evidence, RunEvidence

DIVIDES = ("uncertainty", "rescaled")  # the balances that divide L_loc by 2σ_l²
SHRUNKEN = 0.25  # a learning rate of a quarter: as if a decay of the schedule had come at once
STILL_CLIPPED = 0.5  # if more steps are clipped, the clipping norm sets the step and not the loss
SWINGS = math.log(4)  # ways that log σ² goes back and forth: σ² doubles and halves at least once
REVERSALS = 3  # turns of at least 10 %; a σ² that overshoots and then settles has one or two
TURN = math.log(1.1)


@on_trials("shrunken-learning-rate")
def shrunken_learning_rate(run: RunEvidence, trial: Evidence) -> Iterator[Finding]:
    """L_loc is divided by 2σ_l², which is far above 1."""
    rules = [str(balance["use"]) for balance in balances_of(trial).values()]
    if not any(rule in DIVIDES for rule in rules):
        return
    factors = {}
    for dial in trial.dials("sigma_sq_local"):
        for name, values in trial.series(dial).items():
            factors[name] = mean(1 / (2 * value) for value in last_half(values))
    clipped = [mean(last_half(values)) for values in trial.series("clipped").values()]
    if not factors or (clipped and mean(clipped) > STILL_CLIPPED):
        return
    worst = min(factors, key=lambda name: factors[name])
    if factors[worst] >= SHRUNKEN:
        return
    told = f"{percent(mean(clipped))} of the steps are clipped." if clipped else ""
    yield Finding(
        rule="shrunken-learning-rate",
        weight=60,
        title=f"the balance shrinks the learning rate ({trial.recipe})",
        trials=[trial.id],
        evidence=[
            f"1/(2σ_l²) of {client(worst)} is {amount(factors[worst])} in the second half of the "
            f"training (σ_l² = {amount(1 / (2 * factors[worst]))}). {told}".strip()
        ],
        meaning=(
            "This balance divides L_loc by 2σ_l², and σ_l² settles at L_loc. The net learns as if "
            "its learning rate were multiplied by this factor."
        ),
        remedy=(
            "Use a balance that does not divide L_loc (etf-stabilised, etf-fixed), or multiply "
            "budget.lr by 2σ_l²."
        ),
        override=run_recipes(run, "etf-stabilised") or run_recipes(run, "etf-fixed"),
        strength=1 / factors[worst],
    )


@on_trials("unstable-sigma")
def unstable_sigma(run: RunEvidence, trial: Evidence) -> Iterator[Finding]:
    """log σ² goes up and down."""
    found = {
        (name, dial): values
        for key in ("sigma_sq_align", "sigma_sq_local")
        for dial in trial.dials(key)
        for name, values in trial.series(dial).items()
        if swing(values) > SWINGS and reversals(values) >= REVERSALS
    }
    if not found:
        return
    worst = max(found, key=lambda at: swing(found[at]))
    name, values = worst[0], found[worst]
    low = min(values, key=lambda epoch: values[epoch])
    high = max(values, key=lambda epoch: values[epoch])
    turns = reversals(values)
    yield Finding(
        rule="unstable-sigma",
        weight=55,
        title=f"σ is unstable ({trial.recipe})",
        trials=[trial.id],
        evidence=[
            f"{worst[1]} of {client(name)} lies between {course(values, [low])} and "
            f"{course(values, [high])} and turns {turns} times.",
            f"Clients and σ² of which this is true: {len(found)}.",
        ],
        meaning=(
            "σ follows the noise of the losses instead of their level, so that λ is a matter of "
            "chance in each epoch. Its learning rate or its momentum is too high."
        ),
        remedy="Train σ with a hundredth of the learning rate and without momentum.",
        override=run_changed(
            run, trial, "slow-sigma", balance={"lr_factor": 0.01, "momentum": 0, "clip": "apart"}
        )
        or run_recipes(run, "etf-uncertainty-repaired"),
        strength=swing(values),
    )


def swing(values: Mapping[int, float]) -> float:
    """Σ|Δ log σ²| − |log σ² at the end − at the start|: the ways that lead back."""
    logs = [math.log(value) for value in values.values()]
    ways = [after - before for before, after in itertools.pairwise(logs)]
    return sum(map(abs, ways)) - abs(sum(ways))


def reversals(values: Mapping[int, float]) -> int:
    """How often log σ² turns round, where each way is at least 10 % long."""
    logs = [math.log(value) for value in values.values()]
    turns, direction, extreme = 0, 0, logs[0]
    for value in logs[1:]:
        step = value - extreme
        if direction * step >= 0 and abs(step) > 0 and direction:
            extreme = value  # further in the same direction
        elif abs(step) >= TURN:
            turns += direction != 0
            direction, extreme = (1 if step > 0 else -1), value
    return turns
