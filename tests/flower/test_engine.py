"""The engine over Flower's messages: what it accepts, what it refuses, and whom it waits for."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.common.config import parse_config_args

import accord
from accord.core.errors import AccordError
from accord.core.files import read_json
from accord.data.allocation import open_allocation
from accord.engines.pool import InProcess
from accord.federation.run import run_study
from accord.federation.tasks import Task, perform
from accord.flower import engine as engines
from accord.flower.engine import FlowerEngine, Patience
from accord.flower.letters import Letter
from accord.flower.local import node_config
from accord.messages import Upload
from accord.record.record import Record
from accord.report.progress import Plain
from accord.study.study import load_study
from flower.loop import Loop
from tests_support import same

Raw = dict[str, Any]


class Told(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def tell(self, line: str) -> None:
        self.lines.append(line)


@pytest.fixture
def small(study: Raw) -> Raw:
    return {**study, "budget": {"epochs": 1, "batch": 32}, "recipes": ["ce-ensemble"]}


class Clock:
    """A clock that only the engine's own pauses move, so that a busy machine changes nothing."""

    def __init__(self) -> None:
        self.now = 1.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "LOOK", 0.0)
    monkeypatch.setattr(engines, "PAUSE", 0.01)
    monkeypatch.setattr(engines, "time", Clock())


def nodes(keep: Path, count: int = 3, **more: Any) -> dict[int, Raw]:
    """Nodes with the numbers 10, 11, … for the clients 0, 1, …"""
    return {
        10 + index: {"name": str(index), "partition": True, "keep": str(keep / str(index)), **more}
        for index in range(count)
    }


def done(task: Task, record: Path, tell: Callable[[Raw], None]) -> Raw:
    return perform(task, Record(record), tell)


def run(
    study: Raw, grid: Loop, out: Path, *, min_clients: int | None = None, connect: float = 0.3
) -> tuple[dict[str, list[str]], Told]:
    told = Told()
    engine = FlowerEngine(grid, InProcess(done), Patience(connect=connect, answer=0.5), told.tell)
    failures = run_study(
        load_study(study),
        Record(out),
        None,
        engine,
        told,
        elsewhere=True,
        min_clients=min_clients,
    )
    return failures, told


def uploads(record: Path) -> dict[str, dict[str, torch.Tensor]]:
    found = sorted(record.rglob("uploads/*.safetensors"))
    return {path.relative_to(record).as_posix(): Upload.load(path).tensors for path in found}


def report(record: Path) -> Raw:
    (trial,) = Record(record).trials()
    found: Raw = read_json(trial.round(1).report)
    return found


def test_every_upload_is_that_of_the_local_engine(small: Raw, tmp_path: Path) -> None:
    """Checkpoints, a reference at the server, SCAFFOLD's memories and sampled clients included."""
    small |= {
        "recipes": ["fafi", "scaffold", "central"],
        "budget": {"epochs": 2, "batch": 32, "checkpoints": [1, 2]},
        "rounds": {"count": 2, "fraction": 0.7},
        "keep_checkpoints": True,
        "shift": {"rotation": 20, "noise": 0.05, "labels": 0.2},
    }
    accord.run(small, out=tmp_path / "here", workers=1, quiet=True)
    grid = Loop(nodes(tmp_path / "keep"))
    failures, told = run(small, grid, tmp_path / "there")
    assert not failures
    assert "the node of client 2 is connected" in told.lines
    here, there = uploads(tmp_path / "here"), uploads(tmp_path / "there")
    assert here.keys() == there.keys()
    assert len(here) == 3 * 2 + 2 * 2 * 2 + 2
    assert all(same(here[name], there[name]) for name in here)
    rows = [accord.load(tmp_path / name).rows for name in ("here", "there")]
    kept = ("recipe", "fusion", "round", "epoch", "accuracy", "loss", "took_part")
    assert [[row[key] for key in kept] for row in rows[0]] == [
        [row[key] for key in kept] for row in rows[1]
    ]
    before = len(grid.asked)
    run(small, grid, tmp_path / "there")
    assert len(grid.asked) == before  # a finished study asks nobody


def test_clients_of_any_name_answer_as_in_the_local_engine(small: Raw, tmp_path: Path) -> None:
    """Their names come from a column: spaces, line ends, slashes and quotes do no harm."""
    names = ("a  b\nc", "../up", 'quo"te', "x" * 200)
    images = np.random.default_rng(0).integers(0, 256, (80, 8, 8), dtype=np.uint8)
    np.savez(tmp_path / "d.npz", images=images, labels=np.arange(80) // 8, site=names * 20)
    small["data"] = {"name": "npz", "path": str(tmp_path / "d.npz")}
    small["partition"] = {"scheme": "by-column", "column": "site"}
    accord.run(small, out=tmp_path / "here", workers=1, quiet=True)
    config = {
        10 + index: parse_config_args([node_config({"name": name, "partition": True})])
        | {"keep": str(tmp_path / "keep")}
        for index, name in enumerate(names)
    }
    failures, told = run(small, Loop(config), tmp_path / "there")
    assert not failures
    assert not [line for line in told.lines if not line.isprintable()]
    here, there = uploads(tmp_path / "here"), uploads(tmp_path / "there")
    assert here.keys() == there.keys()
    assert len(here) == len(names)
    assert all(same(here[name], there[name]) for name in here)


def test_sites_with_images_of_their_own(small: Raw, tmp_path: Path) -> None:
    """Two sites answer as the clients 0 and 1 of a local study would, by their names."""
    accord.run(small, out=tmp_path / "here", workers=1, quiet=True)
    (path,) = (tmp_path / "here").glob("allocations/*.json")
    allocation = open_allocation(path)
    config = nodes(tmp_path / "keep", 2)
    for index, node in enumerate(config.values()):
        data = allocation.client(index)
        file = tmp_path / f"{index}.npz"
        np.savez(file, images=data.images[data.rows], labels=data.labels)
        node |= {"data": str(file), "partition": False}
    small["partition"] = {"scheme": "sites", "names": ["0", "1"]}
    failures, _ = run(small, Loop(config), tmp_path / "there")
    assert not failures
    here, there = uploads(tmp_path / "here"), uploads(tmp_path / "there")
    for name in ("0", "1"):
        (one,) = (value for key, value in here.items() if f"client-{name}." in key)
        (other,) = (value for key, value in there.items() if f"client-{name}." in key)
        assert same(one, other)
    assert [row["accuracy"] for row in accord.load(tmp_path / "there").rows]  # on the server's own
    # A server without images measures nothing, and still makes a model.
    small["data"] = {"classes": [str(digit) for digit in range(10)], "image": {"size": 8}}
    small["data"]["image"]["channels"] = 1
    assert not run(small, Loop(config), tmp_path / "blind")[0]
    assert not accord.load(tmp_path / "blind").rows
    accord.fuse(tmp_path / "blind", ["outputs"], save=tmp_path / "model", workers=1, quiet=True)
    assert accord.Predictor.load(tmp_path / "model").header.nets == 2
    with pytest.raises(AccordError, match="Use `accord flower`, or exchange files"):
        accord.run(small, out=tmp_path / "no", workers=1, quiet=True)


def letter(change: Callable[[Raw, dict[str, bytes]], None]) -> Callable[[Message], Message]:
    """A node that changes the text or the parts of its answer."""

    def changed(reply: Message) -> Message:
        found = Letter.from_flower(reply.content)
        change(found.text, found.parts)
        reply.content = found.to_flower()
        return reply

    return changed


def poisoned(change: Callable[[Upload], Upload]) -> Callable[[Message], Message]:
    def changed(_: Raw, parts: dict[str, bytes]) -> None:
        for name, part in parts.items():
            parts[name] = change(Upload.from_bytes(part, name)).to_bytes()

    return letter(changed)


def with_tensor(name: str, value: torch.Tensor | None) -> Callable[[Message], Message]:
    def change(upload: Upload) -> Upload:
        tensors = {key: t for key, t in upload.tensors.items() if key != name}
        return Upload(upload.header, tensors if value is None else {**tensors, name: value})

    return poisoned(change)


def with_header(**values: Any) -> Callable[[Message], Message]:
    return poisoned(lambda u: Upload(u.header.model_copy(update=values), u.tensors))


def rolled(upload: Upload) -> Upload:
    """As many images, of other classes than those that the client was given."""
    counts = upload.tensors["label_counts"].roll(1)
    return Upload(upload.header, {**upload.tensors, "label_counts": counts})


def strange(reply: Message) -> Message:
    reply.content = RecordDict({"parts": ArrayRecord({"1": Array(np.zeros(3))})})
    return reply


def untyped(reply: Message) -> Message:
    reply.content["parts"] = ArrayRecord({"1": Array(np.zeros((2, 2)))})
    return reply


def not_json(reply: Message) -> Message:
    reply.content["accord"] = ConfigRecord({"json": "[" * 100})
    return reply


BAD: dict[str, tuple[Callable[[Message], Message | None], str]] = {
    "NaN": (with_tensor("feature_mean", torch.full((64,), torch.nan)), "holds NaN or infinity"),
    "a shape": (with_tensor("feature_mean", torch.zeros(3)), r"'feature_mean' should be \(64,\)"),
    "a tensor too few": (with_tensor("score_std", None), "found absent"),
    "a tensor too many": (with_tensor("more", torch.zeros(1)), "'more' should be absent"),
    "another name": (with_header(client="2"), "expected that of client 1 after epoch 1; found '2'"),
    "another epoch": (with_header(epoch=7), "found '1' after epoch 7"),
    "another briefing": (with_header(briefing="0" * 64), "answers another briefing"),
    "too many images": (
        with_tensor("label_counts", torch.tensor([37] + 9 * [0])),
        "label_counts should be",
    ),
    "other images": (poisoned(rolled), "expected the label counts"),
    "half an upload": (
        letter(lambda _, parts: parts.update({"1": parts["1"][:1000]})),
        "is not a whole upload",
    ),
    "a giant": (letter(lambda _, p: p.update({"1": b"0" * 9_000_000})), "expected about"),
    "no upload": (
        letter(lambda _, p: p.clear()),
        "expected uploads after the epochs 1; found none",
    ),
    "more uploads": (letter(lambda _, p: p.update({"x\x1b[2J": b""})), "found 1, x.\\[2J"),
    "an error": (letter(lambda t, _: t.update({"error": "a\x1b[31m\nb"})), r"a.\[31m b"),
    "no answer": (
        letter(lambda t, _: t.update({"peak_memory": "many"})),
        "its answer is no answer",
    ),
    "no letter": (strange, "holds no letter"),
    "other arrays": (untyped, "expected bytes; found float64"),
    "no JSON": (not_json, "Expecting|delimiter|line 1"),
    "silence": (lambda _: None, "did not answer within"),
}


def test_bad_answers_are_refused_by_name_and_the_round_goes_on(small: Raw, tmp_path: Path) -> None:
    for number, (what, (change, said)) in enumerate(BAD.items()):
        grid = Loop(nodes(tmp_path / "keep"), changes={11: change})
        out = tmp_path / str(number)
        failures, told = run(small, grid, out, min_clients=2)
        assert not failures, what
        found = report(out)
        assert found["answered"] == ["0", "2"], what
        assert re.search(said, found["failed"]["1"]), (what, found["failed"]["1"])
        assert any("client 1 failed in round 1, which went on" in line for line in told.lines), what
        assert all(line.isprintable() for line in told.lines), what
        (trial,) = Record(out).trials()
        assert not trial.round(1).upload("1", 1, last=True).exists(), what


def test_a_second_run_asks_only_the_clients_that_are_missing(small: Raw, tmp_path: Path) -> None:
    out = tmp_path / "run"
    grid = Loop(nodes(tmp_path / "keep"), changes={11: lambda _: None})
    failures, _ = run(small, grid, out)
    assert "client 1: it did not answer within" in str(failures)
    assert sorted(node for node, kind in grid.asked if kind == "train") == [10, 11, 12]
    again = Loop(nodes(tmp_path / "keep"))
    assert not run(small, again, out)[0]
    assert [node for node, kind in again.asked if kind == "train"] == [11]
    assert report(out)["answered"] == ["0", "1", "2"]


def test_nodes_are_known_by_their_registered_names(small: Raw, tmp_path: Path) -> None:
    """A node that claims another name than its registered one is refused, and so is a double."""
    config = nodes(tmp_path / "keep")
    registered = {10: "0", 11: "1", 12: "2"}
    grid = Loop(config, registered)
    assert not run(small, grid, tmp_path / "a")[0]
    assert all(kind == "train" for _, kind in grid.asked)
    config[12]["name"] = "0"
    failures, _ = run(small, Loop(config, registered), tmp_path / "b")
    assert "its node calls itself '0'; the server asks for '2'" in str(failures)
    failures, told = run(small, Loop(config), tmp_path / "c")
    assert "two nodes call themselves '0'; the second one is not asked" in told.lines
    assert "client 2: its node did not connect: the server waited 0 s" in str(failures)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"partition": False}, r"has no images: set data="),
        ({"data": "/nowhere"}, "/nowhere: expected a folder"),
        ({"device": "cuda:77"}, "'cuda:77' cannot be used"),
        ({"partition": "maybe"}, "'node.partition'"),
    ],
)
def test_a_nodes_own_mistakes_are_told_to_the_server(
    small: Raw, tmp_path: Path, change: Raw, said: str
) -> None:
    config = nodes(tmp_path / "keep")
    config[11] |= change
    failures, _ = run(small, Loop(config), tmp_path / "run")
    assert said in str(failures)


def test_another_version_is_refused(
    small: Raw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from accord.federation import remote

    monkeypatch.setattr(remote, "versions", lambda: {"accord": "9.9", "torch": "1"})
    failures, _ = run(small, Loop(nodes(tmp_path / "keep")), tmp_path / "run")
    assert "its node has accord 0.1.0, the server 9.9. Install the same one." in str(failures)


def test_too_many_clients_are_not_expected(small: Raw, tmp_path: Path) -> None:
    with pytest.raises(AccordError, match="min-clients: expected at most 3"):
        run(small, Loop(nodes(tmp_path / "keep")), tmp_path / "run", min_clients=4)
