"""Too much alignment (note 001): prototypes fit their anchors, but the clients learn little."""

from __future__ import annotations

from collections.abc import Iterator

from accord.diagnosis.finding import Finding
from accord.diagnosis.reading import (
    REFERENCE_RECIPES,
    amount,
    best_guess,
    client,
    client_figures,
    course,
    images_measured,
    last_half,
    margin,
    mean,
    own_fusion,
    percent,
    points,
    share,
)
from accord.diagnosis.remedies import run_recipes
from accord.diagnosis.rule import on_trials
from accord.diagnosis.rules.explosion import HARMFUL, exploded
from accord.report.evidence import Evidence, RunEvidence

STALLED = 0.03  # L_loc that falls by less than this share since λ is high has stalled
ACCURATE = 0.02  # recipes this close to the best one are accurate; seeds often differ by more
LESS_ACCURATE = 0.05  # a recipe this far below the best one has a problem
FAR_ABOVE = 1.3  # × the largest λ of the accurate recipes; note 001: 7.6 to 9.0 against 5.8
HIGHER_LOSS = 1.05  # × L_loc of the accurate recipes; L_loc of equal recipes differs by about 1 %
FITTED = 0.1  # × the first L_al: prototypes at a third of their first distance from the anchors
POORER = 0.1  # fewer images with a neighbour of their class than with another recipe


@on_trials("over-alignment")
def over_alignment(run: RunEvidence, trial: Evidence) -> Iterator[Finding]:
    """λ_effective is far above the accurate range, and L_loc stalls."""
    evidence = _high_and_stalled(trial) or _higher_than_accurate(run, trial)
    if not evidence or exploded(trial):
        return
    yield Finding(
        rule="over-alignment",
        weight=65,
        title=f"too much alignment, too little learning ({trial.recipe})",
        trials=[trial.id],
        evidence=evidence,
        meaning=(
            "The clients spend their steps on moving prototypes to the anchors. They learn little "
            "from their own images, and the fused model lacks good features."
        ),
        remedy="Lower λ: a constant λ between 2.5 and 20 (etf-fixed), or λ from label entropy.",
        override=run_recipes(run, "etf-entropy") or run_recipes(run, "etf-fixed"),
    )


@on_trials("poor-features")
def poor_features(run: RunEvidence, trial: Evidence) -> Iterator[Finding]:
    """Prototypes fit the anchors, but neighbours in feature space belong to other classes."""
    fitted = {
        name: values
        for name, values in trial.series("loss_align").items()
        if len(values) > 1 and list(values.values())[-1] < FITTED * next(iter(values.values()))
    }
    own, best = client_figures(trial, "neighbours"), _best_neighbours(run, trial)
    poor = {name: best[name] - own[name] for name in fitted if name in own and name in best}
    poor = {name: gap for name, gap in poor.items() if gap > POORER}
    if not poor:
        return
    worst = max(poor, key=lambda name: poor[name])
    fit = fitted[worst]
    yield Finding(
        rule="poor-features",
        weight=60,
        title=f"prototypes fit the anchors, but the features are poor ({trial.recipe})",
        trials=[trial.id],
        evidence=[
            f"{client(worst)}: L_al fell to {course(fit, [next(iter(fit)), list(fit)[-1]])}.",
            f"Only {percent(own[worst])} of the test images have a nearest neighbour of their own "
            f"class in the features of this client; it should be {percent(best[worst])}.",
        ],
        meaning=(
            "The shape of the prototypes is right, but the encoder does not tell the classes "
            "apart. Fusion cannot repair features."
        ),
        remedy="Lower λ, or leave the prototypes free (fafi).",
        override=run_recipes(run, "fafi"),
        strength=poor[worst],
    )


def _high_and_stalled(trial: Evidence) -> list[str]:
    """Sentences about the client with the largest λ above 50 since when L_loc does not fall."""
    found = {}
    losses = trial.series("loss_local")
    for dial in trial.dials("lambda_effective"):
        for name, values in trial.series(dial).items():
            since = [epoch for epoch, value in values.items() if value >= HARMFUL]
            course_of = {e: v for e, v in losses[name].items() if since and e >= since[0]}
            if len(course_of) < 3:
                continue
            first, *_, last = course_of.values()
            if last > (1 - STALLED) * first:
                told = course(course_of, [since[0], list(course_of)[-1]])
                high = amount(max(values.values()))
                found[max(values.values())] = [
                    f"λ_effective of {client(name)} is at least {HARMFUL:g} since epoch "
                    f"{since[0]}, up to {high}.",
                    f"L_loc of {client(name)} has hardly fallen since then: {told}.",
                ]
    return found[max(found)] if found else []


def _higher_than_accurate(run: RunEvidence, trial: Evidence) -> list[str]:
    """Sentences about λ and L_loc above those of all accurate recipes with the same images."""
    accuracy, high, loss = _accuracy(trial), _largest(trial), _loss(trial)
    if accuracy is None or high is None:
        return []
    others = [(one, _accuracy(one)) for one in _peers(run, trial)]
    best = max((found for _, found in others if found is not None), default=0.0)
    accurate = [one for one, found in others if found is not None and found > best - ACCURATE]
    ranges = [top for one in accurate if (top := _largest(one)) is not None]
    own = own_fusion(trial)
    images = images_measured(own[1]) if own else None
    far = best - accuracy > max(LESS_ACCURATE, margin(best, accuracy, images))
    if not far or not ranges or high <= FAR_ABOVE * max(ranges):
        return []
    if loss is None or loss <= HIGHER_LOSS * max(mean(_losses(one)) for one in accurate):
        return []
    names = ", ".join(sorted({one.recipe for one in accurate}))
    return [
        f"λ_effective is up to {amount(high)} in the second half of the training; in the more "
        f"accurate recipes ({names}) it is at most {amount(max(ranges))}.",
        f"The accuracy is {points(best - accuracy)} lower ({percent(accuracy)}, {percent(best)}), "
        f"and L_loc at the end is {amount(loss)}, higher than theirs.",
    ]


def _peers(run: RunEvidence, trial: Evidence) -> list[Evidence]:
    """Other trials with the same images at the same clients, without the references."""
    own = trial.info["partition_hash"]
    return [
        one
        for one in run.trials
        if one.id != trial.id
        and one.info.get("partition_hash") == own
        and one.seed == trial.seed
        and one.recipe not in REFERENCE_RECIPES
    ]


def _best_neighbours(run: RunEvidence, trial: Evidence) -> dict[str, float]:
    """Client → the best share of neighbours of the own class that other trials reach.

    Without other trials: twice the accuracy of guessing.
    """
    known = [client_figures(one, "neighbours") for one in run.trials if _same(one, trial)]
    found = {
        name: max(one[name] for one in known if name in one) for each in known for name in each
    }
    if found:
        return found
    own = own_fusion(trial)
    guess = best_guess(trial, own[1]) if own else None
    return dict.fromkeys(trial.clients, 2 * guess + POORER) if guess else {}


def _same(one: Evidence, trial: Evidence) -> bool:
    same = one.info.get("partition_hash") == trial.info.get("partition_hash")
    return one.id != trial.id and same and one.seed == trial.seed


def _accuracy(trial: Evidence) -> float | None:
    own = own_fusion(trial)
    return share(own[1].get("accuracy")) if own else None


def _largest(trial: Evidence) -> float | None:
    """The largest λ_effective of all clients in the second half of the training."""
    values = [
        value
        for dial in trial.dials("lambda_effective")
        for course_of in trial.series(dial).values()
        for value in last_half(course_of)
    ]
    return max(values, default=None)


def _losses(trial: Evidence) -> list[float]:
    return [list(values.values())[-1] for values in trial.series("loss_local").values()]


def _loss(trial: Evidence) -> float | None:
    found = _losses(trial)
    return mean(found) if found else None
