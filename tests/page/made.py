"""Records that a test writes by hand, with everything that a report can show."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from accord.core.files import read_json, write_json
from accord.record.folders import TrialFolder
from written_runs import pooled, trial, write_run

HOSTILE = (
    "<script>alert(1)</script>",
    "</svg></style>\"'><img src=x onerror=alert(1)>",
    "$\\input{/etc/passwd}",
    "\x1b[31mred\x1b[0m | `code` **bold**",
    "诊所 α_1 & 50%",
)


def confusion(classes: int, accuracy: float) -> list[list[int]]:
    """100 test images per class; the wrong ones are taken for the next class."""
    right = round(100 * accuracy)
    return [
        [right if c == r else 100 - right if c == (r + 1) % classes else 0 for c in range(classes)]
        for r in range(classes)
    ]


def full_trial(
    recipe: str,
    seed: int,
    accuracies: Sequence[float],
    *,
    clients: Sequence[str] = ("0", "1", "2"),
    classes: Sequence[str] = ("a", "b", "c", "d"),
    alpha: float = 0.1,
    rule: str | None = None,
    **more: Any,
) -> dict[str, Any]:
    """A finished trial with a checkpoint after each epoch, label counts and figures of clients."""
    points = [(1, epoch, accuracy) for epoch, accuracy in enumerate(accuracies, 1)]
    found = trial(recipe, seed, points, alpha=alpha, clients=len(clients), **more)
    info = found["info"]
    info["classes"] = list(classes)
    info["client_files"] = {name: name for name in clients}
    info["label_counts"] = [
        [(place + label + seed) % 3 * 10 for label in range(len(classes))]
        for place in range(len(clients))
    ]
    info["partition_hash"] = f"{alpha}-{seed}"
    info["versions"] = {"python": "3.11", "accord": "0.1.0"}
    if rule:
        info["config"]["recipe"]["align"] = {"anchors": {"balance": {"use": rule}}}
    for checkpoint in found["checkpoints"]:
        for measured in checkpoint["fusions"].values():
            accuracy = measured["accuracy"]
            measured["confusion"] = confusion(len(classes), accuracy)
            measured["reliability"] = [[0, 0.0, 0.0]] * 13 + [[40, 0.9, 0.7], [60, 0.98, 0.9]]
        checkpoint["clients"] = [
            {"client": name, "train_accuracy": 0.9, "test_accuracy": 0.4} for name in clients
        ]
    return found


def event(client: str, epoch: int, **dials: float | None) -> dict[str, Any]:
    return {"client": client, "round": 1, "epoch": epoch, "loss_local": 2.0 / epoch, **dials}


def exploding(clients: Sequence[str], epochs: int) -> list[dict[str, Any]]:
    """λ that grows tenfold in every epoch at the first client, and twice elsewhere."""
    return [
        event(
            name, epoch,
            lambda_raw=(10.0 if place == 0 else 2.0) ** epoch,
            attenuation=1 - epoch / epochs,
            lambda_effective=(10.0 if place == 0 else 2.0) ** epoch * (1 - epoch / epochs),
            lambda_star=5.0 * epoch, loss_align=0.1 / epoch, sigma_sq_local=1.0,
            sigma_sq_align=0.5, gradient_norm_local=1.0, gradient_norm_align=0.2,
            gradient_cosine=-0.3,
        )
        for place, name in enumerate(clients)
        for epoch in range(1, epochs + 1)
    ]  # fmt: skip


def steady(clients: Sequence[str], epochs: int) -> list[dict[str, Any]]:
    """λ that depends on the client only."""
    return [
        event(name, epoch, lambda_raw=1.0 + place, attenuation=1.0, lambda_effective=1.0 + place)
        for place, name in enumerate(clients)
        for epoch in range(1, epochs + 1)
    ]


def write_events(folder: TrialFolder, events: Sequence[dict[str, Any]]) -> None:
    folder.events.write_text("".join(json.dumps(one) + "\n" for one in events))


def write_prototypes(folder: TrialFolder, prototypes: dict[str, torch.Tensor]) -> None:
    """An upload of each client that holds its prototypes only."""
    for client, rows in prototypes.items():
        path = folder.last_round.upload(client, 0, last=True)
        path.parent.mkdir(exist_ok=True)
        save_file({"net.head.prototypes": rows.contiguous()}, path)


def small_run(path: Path, names: Sequence[str] = ("0", "1", "2")) -> Path:
    """Three recipes and both references, two values of α, three seeds, three checkpoints."""
    trials = [
        full_trial(
            recipe, seed, [0.3, 0.5, final + 0.02 * seed],
            alpha=alpha, clients=names, rule=rule,
        )
        for alpha in (0.5, 0.1)
        for recipe, final, rule in (
            ("fafi", 0.6, None), ("etf-attenuated", 0.4 + alpha / 2, "attenuated"),
            ("etf-entropy", 0.62, "entropy"), ("local-only", 0.3, None),
        )
        for seed in range(3)
    ]  # fmt: skip
    central = [pooled("central", seed, [(1, 3, 0.9)]) for seed in range(3)]
    for one in central:
        one["checkpoints"][0]["clients"] = []
    trials += central
    run = write_run(path, trials, axes={"partition": {"alpha": [0.5, 0.1]}})
    for folder in run.joinpath("trials").iterdir():
        if folder.name.startswith("etf-attenuated"):
            write_events(TrialFolder(folder), exploding(names, 3))
        elif folder.name.startswith("etf-entropy"):
            write_events(TrialFolder(folder), steady(names, 3))
    return run


def hostile_run(path: Path) -> Path:
    """A run whose recipes, clients, classes, dataset and failures have hostile names."""
    run = small_run(path, HOSTILE)
    trials = [
        full_trial(f"h{n}", 0, [0.2, 0.3], classes=HOSTILE, clients=HOSTILE) for n in range(5)
    ]
    other = write_run(path.with_name(f"{path.name}-other"), trials)
    for name, folder in zip(HOSTILE, sorted(other.joinpath("trials").iterdir()), strict=True):
        about = read_json(folder / "trial.json")
        about |= {"recipe": name, "failures": [name], "processor": name}
        write_json(folder / "trial.json", about)
        folder.rename(run / "trials" / folder.name)
    return run
