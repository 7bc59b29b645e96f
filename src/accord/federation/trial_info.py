"""The content of trial.json."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from accord.core.processor import processor
from accord.core.versions import versions
from accord.data.shifted import values_at
from accord.fusion.named import NamedFusion
from accord.record.folders import client_file
from accord.record.summary import summaries
from accord.study.coordinates import partition_of

if TYPE_CHECKING:
    from accord.federation.trial_run import TrialRun


def trial_info(run: TrialRun, status: str, old: dict[str, Any]) -> dict[str, Any]:
    """The content of trial.json; `old` is its content until now."""
    trial, partition = run.trial, run.allocation.partition
    setup = trial.setup.model_dump(mode="json")
    reports = [one.report for one in run.rounds if one.closed]
    scheme = partition_of(trial)
    measured = run.folder.measures()["checkpoints"] if status == "finished" else []
    return {
        "id": run.folder.id,
        "status": status,
        "failures": run.failures,
        "study": trial.study,
        "dataset": setup["data"]["name"],
        "images": run.allocation.dataset.folder.name,
        "partition": scheme,
        "alpha": trial.setup.partition.skew,
        "clients": _clients(run),
        "asked": len(run.rounds[0].asked),
        "recipe": trial.recipe.name,
        "seed": trial.seed,
        "partition_hash": partition.hash,
        "label_counts": partition.label_counts.tolist(),
        "client_files": {name: client_file(name) for name in partition.names},
        "shift": values_at(trial.setup.shift, trial.seed, run.allocation.site_names),
        "hostile": run.allocation.hostile,
        "classes": run.allocation.classes,
        "rounds": [report.model_dump(mode="json") for report in reports],
        "upload_bytes": sum(report.upload_bytes for report in reports),
        "download_bytes": sum(report.download_bytes for report in reports),
        "seconds": sum(report.seconds for report in reports),
        "core_seconds": run.spent_before + run.spent,
        "idle": trial.idle_sections,
        "summary": summaries(measured, scheme),
        "peak_memory_bytes": max(run.peak_memory, old.get("peak_memory_bytes") or 0),
        "training": run.training_key,
        "teacher": run.teacher.folder.id if run.teacher else None,
        "config": {
            **setup,
            "recipe": trial.recipe.model_dump(mode="json"),
            "fusions": _union(old, trial.fusions),
            "options": trial.options.model_dump(mode="json"),
        },
        "versions": versions(),
        "processor": processor(),
    }


def _clients(run: TrialRun) -> int:
    """The number of clients; of a pooled trial, the number of those whose images it has."""
    scheme = run.trial.setup.partition
    if not scheme.pooled:
        return len(run.clients)
    return len(run.allocation.site_names) - (scheme.leave_out is not None)


def _union(info: dict[str, Any], fusions: Iterable[NamedFusion]) -> list[dict[str, Any]]:
    """The fusions that a trial was asked for, now and before."""
    before = info.get("config", {}).get("fusions", [])
    found = {spec["as"]: spec for spec in before}
    return list({**found, **{one.label: one.to_json() for one in fusions}}.values())
