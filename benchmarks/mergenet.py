"""Federated MergeNet at the server: its share of a round, and its memory at the note's size."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import yaml

import accord
from accord.core.budget import Budget
from accord.core.mergenet import MergeNetConfig
from accord.core.parts import make_part
from accord.core.randomness import torch_generator
from accord.core.threads import one_thread
from accord.data.imageset import ImageSet
from accord.federation.tasks.base import peak_memory
from accord.fusion.base import Scene
from accord.fusion.uploads import UploadFiles
from accord.messages import (
    NET,
    TEACHER,
    Briefing,
    BriefingHeader,
    NetHeader,
    TeacherHeader,
    TrainingSpec,
    Upload,
    UploadHeader,
    expected_upload,
    prefixed,
)
from accord.methods import methods
from accord.nets.net import fresh_net
from accord.nets.settings import TeacherConfig
from accord.record.folders import TrialFolder
from benchmarks.figure import Figure
from benchmarks.workspace import random_images, workspace

STUDY = Path(__file__).parents[1] / "studies" / "mergenet.yaml"
ROUNDS = 7  # the first has no fusion, and the last has no next round
SHARE, MEMORY = 0.10, 4e9  # targets
PAIR = ("encoder.stages.stage6.2.body.6", "head")  # 160×960 ← 100×2048
CLASSES = 100


def measure() -> list[Figure]:
    with workspace() as folder:
        server, whole = _rounds(folder)
    share = statistics.median(s / w for s, w in zip(server, whole, strict=True))
    peak, seconds = _at_full_size()
    return [
        Figure(
            "mergenet-public, server's share of a round, study mergenet",
            f"{share:.1%} ({statistics.median(server):.1f} s of {statistics.median(whole):.1f} s)",
            f"≤ {SHARE:.0%}",
            share <= SHARE,
        ),
        Figure(
            "adapter `paper`, MobileNetV2 ← ResNet-50, 30 steps",
            f"{peak / 1e9:.1f} GB in {seconds:.0f} s",
            f"≤ {MEMORY / 1e9:.0f} GB",
            peak <= MEMORY,
        ),
    ]


def _rounds(folder: Path) -> tuple[list[float], list[float]]:
    """The server's time and the wall time of each round with a fusion."""
    study: dict[str, Any] = yaml.safe_load(STUDY.read_text())
    data = study["data"]
    sizes = {"train": data["train_limit"], "test": data["test_limit"]}
    images = random_images(folder, **sizes)
    study |= {
        "data": {**images, "public": data["public"], "augment": "light"},
        "recipes": [{"use": "mergenet-random-teacher", "as": "mergenet-public"}],
        "rounds": {**study["rounds"], "count": ROUNDS},
        "budget": {**study["budget"], "milestones": [100]},
    }
    accord.run(study, out=folder / "record", quiet=True)
    (path,) = (folder / "record" / "trials").iterdir()
    trial = TrialFolder(path)
    ends = [trial.round(number).report.stat().st_mtime for number in range(1, ROUNDS + 1)]
    until = [c["server_seconds"] for c in trial.measures()["checkpoints"]]
    fused = range(2, ROUNDS)
    server = [until[number - 1] - until[number - 2] for number in fused]
    # A round's end is when its last upload has arrived; the server's work begins the next one.
    return server, [ends[number] - ends[number - 1] for number in fused]


def _at_full_size() -> tuple[float, float]:
    """Peak memory in bytes and seconds of one fusion, in a process of its own."""
    words = [sys.executable, "-m", "benchmarks.mergenet"]
    found = json.loads(subprocess.run(words, capture_output=True, check=True).stdout)
    return float(found["peak"]), float(found["seconds"])


def fuse_at_full_size() -> dict[str, float]:
    """One fusion of the server with the adapter of the paper, on random images."""
    made = make_part(methods, {"use": "mergenet", "merge": "average"}, "method")
    settings = MergeNetConfig(adapter="paper", start_round=1, pairs=(PAIR,))
    method = made.with_settings(settings, TeacherConfig()).with_rounds(2)
    state = method.start(_opening())
    briefing = method.brief(state)
    draws = torch_generator(0, "benchmark")
    pixels = torch.randint(256, (1_000, 32, 32, 3), generator=draws, dtype=torch.uint8).numpy()
    labels = torch.randint(CLASSES, (1_000,), generator=draws).numpy()
    public = ImageSet(pixels, torch.arange(1_000).numpy(), labels)
    with tempfile.TemporaryDirectory() as name, one_thread():
        path = Path(name) / "upload.safetensors"
        _upload(briefing).save(path)
        began = time.perf_counter()
        method.advance(state, Scene(UploadFiles([path], briefing), briefing, public))
        seconds = time.perf_counter() - began
    return {"peak": peak_memory(), "seconds": seconds}


def _opening() -> Briefing:
    constants: dict[str, Any] = {"mean": (0.5,) * 3, "std": (0.25,) * 3}
    student, teacher = (
        NetHeader(backbone=backbone, norm="batch", head="linear")
        for backbone in ("mobilenetv2", "resnet50")
    )
    nets = [fresh_net(net, 3, CLASSES, torch_generator(0, "net")) for net in (student, teacher)]
    header = BriefingHeader(
        seed=0,
        height=32,
        width=32,
        channels=3,
        classes=tuple(map(str, range(CLASSES))),
        augment="light",
        net=student,
        training=TrainingSpec(objective={"cross-entropy": {}}),
        budget=Budget(),
        teacher=TeacherHeader(net=teacher, **constants),
        **constants,
    )
    weights = prefixed(NET, nets[0].state_dict()) | prefixed(TEACHER, nets[1].state_dict())
    return Briefing(header, weights)


def _upload(briefing: Briefing) -> Upload:
    """An upload whose net is that of the briefing."""
    tensors = {n: t for n, t in briefing.tensors.items() if n.startswith(NET)}
    for name, wanted in expected_upload(briefing).items():
        if name not in tensors:
            tensors[name] = torch.zeros(wanted.shape, dtype=wanted.dtype)
    tensors["label_counts"][0] = 10
    header = UploadHeader(client="0", epoch=1, samples=10, briefing=briefing.digest)
    return Upload(header, tensors)


if __name__ == "__main__":
    print(json.dumps(fuse_at_full_size()))
