"""The rows of sites.csv: one per trial × round × checkpoint × fusion × site.

Each row has the figures of one site on its own held-out images, beside two references of the same
setting and seed: the site's own net of the trial `local-only`, and the net of the trial `central`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from accord.record.folders import TrialFolder
from accord.record.rows import SETTING, Row, rows_of
from accord.study.coordinates import POOLED
from accord.study.settings import LEAVE_OUT

FIGURES = ("accuracy", "balanced_accuracy", "worst_class", "ece", "loss")
LOCAL = "local-only"
REFERENCES = {"local_accuracy": LOCAL, "central_accuracy": "central"}  # column → recipe
MEASURED_AT = ("took_part", "images", *FIGURES, "own_accuracy")
SITE_COLUMNS = (*SETTING, "site", *MEASURED_AT, *REFERENCES, "trial")


def site_rows_of(trial: TrialFolder, axes: Sequence[str]) -> Iterator[Row]:
    """The rows of a trial in sites.csv, without the references."""
    measured = {
        (checkpoint["epoch"], fusion): found.get("sites", {})
        for checkpoint in trial.measures()["checkpoints"]
        for fusion, found in checkpoint["fusions"].items()
    }
    for row in rows_of(trial, axes):
        sites = measured[row["epoch"], row["fusion"]]
        setting = {key: row[key] for key in (*SETTING, *axes)}
        # Sites are made by a scheme, even if all their images are in one place.
        scheme = row["partition"].removeprefix(f"{POOLED} ")
        setting |= {"partition": scheme, "clients": len(sites)}
        for site, found in sites.items():
            yield {
                **dict.fromkeys(SITE_COLUMNS),
                **setting,
                "site": site,
                **{key: found[key] for key in MEASURED_AT},
                "trial": trial.id,
            }


def beside_references(rows: Sequence[Row]) -> list[Row]:
    """All rows, with the accuracies of both references at the end of their training.

    A reference that the record does not hold is None.
    """
    known: dict[tuple[str, int, str], list[Row]] = {}
    for row in rows:
        if row["recipe"] in REFERENCES.values() and row["accuracy"] is not None:
            known.setdefault((row["recipe"], row["seed"], row["site"]), []).append(row)

    def accuracies(row: Row) -> Row:
        found = {
            column: known.get((recipe, row["seed"], row["site"]), [])
            for column, recipe in REFERENCES.items()
        }
        return {column: _last(row, references) for column, references in found.items()}

    return [{**row, **accuracies(row)} for row in rows]


def _last(row: Row, references: Sequence[Row]) -> float | None:
    """The accuracy of a reference in the setting of `row`, at its last checkpoint.

    A site's own net does not depend on other sites: it is the same whoever is left out.
    """
    fitting = [
        reference
        for reference in references
        if same_setting(row, reference, (LEAVE_OUT,) if reference["recipe"] == LOCAL else ())
    ]
    last = max(fitting, key=lambda reference: reference["epoch"], default=None)
    return last["accuracy"] if last else None


def same_setting(
    row: Mapping[str, object], reference: Mapping[str, object], apart_from: Sequence[str] = ()
) -> bool:
    """Whether a reference belongs to the setting of `row`, `apart_from` some keys.

    A reference may not depend on a key of the setting, and its value is then None. References
    have one round, so that the settings of rounds do not matter.
    """
    axes = [key for key in row if "." in key and not key.startswith("rounds.")]
    keys = {"dataset", "partition", "alpha", "clients", *axes} - {*apart_from}
    return all(reference[key] is None or reference[key] == row[key] for key in keys)
