"""A guard: it starts processes for its parent, and ends them all when its parent is gone.

Flower's commands start processes of their own, in sessions of their own, and some outlive the one
that started them. The guard is the parent of all of them: orphans fall to it, where the system can
do that (Linux). It ends all its descendants, and nothing else, when its standard input ends: after
`close`, after Ctrl-C, and also when its parent was killed. If the guard itself was killed, its
parent ends them: the environment of each of them has a mark.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil

PR_SET_CHILD_SUBREAPER = 36  # from Linux's prctl.h
PATIENCE = 20.0  # seconds in which everything must have ended
MARK = "ACCORD_GUARD"  # in the environment of all processes of one guard


class Guard:
    """The parent's side."""

    def __init__(self) -> None:
        self._mark = uuid.uuid4().hex
        self._process = subprocess.Popen(
            [sys.executable, "-m", "accord.flower.guard"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C reaches the parent only
        )

    def start(self, command: Sequence[str], env: dict[str, str], log: Path, cwd: Path) -> int:
        """Starts a process whose output goes to `log`, and returns its number."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        log.parent.mkdir(parents=True, exist_ok=True)
        marked = {**env, MARK: self._mark}
        order = {"command": list(command), "env": marked, "log": str(log), "cwd": str(cwd)}
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline() or '{"error": "the guard has ended"}')
        if "error" in answer:
            raise OSError(answer["error"])
        return int(answer["pid"])

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self) -> None:
        """Ends everything that was started."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        if self._process.wait(timeout=PATIENCE):  # it was killed, and could end nothing
            _end_all(lambda: [one for one in psutil.process_iter() if self._has_mark(one)])

    def _has_mark(self, process: psutil.Process) -> bool:
        try:
            marked = process.environ().get(MARK) == self._mark
            return marked and process.status() != psutil.STATUS_ZOMBIE
        except (psutil.Error, OSError):  # it has ended, or belongs to somebody else
            return False

    def __enter__(self) -> Guard:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def running(pid: int) -> bool:
    """Whether a process still works; one that has ended and waits to be noticed does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def main() -> None:
    _adopt_orphans()
    for name in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(name, lambda *_: sys.exit(0))
    try:
        for line in sys.stdin:
            print(json.dumps(_started(json.loads(line))), flush=True)
    finally:
        _end_descendants()


def _started(order: dict[str, Any]) -> dict[str, Any]:
    try:
        with Path(order["log"]).open("ab") as log:
            process = subprocess.Popen(
                order["command"],
                env=order["env"],
                cwd=order["cwd"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
    except OSError as error:
        return {"error": str(error)}
    return {"pid": process.pid}


def _adopt_orphans() -> None:
    """Makes this process the parent of descendants whose own parent ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _end_descendants() -> None:
    _end_all(lambda: psutil.Process().children(recursive=True))


def _end_all(look: Callable[[], list[psutil.Process]]) -> None:
    """Kills all processes that `look` finds; again, until none is left: they may start others."""
    for _ in range(100):
        found = look()
        if not found:
            return
        for process in found:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(found, timeout=0.1)  # it also waits for children of this process


if __name__ == "__main__":
    main()
