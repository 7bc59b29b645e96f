"""Gradients: two losses against each other, one that dominates, and clipping in every step."""

from __future__ import annotations

from collections.abc import Iterator

from accord.diagnosis.finding import Finding
from accord.diagnosis.reading import amount, client, last_half, mean, percent
from accord.diagnosis.remedies import run_recipes, run_with
from accord.diagnosis.rule import on_trials
from accord.diagnosis.rules.explosion import exploded
from accord.report.evidence import Evidence, RunEvidence

OPPOSED = -0.3  # cosine; more than a third of the smaller gradient is lost
EPOCHS = 3  # last epochs in which all cosines are negative: less is not persistent
BALANCED = 2.0  # λ‖∇L_al‖ within this factor of ‖∇L_loc‖: an equilibrium, in which they cancel
DOMINATES = 10.0  # × the other norm: the direction differs from its own by at most 6°
NO_EFFECT = 0.01  # × the other norm
ALWAYS = 0.99  # share of clipped steps
MOST = 0.5  # share of the clients of which something must be true


@on_trials("gradient-conflict")
def gradient_conflict(run: RunEvidence, trial: Evidence) -> Iterator[Finding]:
    """The gradients of both losses point in opposite directions, epoch after epoch."""
    ratios = _ratios(trial)
    found = {}
    for name, values in trial.series("gradient_cosine").items():
        last = list(values.values())[-EPOCHS:]
        ratio = ratios.get(name, 0.0)
        settled = 1 / BALANCED <= ratio <= BALANCED
        if len(last) == EPOCHS and max(last) < 0 and mean(last) < OPPOSED and not settled:
            found[name] = mean(last)
    if not found or len(found) < MOST * len(ratios):
        return
    worst = min(found, key=lambda name: found[name])
    yield Finding(
        rule="gradient-conflict",
        weight=45,
        title=f"local and alignment gradients are opposed ({trial.recipe})",
        trials=[trial.id],
        evidence=[
            f"The cosine of ∇L_loc and ∇L_al is {found[worst]:.2f} at {client(worst)}, as the mean "
            f"of the last {EPOCHS} epochs, all of them negative; the norm of λ·∇L_al is "
            f"{amount(ratios.get(worst, 0.0))} × that of ∇L_loc.",
            f"This is so at {len(found)} of {len(ratios)} clients.",
        ],
        meaning=(
            "What one loss gains, the other one loses. The larger gradient wins, and steps are "
            "shorter than either loss needs."
        ),
        remedy="Combine the gradients without conflict (etf-upgrad), or lower λ.",
        override=run_recipes(run, "etf-upgrad"),
        strength=-found[worst],
    )


@on_trials("dominating-gradient")
def dominating_gradient(run: RunEvidence, trial: Evidence) -> Iterator[Finding]:
    """The gradient of one loss is many times that of the other."""
    ratios = _ratios(trial)
    if not ratios or exploded(trial):
        return
    large = {name: ratio for name, ratio in ratios.items() if ratio > DOMINATES}
    small = {name: ratio for name, ratio in ratios.items() if ratio < NO_EFFECT}
    if len(large) >= MOST * len(ratios):
        worst = max(large, key=lambda name: large[name])
        which, weight, strength = "alignment", 55, large[worst]
        meaning = "The anchors alone move the prototypes; the clients' images have no say in it."
        remedy = "Lower λ."
    elif len(small) >= MOST * len(ratios):
        worst = min(small, key=lambda name: small[name])
        which, weight, strength = "local", 25, 1 / small[worst]
        meaning = "The anchors have no effect: the result is that of training without alignment."
        remedy = "Raise λ, or leave the alignment out (fafi)."
    else:
        return
    yield Finding(
        rule="dominating-gradient",
        weight=weight,
        title=f"the {which} gradient dominates ({trial.recipe})",
        trials=[trial.id],
        evidence=[
            f"The norm of λ·∇L_al is {amount(ratios[worst])} × that of ∇L_loc at {client(worst)} "
            f"in the second half of the training; such values at "
            f"{len(large if which == 'alignment' else small)} of {len(ratios)} clients."
        ],
        meaning=meaning,
        remedy=remedy,
        override=run_recipes(run, "etf-gradnorm"),
        strength=strength,
    )


@on_trials("always-clipped")
def always_clipped(run: RunEvidence, trial: Evidence) -> Iterator[Finding]:
    """Every step is clipped."""
    shares = {name: mean(last_half(v)) for name, v in trial.series("clipped").items()}
    always = [name for name, value in shares.items() if value >= ALWAYS]
    budget = trial.config["budget"]
    if not always or len(always) <= MOST * len(shares) or trial.pooled:
        return
    muon = budget.get("muon") is not None
    reached = budget["lr"] * budget["clip"] / (1 - budget["momentum"])
    yield Finding(
        rule="always-clipped",
        weight=15,
        title="the gradient is clipped in every step",
        trials=[trial.id],
        evidence=[
            f"At {len(always)} of {len(shares)} clients at least {percent(ALWAYS)} of the steps "
            f"are clipped in the second half of the training (budget.clip = {budget['clip']:g})."
        ],
        meaning=(
            "The length of a step is then set by budget.lr and budget.clip and not by the loss: "
            f"at most lr·clip/(1 − m) = {amount(reached)}. A weight of a loss changes the "
            "direction only. FAFI's own setting does this; it is no error in itself."
            + (" Kernels of convolutions step by budget.muon instead." if muon else "")
        ),
        remedy="See whether the result changes with a larger clipping norm.",
        override=run_with(run, budget__clip=10.0 * budget["clip"]),
        strength=len(always) / len(shares),
    )


def _ratios(trial: Evidence) -> dict[str, float]:
    """Client → λ_effective·‖∇L_al‖/‖∇L_loc‖, the mean over the second half of the training.

    Epochs in which λ is 0 by intention, such as the last one of an attenuated λ, do not count.
    """
    local = trial.series("gradient_norm_local")
    align = trial.series("gradient_norm_align")
    found = {}
    for name, values in trial.series("lambda_effective").items():
        known = {
            epoch: value * align[name][epoch] / local[name][epoch]
            for epoch, value in values.items()
            if value > 0 and epoch in align.get(name, ()) and local[name].get(epoch)
        }
        if known:
            found[name] = mean(last_half(known))
    return found
