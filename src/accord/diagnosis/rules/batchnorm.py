"""Batch-norm statistics that differ between clients, where a fusion averages nets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from accord.diagnosis.finding import Finding
from accord.diagnosis.reading import client, fusions_at_end
from accord.diagnosis.remedies import fuse_with, run_with
from accord.diagnosis.rule import on_trials
from accord.report.evidence import Evidence, RunEvidence

AVERAGING = ("average", "server", "transport", "split")  # fusions that average weights
# Variance between clients/variance within them. Measured with 5 clients: at most 0.04 with equal
# classes, 0.13 with label skew, and 0.2 to 0.35 with other colours (shift.colour: 0.8).
MISMATCH = 0.15
MEAN, VAR = "running_mean", "running_var"


@on_trials("batch-norm-mismatch")
def batch_norm_mismatch(run: RunEvidence, trial: Evidence) -> Iterator[Finding]:
    """Running means of batch norms differ between clients by much of their spread."""
    rules = {str(one.get("as")): one for one in trial.config.get("fusions") or ()}
    averaged = [
        name
        for name in fusions_at_end(trial)
        if rules.get(name, {"use": name}).get("use") in AVERAGING
        and not rules.get(name, {}).get("recalibrate")
    ]
    if not averaged or trial.pooled:
        return
    uploads = {name: trial.tensors(name, ["net.encoder.*"]) for name in trial.clients}
    layers = mismatch([found for found in uploads.values() if found])
    if not layers or max(layers.values()) <= MISMATCH:
        return
    worst = max(layers, key=lambda name: layers[name])
    above = sum(value > MISMATCH for value in layers.values())
    odd = _furthest(uploads, worst)
    yield Finding(
        rule="batch-norm-mismatch",
        weight=50,
        title=f"batch-norm statistics of the averaged nets differ ({trial.recipe})",
        trials=[trial.id],
        evidence=[
            f"{worst.removeprefix('net.encoder.')}: the variance of running means between clients "
            f"is {layers[worst]:.2f} × the variance within clients (mean over channels); "
            f"{client(odd)} is furthest from the mean.",
            f"{above} of {len(layers)} batch norms are above {MISMATCH:g}; averaged by "
            f"{', '.join(averaged)}.",
        ],
        meaning=(
            "The clients see their images in different ways. The mean of their statistics fits no "
            "client, so that the averaged net normalises its channels wrongly."
        ),
        remedy=(
            "Measure the statistics again on public images (`average` with recalibrate), or see "
            "whether group norm is better here."
        ),
        override=_recalibrated(run, trial) or run_with(run, net__norm="group"),
        strength=layers[worst],
    )


def mismatch(nets: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Batch norm → mean over channels of Var_k(running mean)/mean_k(running variance)."""
    import torch

    if len(nets) < 2:
        return {}
    found = {}
    for name in nets[0]:
        if not name.endswith(MEAN):
            continue
        means = torch.stack([net[name].double() for net in nets])
        within = torch.stack([net[name.removesuffix(MEAN) + VAR].double() for net in nets])
        ratio = means.var(dim=0, correction=0) / within.mean(dim=0).clamp(min=1e-12)
        found[name.removesuffix(f".{MEAN}")] = float(ratio.mean())
    return found


def _furthest(uploads: Mapping[str, Mapping[str, Any]], layer: str) -> str:
    import torch

    known = {name: found[f"{layer}.{MEAN}"].double() for name, found in uploads.items() if found}
    middle = torch.stack(list(known.values())).mean(dim=0)
    return max(known, key=lambda name: float((known[name] - middle).norm()))


def _recalibrated(run: RunEvidence, trial: Evidence) -> str | None:
    """The average with recalibrated statistics, if the server has public images."""
    if not trial.config["data"].get("public"):
        return None
    return fuse_with(run, [trial], "{use: average, recalibrate: true, as: recalibrated}")
