"""The guard ends everything that it started, and nothing else, however its parent ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from accord.flower.guard import Guard, running

# A process that starts a detached child and ends, as Flower's commands do: an orphan is left.
PARENT = """
import subprocess, sys
sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
child = subprocess.Popen(sleep, start_new_session=True)
print(child.pid, flush=True)
"""
OWNER = """
import sys, time
from pathlib import Path
from accord.flower.guard import Guard
guard = Guard()
log = Path(sys.argv[1])
guard.start([sys.executable, "-c", sys.argv[2]], dict(__import__("os").environ), log, log.parent)
print("started", flush=True)
time.sleep(60)
"""


def orphan(log: Path) -> int:
    """The number of the orphan, when it is one."""
    for _ in range(100):
        if log.exists() and log.read_text().endswith("\n"):
            return int(log.read_text())
        time.sleep(0.05)
    raise AssertionError("nothing was started")


def ended(pid: int) -> bool:
    for _ in range(100):
        if not running(pid):
            return True
        time.sleep(0.05)
    return False


@pytest.fixture
def bystander() -> Iterator[int]:
    """A process that no guard has started."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield process.pid
    process.kill()
    process.wait()


def test_orphans_end_with_the_guard(tmp_path: Path, bystander: int) -> None:
    log = tmp_path / "log"
    with Guard() as guard:
        pid = guard.start([sys.executable, "-c", PARENT], dict(os.environ), log, tmp_path)
        child = orphan(log)
        assert ended(pid)
        assert running(child)
    assert ended(child)
    assert running(bystander)


def test_orphans_end_when_the_guard_was_killed(tmp_path: Path, bystander: int) -> None:
    command, log = [sys.executable, "-c", PARENT], tmp_path / "log"
    with Guard() as guard:
        guard.start(command, dict(os.environ), log, tmp_path)
        child = orphan(log)
        os.kill(guard.pid, signal.SIGKILL)
        assert ended(guard.pid)
        with pytest.raises(OSError, match="the guard has ended"):
            guard.start(command, dict(os.environ), log, tmp_path)
        assert running(child)
    assert ended(child)
    assert running(bystander)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_orphans_end_when_the_owner_is_killed(tmp_path: Path, how: signal.Signals) -> None:
    log = tmp_path / "log"
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(log), PARENT], stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    assert owner.stdout.readline() == "started\n"
    child = orphan(log)
    (guard,) = psutil.Process(owner.pid).children()
    owner.send_signal(how)
    owner.wait()
    assert ended(child)
    assert ended(guard.pid)


def test_a_command_that_does_not_exist_is_told(tmp_path: Path) -> None:
    with Guard() as guard, pytest.raises(OSError, match="nowhere"):
        guard.start([str(tmp_path / "nowhere")], dict(os.environ), tmp_path / "log", tmp_path)
