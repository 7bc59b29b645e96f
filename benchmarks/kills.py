"""Random kills of every engine: `python -m benchmarks.kills --engine local --kills 20`.

A small study runs again and again. At random moments its process, or one of the processes that it
started, is killed with SIGKILL, and the same command is given again. Whenever the study ends, all
its messages and results are compared with those of a run that nobody disturbed. The moments and the
victims are drawn from --seed; what is running at a moment depends on the machine.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from sklearn.datasets import load_digits

from benchmarks.engines import cluster
from benchmarks.workspace import workspace

ACCORD = [sys.executable, "-m", "accord"]
TIMED = {"seconds", "server_seconds"}
LEAST = 4.0  # seconds until a kill, at most; a command that has little left to do is shorter
ENDING = 20.0  # seconds in which all processes of a killed command must have ended
PATIENCE = 600.0  # seconds in which a command must end
ENGINES = ("local", "dask", "files", "flower")
Others = Callable[[], list[int]]  # processes that belong to the engine, not to the command
STUDY: dict[str, Any] = {
    "name": "kills",
    "data": {"name": "digits", "train_limit": 150, "test_limit": 40},
    "partition": {"alpha": 0.5, "clients": 3},
    "net": {"backbone": "conv4"},
    "budget": {"epochs": 4, "batch": 16, "checkpoints": [2, 4]},
    "rounds": {"count": 2},
    "recipes": ["scaffold", "etf-fixed", "closed-form-small"],
    "references": False,
}


@dataclass
class Kills:
    """Gives commands and kills them, until enough kills are done."""

    wanted: int
    draws: random.Random
    usual: float  # seconds that an undisturbed command takes
    done: int = 0
    at_parent: int = 0
    left_behind: int = 0
    ends: list[bool] = field(default_factory=list)  # whether each finished run was identical

    def command(self, words: list[str], folder: Path, others: Others = list) -> None:
        """Gives a command until it has ended with success; `others` can be killed as well."""
        for _ in range(10 * self.wanted + 10):
            if self._once(words, folder, others):
                return
        raise SystemExit(f"{' '.join(words)} never ended well")

    def _once(self, words: list[str], folder: Path, others: Others) -> bool:
        with (folder / "log.txt").open("ab") as log:
            process = subprocess.Popen(
                [*ACCORD, *words], stdout=log, stderr=log, cwd=folder, start_new_session=True
            )
        began = time.monotonic()
        wait = self.draws.uniform(0, self.usual) if self.done < self.wanted else PATIENCE
        try:
            code = process.wait(wait)
        except subprocess.TimeoutExpired:
            self._kill(process, others())
            return False
        if code not in (0, 1, 2, 3):
            raise SystemExit(f"{' '.join(words)} ended with {code}; see {folder / 'log.txt'}")
        self.usual = max(LEAST, min(self.usual, time.monotonic() - began))
        return code == 0

    def _kill(self, process: subprocess.Popen[bytes], others: list[int]) -> None:
        """Kills the command, or one of its descendants; in the end nothing of it is left."""
        family = [p.pid for p in psutil.Process(process.pid).children(recursive=True)]
        victims = family + others
        parent = not victims or self.draws.random() < 0.5
        victim = process.pid if parent else self.draws.choice(victims)
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
        self.done += 1
        self.at_parent += parent
        try:
            process.wait(5 if parent else PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        end = time.monotonic() + ENDING
        while any(map(_works, family)) and time.monotonic() < end:
            time.sleep(0.1)
        self.left_behind += sum(map(_works, family))


def _dask_workers() -> list[int]:
    """The workers of the cluster; their nannies start them again."""
    family = psutil.Process().children(recursive=True)
    return [p.pid for p in family if "multiprocessing.spawn" in " ".join(p.cmdline())]


def _works(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


# --- the engines -------------------------------------------------------------------------------


def run_once(engine: str, folder: Path, kills: Kills) -> None:
    """A whole study over an engine, with kills."""
    folder.mkdir(parents=True, exist_ok=True)
    study = folder / "study.yaml"
    study.write_text(json.dumps(STUDY))
    out = ["--out", str(folder / "run")]
    if engine == "local":
        kills.command(["run", str(study), "--workers", "2", *out], folder)
    elif engine == "dask":
        with cluster(folder, workers=2, again=True) as address:
            words = ["run", str(study), "--cluster", address, *out]
            kills.command(words, folder, _dask_workers)
    elif engine == "flower":
        # A node that was killed never answers; by default the server waits long for it.
        patience = ["--wait", "30", "--deadline", "30"]
        kills.command(["flower", "local", str(study), *patience, *out], folder)
    else:
        _files(study, folder, kills)


def _files(study: Path, folder: Path, kills: Kills) -> None:
    """Two rounds of SCAFFOLD by files, with two clients."""
    digits = load_digits()
    pixels, labels = (digits.images * 15.9).astype(np.uint8), digits.target
    for client in range(2):
        some = slice(60 * client, 60 * client + 60)
        np.savez(folder / f"{client}.npz", images=pixels[some], labels=labels[some])
    first = ["brief", str(study), "recipes=[scaffold]", "--out", "b1.safetensors"]
    kills.command(first, folder)
    for number in (1, 2):
        uploads = []
        for client in range(2):
            uploads.append(f"u{number}-{client}.safetensors")
            words = ["answer", f"b{number}.safetensors", f"{client}.npz", "--name", str(client)]
            kills.command([*words, "--out", uploads[-1], "--keep", "keep"], folder)
        end = ["--next", "b2.safetensors"] if number == 1 else ["--save", "model"]
        kills.command(["fuse", f"b{number}.safetensors", *uploads, *end], folder)


# --- comparing ---------------------------------------------------------------------------------


def content(folder: Path) -> dict[str, str]:
    """Every message and every result of a finished run, without times."""
    found = {}
    for path in sorted(folder.rglob("*.safetensors")):
        place = path.relative_to(folder)
        if not {"flower", "keep", "state", "memory"} & set(place.parts):
            found[str(place)] = hashlib.sha256(path.read_bytes()).hexdigest()
    for path in sorted(folder.glob("run/trials/*/measures.json")):
        found[str(path.relative_to(folder))] = json.dumps(_timeless(json.loads(path.read_text())))
    return found


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _timeless(inner) for key, inner in value.items() if key not in TIMED}
    return [_timeless(inner) for inner in value] if isinstance(value, list) else value


def measure(engine: str, wanted: int, seed: int) -> Kills:
    """Runs and kills; prints a line for every end."""
    with _place() as folder:
        whole = Kills(0, random.Random(seed), 0.0)
        began = time.monotonic()
        run_once(engine, folder / "whole", whole)
        usual = time.monotonic() - began
        reference = content(folder / "whole")
        commands = 7 if engine == "files" else 1
        kills = Kills(wanted, random.Random(seed), usual / commands)
        while not kills.ends or kills.done < wanted:
            run_once(engine, folder / "again", kills)
            found = content(folder / "again")
            kills.ends.append(found == reference)
            same = "identical" if kills.ends[-1] else f"DIFFERENT: {_apart(found, reference)}"
            print(f"{engine}: {kills.done} kills, end {len(kills.ends)}: {same}", flush=True)
            shutil.rmtree(folder / "again")
    return kills


def _apart(found: dict[str, str], reference: dict[str, str]) -> str:
    names = [n for n in {*found, *reference} if found.get(n) != reference.get(n)]
    return ", ".join(sorted(names)[:5])


@contextlib.contextmanager
def _place() -> Iterator[Path]:
    with workspace() as folder:
        yield Path(folder)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kills", description=__doc__)
    parser.add_argument("--engine", choices=ENGINES, action="append")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    bad = False
    for engine in asked.engine or ENGINES:
        kills = measure(engine, asked.kills, asked.seed)
        bad |= not all(kills.ends) or bool(kills.left_behind)
        print(
            f"{engine}: {kills.done} kills ({kills.at_parent} of the command, "
            f"{kills.done - kills.at_parent} of its processes), {sum(kills.ends)} of "
            f"{len(kills.ends)} ends identical, {kills.left_behind} processes left behind"
        )
    sys.exit(bad)


if __name__ == "__main__":
    main()
