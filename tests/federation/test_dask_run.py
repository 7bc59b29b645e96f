"""A whole study on a real Dask cluster: the same bits as on this machine, whatever workers do."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import accord
from accord.core.errors import AccordError
from accord.core.versions import versions
from accord.federation.remote import examine, question
from dask_cluster import LoopbackCluster, loopback_cluster, until
from records import assert_same_uploads, contents, timeless

Raw = dict[str, Any]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackCluster]:
    """A worker that stays; tests add workers of their own."""
    with loopback_cluster(tmp_path_factory.mktemp("dask")) as made:
        made.worker("steady")
        yield made


def started(study: Raw, cluster: LoopbackCluster, out: Path) -> subprocess.Popen[str]:
    """`accord run --cluster` in a process of its own, as a user starts it."""
    path = out.with_suffix(".yaml")
    path.write_text(yaml.safe_dump(study))
    words = ["run", str(path), "--out", str(out), "--cluster", cluster.address]
    return subprocess.Popen(
        [sys.executable, "-m", "accord", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        # A test that runs in the background inherits that Ctrl-C is ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def events(out: Path, client: int) -> int:
    """How many epochs of a client the record has heard of."""
    lines = [line for path in out.glob("trials/*/events.jsonl") for line in path.open()]
    return sum(f'"client": {client},' in line for line in lines)


def test_the_same_bits_as_on_this_machine_and_nothing_to_do_again(
    study: Raw, cluster: LoopbackCluster, tmp_path: Path
) -> None:
    """Two recipes: one round, and several rounds with work of the server in between."""
    study["recipes"], study["rounds"], study["keep_checkpoints"] = (
        ["fafi", "scaffold"],
        {"count": 2},
        True,
    )
    cluster.worker("second")
    here, there = tmp_path / "here", tmp_path / "there"
    accord.run(study, out=here, workers=1, quiet=True)
    results = accord.run(study, out=there, cluster=cluster.address, quiet=True)
    cluster.kill("second")
    assert not results.failures
    assert timeless(there) == timeless(here)
    assert_same_uploads(there, here)
    assert {*contents(there)} == {*contents(here)}  # no file more and no file less
    before = contents(there)
    accord.run(study, out=there, cluster=cluster.address, quiet=True)
    assert contents(there) == before


def test_a_worker_killed_in_its_job_is_replaced(
    study: Raw, cluster: LoopbackCluster, tmp_path: Path
) -> None:
    study["budget"] = {"epochs": 40, "batch": 16, "checkpoints": [10, 40]}
    study["partition"]["clients"] = 2
    cluster.worker("mortal")
    until(lambda: "Registered to" in (cluster.folder / "mortal.log").read_text(), "the worker")
    process = started(study, cluster, tmp_path / "killed")
    # With two clients and two workers, both workers train when both clients have told an epoch.
    until(lambda: events(tmp_path / "killed", 0) and events(tmp_path / "killed", 1), "training")
    cluster.kill("mortal")
    _, error = process.communicate(timeout=60)
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
    process = started(long, cluster, tmp_path / "stopped")
    until(lambda: (tmp_path / "stopped").glob("trials/*/events.jsonl"), "the start")
    until(lambda: sum(events(tmp_path / "stopped", client) for client in range(3)), "training")
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "accord: stopped. Run the same command again to go on." in error
    assert "Traceback" not in error
    # The only worker is free again, or this would take minutes.
    assert accord.run(study, out=tmp_path / "next", cluster=cluster.address, quiet=True).rows


def test_a_worker_with_another_version_gets_no_jobs(
    study: Raw, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its metadata says that it has another torch."""
    other = tmp_path / "other" / "torch-9.9.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 9.9\n")
    expected = f"expected torch {versions()['torch']}, as in this process; it has torch 9.9"
    with loopback_cluster(tmp_path / "dask") as made:
        made.worker("stranger", path=other.parent)
        with pytest.raises(AccordError, match="no worker of the cluster") as refused:
            accord.run(study, out=tmp_path / "run", cluster=made.address, quiet=True)
        assert "stranger (tcp://127.0.0.1" in str(refused.value)
        assert expected in str(refused.value)
        made.worker("friend")
        until(lambda: "Registered to" in (made.folder / "friend.log").read_text(), "the worker")
        results = accord.run(study, out=tmp_path / "run", cluster=made.address)
    assert results.rows
    told = capsys.readouterr().err
    assert told.count("worker stranger") == 1
    assert f"gets no jobs: {expected}" in told


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
