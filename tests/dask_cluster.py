"""A real Dask cluster on this machine: a scheduler and workers, each a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import accord

TESTS = Path(__file__).resolve().parent
SOURCE = Path(accord.__file__).resolve().parents[1]


def until(true: Callable[[], object], what: str, seconds: float = 60) -> None:
    """Waits until something is true, but not for ever."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"{what} took more than {seconds:g} s"
        time.sleep(0.05)


class LoopbackCluster:
    """A scheduler; `worker` starts a worker that belongs to it. `end` ends all of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.address = ""

    def begin(self) -> None:
        file = self.folder / "scheduler.json"
        loopback = ["--host", "127.0.0.1", "--port", "0", "--dashboard-address", "127.0.0.1:0"]
        self._start("scheduler", ["scheduler", *loopback, "--scheduler-file", str(file)])
        until(lambda: file.exists() and file.read_text().endswith("}"), "the scheduler")
        self.address = json.loads(file.read_text())["address"]

    def worker(self, name: str, *options: str, path: Path | None = None) -> None:
        """Starts a worker; `path` comes first in its PYTHONPATH."""
        local = ["--host", "127.0.0.1", "--no-dashboard", "--local-directory", str(self.folder)]
        options = options or ("--no-nanny", "--nthreads", "1")
        self._start(name, ["worker", self.address, "--name", name, *local, *options], path)

    def _start(self, name: str, words: list[str], path: Path | None = None) -> None:
        module = f"distributed.cli.dask_{words[0]}"
        places = [str(place) for place in (path, TESTS, SOURCE) if place]
        with (self.folder / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", module, *words[1:]],
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(places)},
                start_new_session=True,  # a group of its own, which also holds a nanny's child
            )

    def kill(self, name: str) -> None:
        process = self.processes.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def end(self) -> None:
        for name in list(self.processes):
            self.kill(name)


@contextmanager
def loopback_cluster(folder: Path) -> Iterator[LoopbackCluster]:
    folder.mkdir(parents=True, exist_ok=True)
    made = LoopbackCluster(folder)
    try:
        made.begin()
        yield made
    finally:
        made.end()
