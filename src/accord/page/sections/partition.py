"""Who holds which images: a heat map of classes and clients, and the label entropy."""

from __future__ import annotations

from accord.core.names import shown
from accord.page.entropy import label_entropy
from accord.page.parts import Details, Part, Prose
from accord.page.section import section
from accord.page.subject import Subject
from accord.page.tables.heat import MOST, heat_map
from accord.report.comparison import short
from accord.report.evidence import Evidence

OPEN, ALL = 3, 12


@section("partition", "Partition", 60)
def partition(subject: Subject) -> list[Part]:
    maps = _partitions(subject)
    parts: list[Part] = []
    for index, trial in enumerate(maps[:ALL]):
        about: list[Part] = [_map(trial), Prose(_summary(trial), quiet=True)]
        parts += about if index < OPEN else [Details(_words(trial), about)]
    if len(maps) > ALL:
        parts.append(Prose(f"Further partitions: {len(maps) - ALL}.", quiet=True))
    return parts


def _partitions(subject: Subject) -> list[Evidence]:
    """One trial per different partition; first the first seed of every α."""
    found: dict[str, Evidence] = {}
    for trial in subject.trials:
        if trial.pooled or not _counts(trial):
            continue
        found.setdefault(str(trial.info.get("partition_hash") or trial.label_counts), trial)
    return sorted(found.values(), key=lambda one: (one.seed or 0, -(one.alpha or 0)))


def _counts(trial: Evidence) -> list[list[int]]:
    """Images of each class at each client, if they are complete."""
    counts = trial.label_counts
    same = len(counts) == len(trial.clients) and len({len(row) for row in counts}) == 1
    return counts if same and len(counts[0]) == len(trial.classes) else []


def _words(trial: Evidence) -> str:
    alpha = f", α {short(trial.alpha)}" if trial.alpha is not None else ""
    name = f"{trial.info.get('dataset')}, {trial.info.get('partition')}{alpha}, seed {trial.seed}"
    return shown(name)


def _map(trial: Evidence) -> Part:
    counts = _counts(trial)
    entropies = [f"{label_entropy(row):.2f}" for row in counts]
    images = [f"{sum(row):,}" for row in counts]
    return heat_map(
        counts,
        trial.clients,
        trial.classes,
        title=_words(trial),
        down="client",
        across="images of each class",
        more=[("images", images), ("entropy in bits", entropies)],
        words=_summary(trial),
    )


def _summary(trial: Evidence) -> str:
    counts = _counts(trial)
    sizes = [sum(row) for row in counts]
    entropies = [label_entropy(row) for row in counts]
    held = [sum(1 for count in row if count) for row in counts]
    totals = [sum(column) for column in zip(*counts, strict=True)]
    nowhere = [name for name, total in zip(trial.classes, totals, strict=True) if not total]
    told = (
        f"{len(counts)} clients with {min(sizes):,} to {max(sizes):,} images of {min(held)} to "
        f"{max(held)} classes; label entropy {min(entropies):.2f} to {max(entropies):.2f} bits."
    )
    names = ", ".join(shown(name) for name in nowhere[:MOST])
    return f"{told} No client holds: {names}." if nowhere else told
