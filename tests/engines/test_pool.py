"""Workers that misbehave: whatever they do, the main process hears of it and goes on."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from accord.core.errors import AccordError
from accord.engines.base import Job, Message
from accord.engines.pool import InProcess, Processes


@dataclass(frozen=True)
class Errand:
    """The smallest task: a name."""

    name: str

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name}


JOB = Job(Errand("0"), 1.0)


@contextmanager
def workers(folder: Path, script: str, count: int = 1) -> Iterator[Processes[Errand]]:
    """A pool whose workers run `script` instead of Accord's own worker."""
    made: Processes[Errand] = Processes(count, ["-u", "-c", textwrap.dedent(script)])
    made.open(folder)
    try:
        yield made
    finally:
        made.close()


def test_a_worker_killed_in_the_middle_of_a_line_is_heard_of(tmp_path: Path) -> None:
    script = """
        import os, sys
        print('{"kind": "ready"}'); input(); input(); print('{"kind": "began"}')
        print('{"kind": "do', end=""); sys.stdout.flush(); os.kill(os.getpid(), 9)
    """
    heard: list[Message[Errand]] = []
    with workers(tmp_path, script) as made:
        made.ask(JOB)
        made.hear(heard.append)
    assert [message.kind for message in heard] == ["failed"]
    assert "killed by SIGKILL" in heard[0].body["message"]
    assert made.free() == 1


def test_a_job_that_never_began_goes_to_the_next_worker(tmp_path: Path) -> None:
    script = f"""
        import pathlib, sys
        print('{{"kind": "ready"}}'); input(); input()
        died = pathlib.Path({str(tmp_path / "died")!r})
        if not died.exists():
            died.touch(); sys.exit(3)
        print('{{"kind": "began"}}'); print('{{"kind": "done", "result": {{"peak_memory": 1}}}}')
        input()
    """
    heard: list[Message[Errand]] = []
    with workers(tmp_path, script) as made:
        made.ask(JOB)
        made.hear(heard.append)
    assert [message.kind for message in heard] == ["done"]


def test_a_free_worker_does_not_wait_for_the_other_ones_job(tmp_path: Path) -> None:
    script = """
        import json, time
        print('{"kind": "ready"}'); input()
        job = json.loads(input()); print('{"kind": "began"}')
        if job["name"] == "slow":
            time.sleep(0.6); print('{"kind": "news", "share": 0.5}'); time.sleep(30)
        time.sleep(0.5); print('{"kind": "done", "result": {}}')
        time.sleep(30)
    """
    heard: list[Message[Errand]] = []
    with workers(tmp_path, script, count=2) as made:
        made.ask(Job(Errand("slow"), 1.0))
        made.ask(Job(Errand("quick"), 1.0))
        time.sleep(1.5)  # both the end of one job and news of the other are waiting by now
        began = time.monotonic()
        made.hear(heard.append)
        assert time.monotonic() - began < 5
        assert made.free() == 1
    assert [message.kind for message in heard if message.job.task.name == "quick"] == ["done"]


def test_a_worker_that_cannot_start_is_told(tmp_path: Path) -> None:
    script = "import sys; sys.exit('no such library')"
    with workers(tmp_path, script) as made:
        made.ask(JOB)
        with pytest.raises(AccordError, match=r"could not start.*no such library"):
            made.hear(print)


def test_words_of_an_earlier_run_are_not_quoted(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "worker-0.log").write_text("an old complaint\n")
    script = """
        import os
        print('{"kind": "ready"}'); input(); input()
        print('{"kind": "began"}'); os.kill(os.getpid(), 9)
    """
    heard: list[Message[Errand]] = []
    with workers(tmp_path, script) as made:
        made.ask(JOB)
        made.hear(heard.append)
    assert "old complaint" not in heard[0].body["message"]


def test_in_process_an_error_is_a_failure_like_any_other() -> None:
    def refuse(task: Errand, *_: object) -> dict[str, Any]:
        raise AccordError(f"nobody can {task.name}")

    heard: list[Message[Errand]] = []
    made: InProcess[Errand] = InProcess(refuse)
    made.ask(Job(Errand("juggle"), 1.0))
    made.hear(heard.append)
    assert heard[0].kind == "failed"
    assert "juggle" in heard[0].body["message"]
    assert made.free() == 1
