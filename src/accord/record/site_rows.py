"""The rows of sites.csv: one per trial × round × checkpoint × fusion × site.

Each row has the figures of one site on its own held-out images, beside two bounds of the same
setting and seed: the site's own net of the trial `local-only`, and the net of the trial `central`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from accord.record.folders import TrialFolder
from accord.record.rows import SETTING, Row, rows_of

FIGURES = ("accuracy", "balanced_accuracy", "worst_class", "ece", "loss")
BOUNDS = {"local_accuracy": "local-only", "central_accuracy": "central"}  # column → recipe
MEASURED_AT = ("took_part", "images", *FIGURES, "own_accuracy")
SITE_COLUMNS = (*SETTING, "site", *MEASURED_AT, *BOUNDS, "trial")
OF = "partition."  # the beginning of the names of some grid axes


def site_rows_of(trial: TrialFolder, axes: Sequence[str]) -> Iterator[Row]:
    """The rows of a trial in sites.csv, without the bounds."""
    partition = trial.info().get("config", {}).get("partition", {})
    measured = {
        (checkpoint["epoch"], fusion): found.get("sites", {})
        for checkpoint in trial.measures()["checkpoints"]
        for fusion, found in checkpoint["fusions"].items()
    }
    for row in rows_of(trial, axes):
        sites = measured[row["epoch"], row["fusion"]]
        setting = {key: row[key] for key in (*SETTING, *axes)}
        # Sites are made by a partition, even if all their images are in one place.
        setting |= {"partition": partition.get("scheme"), "clients": len(sites)}
        setting |= {axis: partition.get(axis[len(OF) :]) for axis in axes if axis.startswith(OF)}
        for site, found in sites.items():
            yield {
                **dict.fromkeys(SITE_COLUMNS),
                **setting,
                "site": site,
                **{key: found[key] for key in MEASURED_AT},
                "trial": trial.id,
            }


def beside_bounds(rows: Sequence[Row]) -> list[Row]:
    """All rows, with the accuracies of both bounds at the end of their training.

    A bound that the record does not hold is None.
    """
    known: dict[tuple[str, int, str], list[Row]] = {}
    for row in rows:
        if row["recipe"] in BOUNDS.values():
            known.setdefault((row["recipe"], row["seed"], row["site"]), []).append(row)
    return [
        {
            **row,
            **{
                column: _last(row, known.get((recipe, row["seed"], row["site"]), []))
                for column, recipe in BOUNDS.items()
            },
        }
        for row in rows
    ]


def _last(row: Row, bounds: Sequence[Row]) -> float | None:
    """The accuracy of a bound in the setting of `row`, at its last checkpoint."""
    fitting = [bound for bound in bounds if same_setting(row, bound)]
    last = max(fitting, key=lambda bound: bound["epoch"], default=None)
    return last["accuracy"] if last else None


def same_setting(row: Mapping[str, object], bound: Mapping[str, object]) -> bool:
    """Whether a bound belongs to the setting of `row`.

    A bound may not depend on a key of the setting, and its value is then None. Bounds have one
    round, so that the settings of rounds do not matter.
    """
    axes = [key for key in row if "." in key and not key.startswith("rounds.")]
    keys = ("dataset", "partition", "alpha", "clients", *axes)
    return all(bound[key] is None or bound[key] == row[key] for key in keys)
