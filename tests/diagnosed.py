"""Records by hand for the rules of the diagnosis, and the findings about them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors.torch import save_file

from accord.core.files import write_json
from accord.core.names import file_name
from accord.diagnosis.diagnose import diagnose
from accord.diagnosis.finding import Finding
from accord.report.evidence import read_evidence
from accord.study.study import load_study

Values = Mapping[str, Sequence[float | None]]  # client → a value per epoch


def confusion(accuracy: float, images: int = 1000, classes: int = 10) -> list[list[int]]:
    """Equally many images of every class; wrong ones are named as the next class."""
    each = images // classes
    right = round(accuracy * each)
    found = [[0] * classes for _ in range(classes)]
    for row in range(classes):
        found[row][row] = right
        found[row][(row + 1) % classes] += each - right
    return found


def fused(accuracy: float, images: int = 1000, **more: Any) -> dict[str, Any]:
    """The figures of a fusion at a checkpoint."""
    figures = {"accuracy": accuracy, "balanced_accuracy": accuracy, "worst_class": accuracy}
    return {**figures, "ece": 0.02, "confusion": confusion(accuracy, images), **more}


class Written:
    """One trial of a run by hand. Every part of it can be changed before it is written."""

    def __init__(self, recipe: str = "etf-fixed", seed: int = 0, **info: Any) -> None:
        self.resolved, config = deepcopy(_asked(recipe))
        self.info: dict[str, Any] = {
            "status": "finished", "study": "by-hand", "dataset": "digits", "seed": seed,
            "partition": "dirichlet", "alpha": 0.05, "clients": 2, "recipe": recipe, "idle": [],
            "classes": [str(index) for index in range(10)],
            "label_counts": [[50] * 10, [50] * 10],
            "client_files": {"0": "client-0", "1": "client-1"},
            "config": config,
            **info,
        }  # fmt: skip
        self.events: dict[tuple[str, int], dict[str, Any]] = {}
        self.checkpoints: dict[int, dict[str, Any]] = {}
        self.uploads: dict[str, dict[str, torch.Tensor]] = {}

    def dial(self, key: str, values: Values, epochs: Sequence[int] | None = None) -> Written:
        for client, course in values.items():
            for epoch, value in zip(epochs or range(1, 1 + len(course)), course, strict=True):
                event = self.events.setdefault((client, epoch), {"client": client, "epoch": epoch})
                event[key] = value
        return self

    def at(self, epoch: int, clients: Sequence[dict[str, Any]] = (), **fusions: Any) -> Written:
        """The fusions at a checkpoint: accuracies, or mappings from `fused`."""
        named = {
            name: fused(one) if isinstance(one, float) else one for name, one in fusions.items()
        }
        alone = [{"train_accuracy": 0.9, "test_accuracy": 0.1, **one} for one in clients]
        costs = dict.fromkeys(
            ("upload_bytes", "download_bytes", "seconds", "server_seconds", "train_loss")
        )
        self.checkpoints[epoch] = {
            "round": 1, "epoch": epoch, "took_part": ["0", "1"], "train_accuracy": 0.9, **costs,
            "fusions": named, "clients": alone,
        }  # fmt: skip
        return self

    def upload(self, client: str, **tensors: torch.Tensor) -> Written:
        self.uploads[client] = {name.replace("__", "."): one for name, one in tensors.items()}
        return self

    def write(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        write_json(folder / "trial.json", {"id": folder.name, **self.info})
        write_json(folder / "measures.json", {"checkpoints": list(self.checkpoints.values())})
        lines = [json.dumps(event) + "\n" for event in self.events.values()]
        (folder / "events.jsonl").write_text("".join(lines))
        (folder / "uploads").mkdir()
        for client, tensors in self.uploads.items():
            file = folder / "uploads" / f"client-{file_name(client)}.safetensors"
            save_file({name: tensor.clone() for name, tensor in tensors.items()}, file)


@cache
def _asked(recipe: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The resolved study of a recipe, and the key `config` of its trial.json."""
    study = load_study({"name": "by-hand", "data": {"name": "digits"}, "recipes": [recipe]})
    trial = study.trials()[0]
    setup = trial.setup.model_dump(mode="json")
    return study.resolved, {**setup, "recipe": trial.recipe.model_dump(mode="json")}


def write(path: Path, *trials: Written) -> Path:
    """A run directory with these trials."""
    recipes = {one["name"]: one for trial in trials for one in trial.resolved["recipes"]}
    resolved = {**trials[0].resolved, "recipes": list(recipes.values())}
    (path / "trials").mkdir(parents=True)
    (path / "study.yaml").write_text(yaml.safe_dump(resolved))
    for index, trial in enumerate(trials):
        name = f"{trial.info['recipe']}-s{trial.info['seed']}-{index:02}"
        trial.write(path / "trials" / name)
    return path


def findings(path: Path, *trials: Written, rule: str | None = None) -> list[Finding]:
    """What the diagnosis says about a run with these trials, by all rules or by one."""
    folder = write(path / f"run-{len(list(path.iterdir()))}", *trials)
    found = diagnose(read_evidence([folder]))
    return [one for one in found if rule is None or one.rule == rule]
