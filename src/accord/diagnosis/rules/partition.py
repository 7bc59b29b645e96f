"""The clients' images: classes that nobody holds, tiny clients, clients with a single class."""

from __future__ import annotations

from collections.abc import Iterator

from accord.core.names import listed
from accord.diagnosis.finding import Finding
from accord.diagnosis.reading import images_of, percent
from accord.diagnosis.remedies import run_recipes
from accord.diagnosis.rule import on_trials
from accord.report.evidence import Evidence, RunEvidence

TINY = 32  # images; docs/advice.md asks for 32 at every client, even with few features
ROBUST = "closed-form-small"  # its result does not depend on how images are distributed


@on_trials("classes-nobody-holds")
def classes_nobody_holds(run: RunEvidence, trial: Evidence) -> Iterator[Finding]:
    """No client has an image of some class."""
    if trial.pooled:
        return
    counts = [sum(column) for column in zip(*images_of(trial).values(), strict=True)]
    empty = [name for name, count in zip(trial.classes, counts, strict=True) if count == 0]
    if not empty:
        return
    part = run.asked.get("partition", {})
    simulated = "alpha" in part or "labels" in part
    yield Finding(
        rule="classes-nobody-holds",
        weight=70,
        title="no client holds some of the classes",
        trials=[trial.id],
        evidence=[f"{len(empty)} of {len(counts)} classes have no image: {listed(empty)}."],
        meaning=(
            "No model can learn these classes here. Their test images count as wrong, whatever the "
            "recipe."
        ),
        remedy=(
            "Use another partition (more clients, a larger alpha, other seeds)."
            if simulated
            else "Leave the classes out (data.classes), or find a client that holds them."
        ),
        strength=len(empty),
    )


@on_trials("tiny-clients")
def tiny_clients(run: RunEvidence, trial: Evidence) -> Iterator[Finding]:
    """A client has very few images."""
    sizes = {name: sum(row) for name, row in images_of(trial).items()}
    tiny = sorted((size, name) for name, size in sizes.items() if size < TINY)
    if not tiny or trial.pooled or _sums(trial):
        return
    told = listed([f"{name} ({size})" for size, name in tiny], 5)
    part = sum(size for size, _ in tiny) / sum(sizes.values())
    yield Finding(
        rule="tiny-clients",
        weight=35,
        title=f"clients with fewer than {TINY} images train nets",
        trials=[trial.id],
        evidence=[
            f"{len(tiny)} of {len(sizes)} clients, with their images: {told}.",
            f"They hold {percent(part)} of all images.",
        ],
        meaning=(
            "A net that is trained with so few images is close to its first weights or has learnt "
            "them by heart. Its vote can harm a fusion that weights all clients equally."
        ),
        remedy="Use a recipe without training, or a fusion that weights by images (classwise).",
        override=run_recipes(run, ROBUST),
        strength=len(tiny),
    )


@on_trials("single-class-clients")
def single_class_clients(run: RunEvidence, trial: Evidence) -> Iterator[Finding]:
    """A client has images of one class only."""
    counts = images_of(trial)
    single = [name for name, row in counts.items() if sum(count > 0 for count in row) == 1]
    if not single or trial.pooled or _sums(trial):
        return
    yield Finding(
        rule="single-class-clients",
        weight=40 if len(single) > len(counts) / 2 else 30,
        title="clients with a single class train nets",
        trials=[trial.id],
        evidence=[f"{len(single)} of {len(counts)} clients hold one class: {listed(single, 5)}."],
        meaning=(
            "Such a client has nothing to distinguish its class from. Its net names this class for "
            "every image, and fusions without calibration follow it too often."
        ),
        remedy="Use a recipe without training, or the fusion classwise, which calibrates votes.",
        override=run_recipes(run, ROBUST),
        strength=len(single) / len(counts),
    )


def _sums(trial: Evidence) -> bool:
    """Whether the clients train no net and upload sums."""
    return trial.config.get("recipe", {}).get("map") is not None
