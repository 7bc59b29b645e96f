"""Fusions: worse than a client alone, beaten by another one, the only one, blind for a class."""

from __future__ import annotations

from collections.abc import Iterator

from accord.core.names import listed
from accord.diagnosis.finding import Finding
from accord.diagnosis.reading import (
    REFERENCE_FUSIONS,
    REFERENCE_RECIPES,
    client,
    client_figures,
    fusions_at_end,
    images_measured,
    images_of,
    in_turn,
    is_variant,
    margin,
    one_shot,
    own_fusion,
    percent,
    points,
    share,
)
from accord.diagnosis.remedies import fuse_with, has_uploads
from accord.diagnosis.rule import on_trials
from accord.report.evidence import Evidence, RunEvidence

BY_FAR = 0.05  # points that another fusion must gain; fusions of one kind differ by 1 to 3
BETTER = "classwise"  # the fusion of nets that docs/fusion.md recommends
BLIND = 0.05  # recall of a class
FEW = 20  # test images of a class below which its recall says little


@on_trials("worse-than-client")
def worse_than_client(run: RunEvidence, trial: Evidence) -> Iterator[Finding]:
    """The net of one client alone is better than the fused model."""
    own, alone = own_fusion(trial), client_figures(trial, "test_accuracy")
    if own is None or len(alone) < 2 or trial.pooled or trial.recipe in REFERENCE_RECIPES:
        return
    name, figures = own
    best = max(alone, key=lambda one: alone[one])
    accuracy = figures["accuracy"]
    gap = alone[best] - accuracy
    if gap <= margin(alone[best], accuracy, images_measured(figures)):
        return
    known = _others(trial, name)
    other = max(known, key=lambda one: known[one], default=None)
    measured = other is not None and known[other] > alone[best]
    chosen = other if other is not None and measured else BETTER
    yield Finding(
        rule="worse-than-client",
        weight=80,
        title=f"the fused model is worse than one of its clients ({trial.recipe}, {name})",
        trials=[trial.id],
        evidence=[
            f"{client(best)} alone reaches {percent(alone[best])} on the test images, {name} of "
            f"all clients {percent(accuracy)}."
        ],
        meaning="The fusion loses what clients have learnt. This client gains nothing from it.",
        remedy=f"Fuse the same uploads in another way, for example with {chosen}.",
        override=fuse_with(run, [trial], chosen, save=measured),
        strength=gap,
    )


@on_trials("better-fusion")
def better_fusion(run: RunEvidence, trial: Evidence) -> Iterator[Finding]:
    """Another fusion of the same uploads is better by far."""
    own = own_fusion(trial)
    if own is None or trial.recipe in REFERENCE_RECIPES:
        return
    name, figures = own
    known = _others(trial, name)
    best = max(known, key=lambda one: known[one], default=None)
    if best is None:
        return
    gain = known[best] - figures["accuracy"]
    error = margin(known[best], figures["accuracy"], images_measured(figures))
    if gain <= max(BY_FAR, error):
        return
    yield Finding(
        rule="better-fusion",
        weight=65,
        title=f"{best} is far better than the recipe's own fusion",
        trials=[trial.id],
        evidence=[
            f"{trial.recipe}: {best} of the same uploads reaches {percent(known[best])}, {name} "
            f"{percent(figures['accuracy'])}, {points(gain)} less.",
            *_validation(trial, name, best),
        ],
        meaning="The clients have learnt more than this fusion shows. Fusing again trains nothing.",
        remedy=f"Save the model of {best}, and measure {best} for the other recipes too.",
        override=fuse_with(run, [trial], best, save=True) if best in _registered() else None,
        strength=gain,
    )


@on_trials("one-fusion")
def one_fusion(run: RunEvidence, trial: Evidence) -> Iterator[Finding]:
    """Only one fusion of nets was measured, and it is not the one that is usually best."""
    found = [k for k in fusions_at_end(trial) if k not in REFERENCE_FUSIONS]
    alone = len(found) == 1 and found[0] != BETTER
    federated = not trial.pooled and trial.recipe not in REFERENCE_RECIPES
    nets = trial.config["recipe"].get("map") is None and one_shot(trial)
    if not (alone and federated and nets and len(trial.clients) > 1 and has_uploads(trial)):
        return
    yield Finding(
        rule="one-fusion",
        weight=10,
        title="only one fusion of the uploads was measured",
        trials=[trial.id],
        evidence=[f"{trial.recipe}: {found[0]} alone."],
        meaning=(
            "The fusion often matters more than the loss (docs/fusion.md). To measure another one "
            "costs seconds, because nothing is trained."
        ),
        remedy=f"Measure {BETTER}.",
        override=fuse_with(run, [], BETTER),
    )


@on_trials("blind-class")
def blind_class(run: RunEvidence, trial: Evidence) -> Iterator[Finding]:
    """The fused model hardly ever recognises a class that clients hold."""
    own = own_fusion(trial)
    if own is None or trial.recipe in REFERENCE_RECIPES or trial.pooled:
        return
    name, figures = own
    held = [sum(column) for column in zip(*images_of(trial).values(), strict=True)]
    blind = []
    for index, row in enumerate(figures["confusion"]):
        if held[index] and sum(row) >= FEW and row[index] < BLIND * sum(row):
            blind.append(index)
    if not blind or len(blind) > len(held) / 2:
        return
    told = [f"{trial.classes[index]} ({held[index]} training images)" for index in blind]
    yield Finding(
        rule="blind-class",
        weight=45,
        title="fused models do not recognise some classes",
        trials=[trial.id],
        evidence=[f"{trial.recipe}, {name}: recall below {percent(BLIND)} of {listed(told, 5)}."],
        meaning=(
            "The net visits one client after the other, and forgets classes that the last ones do "
            "not hold. Its features stay useful."
            if in_turn(trial)
            else "Clients hold these classes. Either their nets have not learnt them yet, or "
            "clients without these classes outweigh them in the fusion."
        ),
        remedy=(
            "End with the sums of its features: few-rounds."
            if in_turn(trial)
            else f"Let a client vote on a class by its images of the class: {BETTER}."
        ),
        override=(
            fuse_with(run, [], BETTER)
            if name != BETTER and has_uploads(trial) and not in_turn(trial)
            else None
        ),
        strength=len(blind),
    )


def _others(trial: Evidence, own: str) -> dict[str, float]:
    """The accuracies of the other fusions that are methods, with all clients."""
    return {
        name: one["accuracy"]
        for name, one in fusions_at_end(trial).items()
        if name != own and name not in REFERENCE_FUSIONS and not is_variant(one)
    }


def _validation(trial: Evidence, name: str, best: str) -> list[str]:
    found = fusions_at_end(trial)
    own, other = (share(found[one].get("validation_accuracy")) for one in (name, best))
    if own is None or other is None:
        return []
    return [f"On the validation images: {percent(other)} and {percent(own)}."]


def _registered() -> list[str]:
    from accord.fusion.base import fusions

    return fusions.names()
