"""A client that has not learnt its own images, while the others have."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from accord.diagnosis.finding import Finding
from accord.diagnosis.reading import client, client_figures, images_of, percent
from accord.diagnosis.remedies import fuse_with
from accord.diagnosis.rule import on_trials
from accord.diagnosis.rules.explosion import exploded
from accord.report.evidence import Evidence, RunEvidence

FAR_BELOW = 0.5  # × the median of all clients
LEARNT = 0.6  # median accuracy on the own images; below it no client has learnt much
FEWEST = 3  # clients; of two, nobody can say which one is unusual


@on_trials("client-does-not-learn")
def client_does_not_learn(run: RunEvidence, trial: Evidence) -> Iterator[Finding]:
    """The accuracy of a client on its own images is far below that of the others."""
    trained = client_figures(trial, "train_accuracy")
    if len(trained) < FEWEST or exploded(trial):
        return
    median = statistics.median(trained.values())
    worst = min(trained, key=lambda name: trained[name])
    if median < LEARNT or trained[worst] >= FAR_BELOW * median:
        return
    counts = images_of(trial)
    held = f" It holds {sum(counts[worst])} images." if worst in counts else ""
    yield Finding(
        rule="client-does-not-learn",
        weight=60,
        title="a client does not learn its own images",
        trials=[trial.id],
        evidence=[
            f"{trial.recipe}: the net of {client(worst)} is right on {percent(trained[worst])} of "
            f"its own training images; the median of all clients is {percent(median)}.{held}"
        ],
        meaning=(
            "Its labels may be wrong, its images may differ from those of the others, or they are "
            "too few for so short a training."
        ),
        remedy="Look at the images and labels of this client, and fuse without it.",
        override=fuse_with(run, [trial], "classwise", without=[worst]),
        strength=median - trained[worst],
    )
