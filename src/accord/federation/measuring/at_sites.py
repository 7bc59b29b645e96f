"""The figures of each site: of every fusion and of the site's own net, on its held-out images."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

import numpy as np

from accord.core.short_tally import Figures, ShortTally
from accord.data.allocation import Allocation, PartName

Tallies = dict[str, ShortTally]  # site → the tally of its images

UNKNOWN = dict.fromkeys(field.name for field in fields(Figures))
PARTS: tuple[PartName, ...] = ("test", "own")  # the parts whose images belong to sites


def held_out(allocation: Allocation) -> dict[str, int]:
    """Site → the number of its images that are only measured; empty if no site has any."""
    names = allocation.site_names
    owners = np.concatenate([allocation.owners(part) for part in PARTS])
    counts = np.bincount(owners[owners >= 0], minlength=len(names)).tolist()
    return dict(zip(names, counts, strict=True)) if any(counts) else {}


def added(answers: Sequence[Mapping[str, Any]]) -> Tallies:
    """Site → its tally, summed over the answers of several blocks, in the given order."""
    found: dict[str, list[ShortTally]] = {}
    for answer in answers:
        for site, tally in answer.items():
            found.setdefault(site, []).append(ShortTally.from_json(tally))
    return {site: ShortTally.sum(tallies) for site, tallies in found.items()}


def site_figures(
    held: Mapping[str, int], fused: Tallies, own: Tallies, took_part: Collection[str]
) -> dict[str, Any]:
    """The key `sites` of a fusion in measures.json, and its columns of results.csv.

    `site_worst` is the lowest accuracy of a site, `worst_site` is the name of this site (of equal
    ones, the first), and `site_mean` is the mean over sites. `site_spread` is the standard
    deviation √(Σ_s (a_s − mean)²/S) of the accuracies a_s of the S sites with held-out images.
    """
    found = {name: fused[name].figures() for name in held if name in fused}
    accuracies = {name: figures.accuracy for name, figures in found.items()}
    values = list(accuracies.values())
    return {
        "site_worst": min(values, default=None),
        "worst_site": min(accuracies, key=lambda name: accuracies[name], default=None),
        "site_mean": statistics.fmean(values) if values else None,
        "site_spread": statistics.pstdev(values) if values else None,
        "sites": {
            name: {
                "took_part": name in took_part,
                "images": images,
                **(asdict(found[name]) if name in found else UNKNOWN),
                "own_accuracy": own[name].figures().accuracy if name in own else None,
            }
            for name, images in held.items()
        },
    }
