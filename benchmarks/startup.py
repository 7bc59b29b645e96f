"""The waiting time of a user: commands without a net, and `accord run` until the first step."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.figure import Figure

TARGET = 0.4  # seconds of CPU time
REPEATS = 5
STUDY: dict[str, Any] = {
    "name": "startup",
    "data": {"name": "digits"},
    "partition": {"alpha": 0.5, "clients": 2},
    "budget": {"epochs": 3},
    "recipes": ["fafi"],
    "references": False,
}


def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="accord-startup-") as name:
        folder = Path(name)
        study = folder / "study.yaml"
        study.write_text(json.dumps(STUDY))
        _accord("run", str(study), "--out", str(folder / "made"), "--quiet")
        figures = []
        for words in (["--help"], ["--version"], ["recipes"], ["data"], ["results", "made"]):
            seconds = median(_cpu_seconds(words, folder) for _ in range(REPEATS))
            told, holds = f"{seconds:.2f} s of CPU time", seconds <= TARGET
            figures.append(Figure(f"accord {words[0]}", told, f"≤ {TARGET} s", holds))
        waits = [_until_training(study, folder / f"run-{turn}") for turn in range(3)]
    figures.append(
        Figure("from accord run to the first training step, digits", f"{median(waits):.1f} s")
    )
    return figures


def _command(*words: str) -> list[str]:
    return [sys.executable, "-m", "accord", *words]


def _accord(*words: str, cwd: Path | None = None) -> None:
    subprocess.run(_command(*words), cwd=cwd, stdout=subprocess.DEVNULL, check=True)


def _cpu_seconds(words: list[str], folder: Path) -> float:
    """The user and system time of a command, without the time of other programs."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    _accord(*words, cwd=folder)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)


def _until_training(study: Path, out: Path) -> float:
    """The seconds until a client's first epoch begins: its end minus its duration."""
    began = time.time()
    running = subprocess.Popen(
        _command("run", str(study), "--out", str(out), "--quiet"),
        stdout=subprocess.DEVNULL,
        env={**os.environ},
    )
    try:
        while running.poll() is None:
            for events in out.glob("trials/*/events.jsonl"):
                lines = events.read_text().splitlines()
                if lines:
                    return time.time() - began - float(json.loads(lines[0])["seconds"])
            time.sleep(0.005)
    finally:
        running.kill()
        running.wait()
    raise RuntimeError("the run ended before any client trained")
