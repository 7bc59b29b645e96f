"""Confidences that do not fit the accuracy."""

from __future__ import annotations

from collections.abc import Iterator

from accord.diagnosis.finding import Finding
from accord.diagnosis.reading import Figures, own_fusion, percent, share
from accord.diagnosis.rule import on_trials
from accord.report.evidence import Evidence, RunEvidence

MISCALIBRATED = 0.15  # ECE; single nets that are trained on all images had 2 to 5 % here
ONE_SIDED = 0.8  # share of the ECE that lies on one side


@on_trials("miscalibrated")
def miscalibrated(run: RunEvidence, trial: Evidence) -> Iterator[Finding]:  # noqa: ARG001
    """The expected calibration error is large."""
    own = own_fusion(trial)
    if own is None:
        return
    name, figures = own
    ece = share(figures.get("ece"))
    if ece is None or ece <= MISCALIBRATED:
        return
    gap = confidence_gap(figures)
    side = (
        "over-confident"
        if gap is not None and gap > ONE_SIDED * ece
        else "under-confident"
        if gap is not None and gap < -ONE_SIDED * ece
        else "not calibrated"
    )
    told = "" if gap is None else f" The mean confidence is {percent(figures['accuracy'] + gap)}."
    yield Finding(
        rule="miscalibrated",
        weight=30 if side == "over-confident" else 20,
        title=f"fused models are {side}",
        trials=[trial.id],
        evidence=[
            f"{trial.recipe}, {name}: the calibration error (ECE, 15 bins) is {percent(ece)} at an "
            f"accuracy of {percent(figures['accuracy'])}.{told}"
        ],
        meaning=(
            "The confidences are no probabilities of being right. Decisions with a threshold on "
            "the confidence would be wrong."
        ),
        remedy="Use the predicted class only, or calibrate the confidences on images of your own.",
        strength=ece,
    )


def confidence_gap(figures: Figures) -> float | None:
    """Mean confidence minus accuracy, from the bins of the reliability diagram."""
    bins = figures.get("reliability")
    if not bins:
        return None
    total = sum(count for count, _, _ in bins)
    return float(sum(count * (sure - right) for count, sure, right in bins) / total)
