"""The course of a training: a wasted first stage and forgetting (note 000), a fall, no learning."""

from __future__ import annotations

from collections.abc import Iterator

from accord.diagnosis.finding import Finding
from accord.diagnosis.reading import (
    amount,
    best_guess,
    client,
    images_measured,
    in_turn,
    margin,
    own_fusion,
    percent,
    share,
)
from accord.diagnosis.remedies import fuse_with, run_changed, run_recipes
from accord.diagnosis.rule import on_trials
from accord.diagnosis.rules.explosion import exploded
from accord.report.evidence import Evidence, RunEvidence

FORGOTTEN = 1.1  # × L_al at the end of the first stage; epochs of one stage differ by less
MOST = 0.5  # share of the clients of which this must be true
LEARNT = 2.0  # × guessing: an accuracy on the own images above it is no chance
DECLINE = 0.03  # a fall of the accuracy by less than this is usual from epoch to epoch


@on_trials("wasted-warm-up")
def wasted_warm_up(run: RunEvidence, trial: Evidence) -> Iterator[Finding]:
    """After the first stage the model guesses."""
    end, own = _end_of_stage(trial), own_fusion(trial)
    if end is None or own is None:
        return
    accuracy = trial.accuracies(own[0])[end]
    guess = best_guess(trial, own[1])
    if guess is None or accuracy > guess + margin(accuracy, guess, images_measured(own[1])):
        return
    epochs = max(event["epoch"] for event in trial.events)
    yield Finding(
        rule="wasted-warm-up",
        weight=70,
        title=f"the first stage of training is wasted ({trial.recipe})",
        trials=[trial.id],
        evidence=[
            f"After stage 1 (epoch {end} of {epochs}) {own[0]} has an accuracy of "
            f"{percent(accuracy)}; guessing reaches {percent(guess)}."
        ],
        meaning=(
            "Alignment alone has taught the clients nothing that helps to classify. Its epochs "
            "are lost for the training proper."
        ),
        remedy="Use all losses from the first epoch on, and let the weight of alignment rise.",
        override=_one_stage(run, trial),
        strength=end / epochs,
    )


@on_trials("forgetting")
def forgetting(run: RunEvidence, trial: Evidence) -> Iterator[Finding]:
    """The alignment loss rises as soon as the local losses join."""
    end = _end_of_stage(trial)
    if end is None:
        return
    losses = {name: v for name, v in trial.series("loss_align").items() if end in v}
    after = {name: max(v for e, v in losses[name].items() if e > end) for name in losses}
    rises = {name: after[name] / losses[name][end] for name in losses}
    risen = {name: rise for name, rise in rises.items() if rise > FORGOTTEN}
    if not risen or len(risen) < MOST * len(rises):
        return
    worst = max(risen, key=lambda name: risen[name])
    yield Finding(
        rule="forgetting",
        weight=50,
        title=f"the second stage undoes the first one ({trial.recipe})",
        trials=[trial.id],
        evidence=[
            f"L_al of {client(worst)} rises from {amount(losses[worst][end])} at the end of stage "
            f"1 (epoch {end}) to {amount(after[worst])}; it rises by more than "
            f"{100 * (FORGOTTEN - 1):.0f} % at {len(risen)} of {len(rises)} clients."
        ],
        meaning="The local losses overwrite what the clients have aligned before.",
        remedy="Keep the alignment in the loss from the first to the last epoch, in one stage.",
        override=_one_stage(run, trial),
        strength=risen[worst],
    )


@on_trials("at-chance")
def at_chance(run: RunEvidence, trial: Evidence) -> Iterator[Finding]:
    """The final model is no better than guessing."""
    own = own_fusion(trial)
    if own is None:
        return
    name, figures = own
    accuracy, guess = figures["accuracy"], best_guess(trial, figures)
    if guess is None or accuracy > guess + margin(accuracy, guess, images_measured(figures)):
        return
    trained = share((trial.final or {}).get("train_accuracy")) or 0.0
    learnt = trained > LEARNT * guess
    told = f" The clients' nets reach {percent(trained)} on their own images." if trained else ""
    yield Finding(
        rule="at-chance",
        weight=90,
        title=f"the final model guesses ({trial.recipe}, {name})",
        trials=[trial.id],
        evidence=[f"The accuracy is {percent(accuracy)}; guessing reaches {percent(guess)}.{told}"],
        meaning=(
            "The net visits one client after the other, and its head forgets classes that the last "
            "ones do not hold."
            if in_turn(trial)
            else "The clients have learnt something, but the fusion loses it."
            if learnt
            else "The clients' nets have learnt nothing, so that no fusion can help."
        ),
        remedy=(
            "End with the sums of its features: few-rounds."
            if in_turn(trial)
            else "Fuse the same uploads in another way."
            if learnt
            else "See whether the losses fall (`accord dials RUN`); change budget.lr or epochs."
        ),
        override=(
            fuse_with(run, [trial], "classwise")
            if learnt and name != "classwise" and not in_turn(trial)
            else None
        ),
        strength=guess - accuracy,
    )


@on_trials("decline")
def decline(run: RunEvidence, trial: Evidence) -> Iterator[Finding]:  # noqa: ARG001
    """The accuracy was clearly higher at an earlier checkpoint."""
    own = own_fusion(trial)
    if own is None or exploded(trial):
        return
    name, figures = own
    accuracies = trial.accuracies(name)
    best = max(accuracies, key=lambda epoch: accuracies[epoch])
    last = max(accuracies)
    fall = accuracies[best] - accuracies[last]
    error = margin(accuracies[best], accuracies[last], images_measured(figures))
    if fall <= max(DECLINE, error):
        return
    yield Finding(
        rule="decline",
        weight=45,
        title=f"the accuracy falls during training ({trial.recipe}, {name})",
        trials=[trial.id],
        evidence=[
            f"The accuracy was {percent(accuracies[best])} in epoch {best} and is "
            f"{percent(accuracies[last])} in epoch {last}."
        ],
        meaning=(
            "The clients drift apart or overfit, so that more training makes the common model "
            "worse. The test images must not choose the epoch; validation images may."
        ),
        remedy="Let the learning rate fall (budget.schedule=cosine), or train for fewer epochs.",
        strength=fall,
    )


def _end_of_stage(trial: Evidence) -> int | None:
    """The last epoch of stage 1, if stage 2 has begun."""
    stages = {event["epoch"]: event.get("stage") for event in trial.events}
    first = [epoch for epoch, stage in stages.items() if stage == 1]
    return max(first) if first and 2 in stages.values() else None


def _one_stage(run: RunEvidence, trial: Evidence) -> str | None:
    banked = trial.config["recipe"].get("bank")
    curriculum = run_recipes(run, "bank-curriculum") if banked else None
    return curriculum or run_changed(run, trial, "one-stage", alignment_epochs=0)
