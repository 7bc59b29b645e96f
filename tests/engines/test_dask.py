"""The engine on a real Dask cluster, with small jobs: what is told, refused, lost and cancelled."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import dask_jobs
from accord.core.errors import AccordError
from accord.core.files import write_atomic, written_files
from accord.engines import dask, shared
from accord.engines.base import Job, Message
from accord.engines.cluster import TOKEN, Cluster, Remote
from accord.engines.fitness import description, judge
from accord.engines.shared import wait_for_files
from dask_cluster import LoopbackCluster, loopback_cluster, until

REMOTE = Remote(dask_jobs.work, dask_jobs.examine, dask_jobs.nothing)


@dataclass(frozen=True)
class Errand:
    """The smallest task: a name."""

    name: str

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackCluster]:
    """One worker with two threads and a nanny, which starts it again when it dies."""
    with loopback_cluster(tmp_path_factory.mktemp("dask")) as made:
        made.worker("phoenix", "--nanny", "--nthreads", "2")
        yield made


@contextmanager
def engine(cluster: LoopbackCluster, record: Path, told: list[str]) -> Iterator[Cluster[Errand]]:
    made: Cluster[Errand] = Cluster(cluster.address, REMOTE, told.append)
    try:
        made.open(record)
        yield made
    finally:
        made.close()


def do(made: Cluster[Errand], *names: str) -> list[Message[Errand]]:
    """All messages about jobs with these names."""
    waiting, heard = [Job(Errand(name), 1.0) for name in names], list[Message[Errand]]()
    while waiting or made.busy():
        while waiting and made.free():
            made.ask(waiting.pop(0))
        made.hear(heard.append)
    return heard


def until_told(made: Cluster[Errand], told: list[str]) -> None:
    """Does further jobs until the engine has told something."""
    until(lambda: told or not do(made, "again"), "the line about a worker")


def test_jobs_are_done_one_after_the_other_and_told(
    cluster: LoopbackCluster, tmp_path: Path
) -> None:
    told: list[str] = []
    with engine(cluster, tmp_path, told) as made:
        assert made.free() == 1  # a first job may wait for the first worker
        heard = do(made, "one", "two", "refuse", "crash")
        assert (made.free(), made.busy()) == (1, 0)
        assert (tmp_path / TOKEN).exists()
    assert not (tmp_path / TOKEN).exists()
    ends = {m.job.task.name: (m.kind, m.body) for m in heard if m.kind != "news"}
    assert [ends[name][0] for name in ("one", "two")] == ["done", "done"]
    assert (tmp_path / "made" / "two.txt").read_bytes() == b"whole"
    assert ends["refuse"][1]["error"] == "user"
    assert ends["refuse"][1]["message"] == "nobody can juggle"
    assert ends["crash"][1]["error"] == "defect"
    assert "dask_jobs.py" in ends["crash"][1]["trace"]
    (line,) = told
    assert "worker phoenix (tcp://127.0.0.1" in line
    assert "has 2 threads, but Accord uses one" in line


def test_three_workers_lost_with_a_job_are_enough(cluster: LoopbackCluster, tmp_path: Path) -> None:
    told: list[str] = []
    with engine(cluster, tmp_path, told) as made:
        (ended,) = [message for message in do(made, "die") if message.kind != "news"]
        assert ended.kind == "failed"
        assert ended.body["error"] == "client"
        assert "3 workers were lost while they did it: phoenix" in ended.body["message"]
        (after,) = [message for message in do(made, "well") if message.kind != "news"]
        assert after.kind == "done"
    lost = [line for line in told if "was lost; its job is given to another worker" in line]
    assert len(lost) == 2


def test_a_job_stops_when_nobody_wants_its_result(cluster: LoopbackCluster, tmp_path: Path) -> None:
    """The worker does one job at a time, so the second job shows that the long one is over."""

    def stop(message: Message[Errand]) -> None:
        assert message.body["share"] == 0.5
        raise KeyboardInterrupt

    with engine(cluster, tmp_path, []) as made:
        made.ask(Job(Errand("long"), 1.0))
        with pytest.raises(KeyboardInterrupt):
            made.hear(stop)
    began = time.monotonic()
    with engine(cluster, tmp_path, []) as made:
        assert [m.kind for m in do(made, "quick") if m.kind != "news"] == ["done"]
    assert time.monotonic() - began < dask_jobs.LONG / 2
    assert not (tmp_path / "made" / "long.txt").exists()


def test_a_worker_that_does_not_see_the_record_is_refused_by_name(
    cluster: LoopbackCluster, tmp_path: Path
) -> None:
    told: list[str] = []
    with engine(cluster, tmp_path, told) as made:
        (tmp_path / TOKEN).unlink()
        with pytest.raises(AccordError, match=r"no worker of the cluster .* can be used"):
            do(made, "one")
    assert any("worker phoenix" in line and "gets no jobs: it is blind" in line for line in told)


def test_a_worker_with_another_version_gets_no_jobs(tmp_path: Path) -> None:
    """Its metadata says that it has another torch. A worker that joins later does the job."""
    other = tmp_path / "other" / "torch-9.9.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 9.9\n")
    expected = f"expected torch {description()['torch']}, as in this process; it has torch 9.9"
    told: list[str] = []
    with loopback_cluster(tmp_path / "dask") as cluster:
        cluster.worker("stranger", path=other.parent)
        with (
            engine(cluster, tmp_path, []) as made,
            pytest.raises(AccordError, match="no worker of the cluster") as refused,
        ):
            do(made, "one")
        assert "stranger (tcp://127.0.0.1" in str(refused.value)
        assert expected in str(refused.value)
        cluster.worker("friend")
        until(lambda: "Registered to" in (cluster.folder / "friend.log").read_text(), "a worker")
        with engine(cluster, tmp_path, told) as made:
            assert [m.kind for m in do(made, "one") if m.kind != "news"] == ["done"]
            until_told(made, told)
    assert len(told) == 1
    assert told[0].startswith("worker stranger (tcp://")
    assert f"gets no jobs: {expected}" in told[0]


# --- without a cluster ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["accord", "torch", "numpy", "python"])
def test_other_software_is_refused(name: str) -> None:
    answer = {"software": description(), "problem": None}
    assert judge(answer) is None
    answer["software"] = {**description(), name: "0.0"}
    reason = judge(answer)
    assert reason is not None
    assert f"expected {name} {description()[name]}" in reason
    assert f"it has {name} 0.0" in reason


def test_the_same_version_with_other_code_is_refused() -> None:
    reason = judge({"software": {**description(), "source": "0"}, "problem": None})
    assert reason is not None
    assert "other source code" in reason


@pytest.mark.parametrize("address", ["", "nowhere", "tcp://", "foo://x:1", "tcp://nowhere:1"])
def test_a_wrong_address_is_told(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask, "CONNECT", 0.5)
    with pytest.raises(AccordError, match="expected the address of a running Dask scheduler"):
        Cluster(address, REMOTE, print)


def test_a_port_where_something_else_listens_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask, "CONNECT", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(AccordError, match=r"no scheduler answered|Timed out"):
            Cluster(f"tcp://127.0.0.1:{port}", REMOTE, print)


def test_without_distributed_the_extra_is_named() -> None:
    code = (
        "import sys; sys.modules['distributed'] = None\n"
        "from accord.core.errors import AccordError\n"
        "from accord.engines.dask import Link\n"
        "try: Link('tcp://127.0.0.1:1')\n"
        "except AccordError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "pip install 'accord[dask]'" in done.stdout


def test_this_process_waits_for_files_that_it_does_not_see_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "AGAIN", 0.05)
    late = threading.Timer(0.3, write_atomic, (tmp_path / "late.txt", b"whole"))
    late.start()
    wait_for_files(tmp_path, ["late.txt"])
    assert (tmp_path / "late.txt").read_bytes() == b"whole"
    with pytest.raises(AccordError, match=r"never\.txt: a worker says that it has written"):
        wait_for_files(tmp_path, ["never.txt"], patience=0.2)
    assert [path.name for path in tmp_path.iterdir()] == ["late.txt"]


def test_a_job_knows_which_files_it_has_written(tmp_path: Path) -> None:
    with written_files() as paths:
        write_atomic(tmp_path / "a", b"1")
        write_atomic(tmp_path / "a", b"2")
        write_atomic(tmp_path / "b", b"1")
    write_atomic(tmp_path / "c", b"1")
    assert paths == [tmp_path / "a", tmp_path / "b"]
