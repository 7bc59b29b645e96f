"""A whole study on a real Dask cluster: the same bits as on this machine, whatever workers do."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

import accord
from accord.core.errors import AccordError
from accord.federation.on_dask import examine, question
from dask_cluster import LoopbackCluster, loopback_cluster, until
from records import assert_same_uploads, contents, timeless

Raw = dict[str, Any]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackCluster]:
    """A worker that stays."""
    with loopback_cluster(tmp_path_factory.mktemp("dask")) as made:
        made.worker("steady")
        yield made


@pytest.fixture
def mortal(cluster: LoopbackCluster) -> str:
    """A second worker, which a test may kill."""
    if "mortal" not in cluster.processes:
        cluster.worker("mortal")
        log = cluster.folder / "mortal.log"
        until(lambda: "Registered to" in log.read_text(), "the second worker")
    return "mortal"


@contextmanager
def started(study: Raw, cluster: LoopbackCluster, out: Path) -> Iterator[subprocess.Popen[str]]:
    """`accord run --cluster` in a process of its own, as a user starts it."""
    path = out.with_suffix(".yaml")
    path.write_text(yaml.safe_dump(study))
    words = ["run", str(path), "--out", str(out), "--cluster", cluster.address]
    process = subprocess.Popen(
        [sys.executable, "-m", "accord", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        # A test that runs in the background inherits that Ctrl-C is ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        yield process
    finally:
        process.kill()


def at_work(out: Path) -> list[str]:
    """The clients that have told an epoch and have sent no upload."""
    lines = [line for path in out.glob("trials/*/events.jsonl") for line in path.open()]
    told = {line.split('"client": ')[1].split(",")[0] for line in lines}
    return [name for name in told if not list(out.glob(f"trials/*/uploads/client-{name}.*"))]


def test_the_same_bits_as_on_this_machine_and_nothing_to_do_again(
    study: Raw, cluster: LoopbackCluster, mortal: str, tmp_path: Path
) -> None:
    """Two recipes: one round, and several rounds with work of the server in between."""
    study |= {"recipes": ["fafi", "scaffold"], "rounds": {"count": 2}, "keep_checkpoints": True}
    study["data"]["train_limit"] = 90
    here, there = tmp_path / "here", tmp_path / "there"
    accord.run(study, out=here, workers=1, quiet=True)
    results = accord.run(study, out=there, cluster=cluster.address, quiet=True)
    assert mortal in cluster.processes
    assert not results.failures
    assert timeless(there) == timeless(here)
    assert_same_uploads(there, here)
    assert {*contents(there)} == {*contents(here)}  # no file more and no file less
    before = contents(there)
    accord.run(study, out=there, cluster=cluster.address, quiet=True)
    assert contents(there) == before


def test_a_worker_killed_in_its_job_is_replaced(
    study: Raw, cluster: LoopbackCluster, mortal: str, tmp_path: Path
) -> None:
    study["budget"] = {"epochs": 20, "batch": 16, "checkpoints": [10, 20]}
    study["recipes"] = ["ce-ensemble"]
    with started(study, cluster, tmp_path / "killed") as process:
        # When two clients are at work, both workers have a job.
        until(lambda: len(at_work(tmp_path / "killed")) == 2, "training")
        cluster.kill(mortal)
        _, error = process.communicate(timeout=40)
    assert process.returncode == 0, error
    assert "worker mortal (tcp://127.0.0.1" in error
    assert "was lost; its job is given to another worker" in error
    accord.run(study, out=tmp_path / "whole", workers=1, quiet=True)
    assert timeless(tmp_path / "killed") == timeless(tmp_path / "whole")
    assert_same_uploads(tmp_path / "killed", tmp_path / "whole")


def test_ctrl_c_stops_the_run_and_its_jobs_but_not_the_cluster(
    study: Raw, cluster: LoopbackCluster, tmp_path: Path
) -> None:
    long = {**study, "budget": {"epochs": 5000, "batch": 16}}
    with started(long, cluster, tmp_path / "stopped") as process:
        until(lambda: at_work(tmp_path / "stopped"), "training")
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "accord: stopped. Run the same command again to go on." in error
    assert "Traceback" not in error
    # The only worker is free again, or this would take minutes.
    assert accord.run(study, out=tmp_path / "next", cluster=cluster.address, quiet=True).rows


def test_a_worker_tells_what_it_cannot_see(study: Raw, tmp_path: Path) -> None:
    out = tmp_path / "run"
    accord.run(study, out=out, workers=1, quiet=True)
    (out / ".cluster").write_text("token")
    asked = {"record": str(out), "file": ".cluster", "content": "token", **question(out)}
    assert len(asked["images"]) == 1

    def problem(**changes: Any) -> Any:
        return json.loads(examine(json.dumps({**asked, **changes})))["problem"]

    assert problem() is None
    assert "does not see the record" in problem(record=str(tmp_path / "elsewhere"))
    assert "does not see the record" in problem(content="the token of another folder")
    assert "Set ACCORD_CACHE" in problem(images=[str(tmp_path / "elsewhere")])
    if os.geteuid():  # root may write everywhere
        out.chmod(0o555)
        assert "cannot write to the record" in problem()
        out.chmod(0o755)
    shutil.rmtree(out)


def test_workers_of_this_machine_and_of_a_cluster_are_not_mixed(study: Raw, tmp_path: Path) -> None:
    with pytest.raises(AccordError, match="expected --cluster or --workers; found both"):
        accord.run(study, out=tmp_path, workers=2, cluster="tcp://127.0.0.1:1")
