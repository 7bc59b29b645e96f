"""A real SuperLink with real SuperNodes on loopback, compared with the local engine.

Two federations run side by side, because much of the time is waiting: one with TLS and keys, and
one of whose two nodes is killed in the middle of its training.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
import yaml

import accord
from accord.core.files import read_json
from accord.flower.guard import Guard, running
from accord.flower.keys import make_keys
from accord.messages import Upload
from accord.record.record import Record

pytest.importorskip("flwr")
LIMIT = 170.0  # seconds
ACCORD = Path(sys.executable).parent / "accord"
DATA = {"name": "digits", "train_limit": 40, "test_limit": 20}
# The net of resnet18 makes uploads of 45 MB; the images are few and small.
LARGE = {
    "name": "large",
    "data": DATA,
    "partition": {"alpha": 1.0, "clients": 2},
    "net": {"backbone": "resnet18"},
    "budget": {"epochs": 1, "batch": 20},
    "recipes": ["ce-ensemble"],
    "bounds": False,
}
LONG = {
    **LARGE,
    "name": "long",
    "net": {"backbone": "conv4"},
    "budget": {"epochs": 1200, "batch": 20},
}


def write(study: dict[str, Any], folder: Path) -> Path:
    path = folder / f"{study['name']}.yaml"
    path.write_text(yaml.safe_dump(study))
    return path


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
    safe, lame = tmp_path / "safe", tmp_path / "lame"
    logs = {folder: tmp_path / f"{folder.name}.log" for folder in (safe, lame)}
    survivors = ["--min-clients", "1", "--out", str(lame)]
    with (
        started(str(write(LONG, tmp_path)), *survivors, log=logs[lame]) as second,
        started(
            str(write(LARGE, tmp_path)), "--secure", "--out", str(safe), log=logs[safe]
        ) as first,
    ):
        # A key that nobody registered is refused.
        make_keys(tmp_path / "stranger", ["localhost"], ["eve"], days=1)
        wait_for(lambda: "started a SuperLink" in logs[safe].read_text(), "the SuperLink")
        eve = tmp_path / "stranger" / "eve" / "eve.key"
        assert is_refused(_port(safe), safe / "flower/keys/server/ca.crt", eve, tmp_path / "eve")
        # One node of the long federation is killed in the middle of its training.
        wait_for((lame / "nodes" / "1" / "progress.json").exists, "training")
        victim = node(second, "1")
        assert victim is not None
        victim.send_signal(signal.SIGKILL)
        children = psutil.Process(second.pid).children(recursive=True)
        assert first.wait(LIMIT) == 0, logs[safe].read_text()
        _equals_the_local_engine(safe, tmp_path)
        assert second.wait(LIMIT) == 0, logs[lame].read_text()
    said = logs[lame].read_text()
    assert "client 1 failed in round 1, which went on without it: its node failed" in said
    (trial,) = Record(lame).trials()
    report = read_json(trial.round(1).report)
    assert report["answered"] == ["0"]
    assert "Node Unavailable" in report["failed"]["1"]
    assert accord.load(lame).rows[-1]["took_part"] == "0"
    # Everything that the command started has ended, also what outlived the killed node.
    assert not [one for one in children if one.is_running() and one.status() != "zombie"]


def _port(folder: Path) -> str:
    config = (folder / "flower/home/link/config.toml").read_text()
    return config.split("127.0.0.1:")[1].split('"')[0]


def _equals_the_local_engine(found: Path, folder: Path) -> None:
    run = folder / "local"
    accord.run(LARGE, out=run, workers=1, quiet=True)
    (there,), (here,) = Record(found).trials(), Record(run).trials()
    for name in ("0", "1"):
        path = there.round(1).upload(name, 1, last=True)
        assert path.stat().st_size > 44_000_000
        one, other = Upload.load(path), Upload.load(here.round(1).upload(name, 1, last=True))
        assert one.tensors.keys() == other.tensors.keys()
        assert all(torch.equal(one.tensors[key], other.tensors[key]) for key in one.tensors)
    # The bytes of an upload vary with the digits of its seconds; all else is equal.
    kept = ("accuracy", "loss", "ece", "download_bytes", "took_part")
    rows = [[[row[key] for key in kept] for row in accord.load(path).rows] for path in (found, run)]
    assert rows[0] == rows[1]
