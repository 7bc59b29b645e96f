"""Ctrl-C and SIGTERM at any moment, and a parent that is killed while its workers start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from accord.core import stopping
from accord.core.tied import PARENT, end_with_parent

Raw = dict[str, Any]


def in_fork(work: Callable[[], object]) -> tuple[int, str]:
    """The exit code and the error output of `work` in a process of its own, without loading."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(writer, 2)
        sys.stderr = os.fdopen(2, "w", closefd=False)
        stopping._State.arrived, stopping._State.told = None, False
        try:
            work()
        except SystemExit as ended:
            sys.stderr.flush()
            os._exit(int(ended.code or 0))
        except BaseException as error:
            os.write(2, f"Traceback: {error!r}".encode())
        os._exit(99)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        said = file.read().decode()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said


def signalled(number: int, *, working: bool) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    stopping.install()
    if working:
        stopping.begin_work()
    try:
        signal.raise_signal(number)
    finally:
        if working:
            signal.raise_signal(number)  # the second one, while something is tidied


def test_signals_end_with_one_line_and_128_plus_their_number() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        for working in (False, True):
            code, said = in_fork(lambda n=number, w=working: signalled(n, working=w))  # type: ignore[misc]
            assert (code, said) == (128 + number, f"{stopping.LINE}\n")


AT_THE_END = """
import os
import accord.__main__

class Dying:
    def __del__(self, kill=os.kill, pid=os.getpid()):
        kill(pid, {number})  # Python destroys modules after it has taken its handlers away

kept = Dying()
"""


def test_a_signal_while_python_ends_does_not_change_the_exit_code() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        script = AT_THE_END.format(number=int(number))
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")


def test_a_signal_in_an_import_or_a_destructor_is_not_lost(tmp_path: Path) -> None:
    (tmp_path / "greedy_module.py").write_text(
        "import signal\ntry:\n    signal.raise_signal(15)\nexcept BaseException:\n    pass\n"
    )

    class Dying:
        def __del__(self) -> None:
            signal.raise_signal(15)

    def importing() -> None:
        stopping.install()
        stopping.begin_work()
        sys.path.insert(0, str(tmp_path))
        __import__("greedy_module")

    def destroying() -> None:
        stopping.install()
        stopping.begin_work()
        Dying()
        time.sleep(5)

    for work in (importing, destroying):
        assert in_fork(work) == (143, f"{stopping.LINE}\n")


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    def work() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        stopping.install()
        signal.raise_signal(signal.SIGHUP)
        sys.exit(7)

    assert in_fork(work) == (7, "")


def test_a_process_whose_parent_is_gone_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    def work() -> None:
        monkeypatch.setenv(PARENT, "1")
        end_with_parent()
        sys.exit(9)

    assert in_fork(work) == (0, "")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux kills the workers at once")
def test_no_worker_outlives_a_killed_parent(study: Raw, tmp_path: Path) -> None:
    """The workers are killed with it while they start, long before they have loaded torch."""
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study))
    words = ["-m", "accord", "run", "study.yaml", "--workers", "3"]
    process = subprocess.Popen([sys.executable, *words], cwd=tmp_path, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    workers: list[psutil.Process] = []
    while len(workers) < 3:
        assert time.monotonic() < deadline
        workers = psutil.Process(process.pid).children()
    process.kill()
    process.wait()
    _, alive = psutil.wait_procs(workers, timeout=5)
    assert not alive
