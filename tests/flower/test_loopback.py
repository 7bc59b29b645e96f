"""A real SuperLink with three SuperNodes on loopback, with TLS and keys.

One of the nodes is killed in the middle of its training, and a stranger tries to join. The uploads
of the others are 45 MB each, and they are those of the local engine.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

import accord
from accord.core.files import read_json
from accord.flower.guard import Guard, running
from accord.flower.keys import make_keys
from accord.messages import Upload
from accord.record.record import Record
from tests_support import same

pytest.importorskip("flwr")
LIMIT = 170.0  # seconds
ACCORD = Path(sys.executable).parent / "accord"
STUDY: dict[str, Any] = {
    "name": "large",
    "data": {"name": "digits", "train_limit": 40, "test_limit": 20},
    "partition": {"alpha": 1.0, "clients": 3},
    "net": {"backbone": "resnet18"},  # the images are few and small, but its messages are large
    "budget": {"epochs": 12, "batch": 20},
    "recipes": ["ce-ensemble"],
    "references": False,
}


@contextmanager
def started(*words: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`accord flower local …`; whatever is left of it is ended, by number."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            [str(ACCORD), "flower", "local", *words], stdout=out, stderr=subprocess.STDOUT
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def wait_for(found: Any, what: str, seconds: float = LIMIT) -> Any:
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        value = found()
        if value:
            return value
        time.sleep(0.2)
    raise AssertionError(f"waited {seconds} s for {what}")


def node(process: subprocess.Popen[bytes], name: str) -> psutil.Process | None:
    """The SuperNode of a client among the descendants of a command."""
    for one in psutil.Process(process.pid).children(recursive=True):
        words = one.cmdline()
        if "flower-supernode" in " ".join(words) and f'name="{name}"' in " ".join(words):
            return one
    return None


def kill_when_training(
    process: subprocess.Popen[bytes], name: str, record: Path
) -> list[psutil.Process]:
    """Kills the node of a client in the middle of its training; returns all that was started."""
    wait_for((record / "flower/nodes" / name / "progress.json").exists, "training")
    victim = node(process, name)
    assert victim is not None
    found = psutil.Process(process.pid).children(recursive=True)
    victim.send_signal(signal.SIGKILL)
    return found


def is_refused(port: str, ca: Path, key: Path, folder: Path) -> bool:
    """Whether a SuperLink refuses the node with a key that nobody registered."""
    command = [
        *(str(ACCORD.parent / "flower-supernode"), "--superlink", f"127.0.0.1:{port}"),
        *("--root-certificates", str(ca), "--auth-supernode-private-key", str(key)),
        *("--node-config", 'name="0" partition=true', "--port", "28519"),
    ]
    path = f"{ACCORD.parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "FLWR_HOME": str(folder), "FLWR_TELEMETRY_ENABLED": "0"}
    with Guard() as guard:
        pid = guard.start(command, env, folder / "log", folder.parent)
        wait_for(lambda: not running(pid), "the end of a stranger's node")
    return "could not establish a connection" in (folder / "log").read_text()


def test_flower_on_this_machine(tmp_path: Path) -> None:
    out, log, study = tmp_path / "run", tmp_path / "log", tmp_path / "study.yaml"
    study.write_text(yaml.safe_dump(STUDY))
    words = [str(study), "--secure", "--min-clients", "2", "--out", str(out)]
    with ThreadPoolExecutor() as threads, started(*words, log=log) as command:
        killed = threads.submit(kill_when_training, command, "2", out)
        make_keys(tmp_path / "stranger", ["localhost"], ["eve"], days=1)
        wait_for(lambda: "started a SuperLink" in log.read_text(), "the SuperLink")
        eve = tmp_path / "stranger" / "eve" / "eve.key"
        assert is_refused(_port(out), out / "flower/keys/server/ca.crt", eve, tmp_path / "eve")
        children = killed.result(LIMIT)
        assert command.wait(LIMIT) == 0, log.read_text()
    said = log.read_text()
    assert "client 2 failed in round 1, which went on without it: its node failed" in said
    (trial,) = Record(out).trials()
    report = read_json(trial.round(1).report)
    assert report["answered"] == ["0", "1"]
    assert "Node Unavailable" in report["failed"]["2"]
    assert accord.load(out).rows[-1]["took_part"] == "0, 1"
    # Everything that the command started has ended, also what outlived the killed node.
    assert not [one for one in children if one.is_running() and one.status() != "zombie"]
    _equals_the_local_engine(out, tmp_path / "local")


def _port(folder: Path) -> str:
    config = (folder / "flower/home/link/config.toml").read_text()
    return config.split("127.0.0.1:")[1].split('"')[0]


def _equals_the_local_engine(found: Path, run: Path) -> None:
    accord.run(STUDY, out=run, workers=1, quiet=True)
    (there,), (here,) = Record(found).trials(), Record(run).trials()
    for name in ("0", "1"):
        path = there.round(1).upload(name, 12, last=True)
        assert path.stat().st_size > 44_000_000
        one, other = Upload.load(path), Upload.load(here.round(1).upload(name, 12, last=True))
        assert same(one.tensors, other.tensors)
    accord.fuse(run, ["outputs"], without=["2"], workers=1, quiet=True)
    kept = ("accuracy", "loss", "ece")
    rows = [accord.load(path).rows[-1] for path in (found, run)]
    assert rows[1]["fusion"] == "outputs-without-2"
    assert [rows[0][key] for key in kept] == [rows[1][key] for key in kept]
