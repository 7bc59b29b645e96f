"""A client whose leaving would help."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from accord.core.names import listed
from accord.diagnosis.finding import Finding
from accord.diagnosis.reading import (
    Figures,
    client,
    fusions_at_end,
    images_measured,
    images_of,
    is_variant,
    margin,
    number,
    percent,
    points,
    share,
)
from accord.diagnosis.remedies import fuse_with
from accord.diagnosis.rule import on_trials
from accord.report.evidence import Evidence, RunEvidence


class Leaving(NamedTuple):
    """The accuracy of a fusion with and without some clients, on `part` of the images."""

    fusion: str
    clients: list[str]
    part: str
    everybody: float
    without: float
    error: float  # two standard errors of the difference

    @property
    def gain(self) -> float:
        return self.without - self.everybody


@on_trials("leaving-helps")
def leaving_helps(run: RunEvidence, trial: Evidence) -> Iterator[Finding]:
    """A fusion is clearly better without a client."""
    found = [one for one in (*_left_out(trial), *_rows_without(trial)) if one.gain > one.error]
    if not found:
        return
    best = max(found, key=lambda one: one.gain)
    counts = images_of(trial)
    sizes = {name: sum(counts[name]) for name in best.clients if name in counts}
    size = f" It holds {sum(sizes.values())} of {sum(map(sum, counts.values()))} images."
    yield Finding(
        rule="leaving-helps",
        weight=60,
        title=f"the model is better without a client ({trial.recipe})",
        trials=[trial.id],
        evidence=[
            f"{best.fusion} without {listed([client(one) for one in best.clients])}: "
            f"{percent(best.without)} instead of {percent(best.everybody)} on the {best.part} "
            f"images, {points(best.gain)} more; the standard error of the difference is at most "
            f"{points(best.error / 2)}.{size if sizes else ''}"
        ],
        meaning=(
            "The votes of this client do more harm than good. Its images may be wrong, few or very "
            "different from the test images."
            + (
                " It was found on the test images; confirm it on others before you rely on it."
                if best.part == "test"
                else ""
            )
        ),
        remedy="Look at the images and labels of this client, or fuse without it.",
        override=fuse_with(run, [trial], best.fusion, without=best.clients),
        strength=best.gain - best.error,
    )


def _left_out(trial: Evidence) -> Iterator[Leaving]:
    """From `leave_one_out` of each fusion."""
    for name, figures in fusions_at_end(trial).items():
        told = figures.get("leave_one_out") or {}
        everybody = share(told.get("all"))
        images = _images(trial, figures, str(told.get("part")))
        for left, value in (told.get("without") or {}).items():
            without = share(value)
            if everybody is not None and without is not None and images:
                error = margin(everybody, without, images)
                yield Leaving(name, [left], str(told["part"]), everybody, without, error)


def _rows_without(trial: Evidence) -> Iterator[Leaving]:
    """From fusions that `accord fuse --without` has measured."""
    found = fusions_at_end(trial)
    for name, figures in found.items():
        base = name.partition("-without-")[0]
        if not figures.get("without") or base not in found or is_variant(found[base]):
            continue
        everybody, without = found[base]["accuracy"], figures["accuracy"]
        error = margin(everybody, without, images_measured(figures))
        yield Leaving(base, list(figures["without"]), "test", everybody, without, error)


def _images(trial: Evidence, figures: Figures, part: str) -> int | None:
    """The number of images of a part; that of validation follows from the clients' images."""
    if part == "test":
        return images_measured(figures)
    data = trial.config.get("data", {})
    validation, public = number(data.get("validation")), number(data.get("public")) or 0.0
    dealt = sum(map(sum, images_of(trial).values()))
    if not validation or validation + public >= 1:
        return None
    return round(dealt * validation / (1 - validation - public))
