"""A federation by files gives the tensors of the local engine, round by round."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch

import accord
from accord.client.base import Tell
from accord.client.telemetry import Event
from accord.client.training import Training
from accord.core.errors import AccordError
from accord.data.allocation import open_allocation
from accord.federation.exchange.brief import server_file
from accord.federation.tasks import answer as answering
from accord.messages import Briefing, Memory, ServerState, Upload
from accord.record.folders import TrialFolder
from accord.record.record import Record
from tests_support import same

Raw = dict[str, Any]


def images(record: Path, folder: Path) -> dict[str, Path]:
    """The images of every client of a record, as the files that clients would have."""
    (path,) = record.glob("allocations/*.json")
    allocation = open_allocation(path)
    folder.mkdir(exist_ok=True)
    found = {}
    for index, name in enumerate(allocation.partition.names):
        data = allocation.client(index)
        found[name] = folder / f"{name}.npz"
        np.savez(found[name], images=data.images[data.rows], labels=data.labels)
    return found


def part_images(record: Path, path: Path, part: Literal["test", "validation"] = "test") -> Path:
    (found,) = record.glob("allocations/*.json")
    data = open_allocation(found).part(part)
    np.savez(path, images=data.images[data.rows], labels=data.labels)
    return path


def only(record: Path) -> TrialFolder:
    (trial,) = Record(record).trials()
    return trial


def exchange(
    briefing: Path, clients: dict[str, Path], folder: Path, keep: Path | None = None
) -> dict[str, Path]:
    """One exchange: every client answers the briefing with a file."""
    folder.mkdir(exist_ok=True)
    sent = {}
    for name, file in clients.items():
        sent[name] = folder / f"{name}.safetensors"
        accord.answer(briefing, file, name, keep=keep or folder / "keep").save(sent[name])
    return sent


@pytest.mark.parametrize("recipe", ["etf-attenuated", "closed-form-small"])
def test_uploads_and_model_are_those_of_the_local_engine(
    study: Raw, tmp_path: Path, recipe: str
) -> None:
    study["recipes"] = [recipe]
    run = tmp_path / "run"
    accord.run(study, out=run, workers=1, quiet=True)
    out = tmp_path / "briefing.safetensors"
    written = accord.brief(study, out, record=tmp_path / "record", quiet=True)
    assert written.server is None
    inside = Briefing.load(only(run).briefing)
    assert same(written.briefing.tensors, inside.tensors)
    sent = exchange(written.path, images(run, tmp_path / "images"), tmp_path / "sent")
    for name, path in sent.items():
        local = Upload.load(only(run).round(1).upload(name, 0, last=True))
        assert same(Upload.load(path).tensors, local.tensors), name
    label = accord.load(run).rows[0]["fusion"]
    accord.fuse(run, [label], save=tmp_path / "a", workers=1, quiet=True)
    test = part_images(run, tmp_path / "test.npz")
    fused = accord.fuse_files(written.path, list(sent.values()), [], save=tmp_path / "b", test=test)
    assert fused.metrics[label].accuracy == accord.load(run).rows[-1]["accuracy"]
    pixels = np.load(test)["images"]
    one, other = (accord.Predictor.load(tmp_path / name).scores(pixels) for name in "ab")
    assert torch.equal(one, other)


@pytest.mark.parametrize("recipe", ["fedavg", "scaffold"])
def test_several_rounds_are_those_of_the_local_engine(
    study: Raw, tmp_path: Path, recipe: str
) -> None:
    """SCAFFOLD's clients keep their control variates, and the server keeps its own."""
    study |= {"recipes": [recipe], "rounds": {"count": 3}, "keep_checkpoints": True}
    run, keep = tmp_path / "run", tmp_path / "keep"
    accord.run(study, out=run, workers=1, quiet=True)
    clients = images(run, tmp_path / "images")
    at = accord.brief(study, tmp_path / "b1.safetensors", quiet=True)
    for number in (1, 2, 3):
        assert (at.briefing.header.round, at.briefing.header.rounds) == (number, 3)
        assert (at.briefing.header.first is None) == (number == 1)
        sent = exchange(at.path, clients, tmp_path / f"sent-{number}", keep)
        folder = only(run).round(number)
        for name, path in sent.items():
            local = Upload.load(folder.upload(name, 0, last=True))
            assert same(Upload.load(path).tensors, local.tensors), (number, name)
        if number < 3:
            following = tmp_path / f"b{number + 1}.safetensors"
            found = accord.fuse_files(at.path, list(sent.values()), [], following=following)
            assert found.following is not None
            at = found.following
            state = ServerState.load(server_file(following))
            own = ServerState.load(only(run).round(number + 1).server_state)
            assert same(state.tensors, own.tensors)
    kept = list(keep.rglob("memory/*.safetensors"))
    assert bool(kept) == (recipe == "scaffold")
    assert all(Memory.load(path).header.round < 3 for path in kept)
    with pytest.raises(AccordError, match="round 3 of 3, the last one"):
        accord.fuse_files(at.path, [], [], following=tmp_path / "b4.safetensors")


def test_an_interrupted_client_continues(
    study: Raw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study["budget"] = {"epochs": 4, "batch": 32}
    run = tmp_path / "run"
    accord.run(study, out=run, workers=1, quiet=True)
    clients = images(run, tmp_path / "images")
    written = accord.brief(study, tmp_path / "briefing.safetensors", quiet=True)
    monkeypatch.setattr(answering, "SAVE_EVERY", 0)
    trained: list[int] = []
    whole = Training.run_epoch

    def counted(self: Training, tell: Tell | None = None) -> Event:
        trained.append(self.epoch)
        if len(trained) == 3:
            raise KeyboardInterrupt
        return whole(self, tell)

    monkeypatch.setattr(Training, "run_epoch", counted)
    with pytest.raises(KeyboardInterrupt):
        accord.answer(written.path, clients["1"], "1", keep=tmp_path / "keep")
    assert trained == [0, 1, 2]
    told: list[str] = []
    found = accord.answer(written.path, clients["1"], "1", told.append, keep=tmp_path / "keep")
    assert trained == [0, 1, 2, 2, 3]
    assert any("continues after an interruption, with 50% done" in line for line in told)
    local = Upload.load(only(run).round(1).upload("1", 0, last=True))
    assert same(found.tensors, local.tensors)
    # A second answer needs no training; with other images everything is done again.
    again = accord.answer(written.path, clients["1"], "1", keep=tmp_path / "keep")
    assert same(again.tensors, found.tensors)
    assert len(trained) == 5
    other = accord.answer(written.path, clients["2"], "1", keep=tmp_path / "keep")
    assert trained[5:] == [0, 1, 2, 3]
    assert not same(other.tensors, found.tensors)


def test_a_later_federation_starts_from_a_saved_model(study: Raw, tmp_path: Path) -> None:
    study["recipes"] = ["fedavg-once"]
    run, model = tmp_path / "run", tmp_path / "model"
    accord.run(study, out=run, workers=1, quiet=True)
    accord.fuse(run, ["average"], save=model, workers=1, quiet=True)
    out = tmp_path / "briefing.safetensors"
    written = accord.brief(study, out, start_from=model, quiet=True)
    saved = accord.Predictor.load(model).weights(0)
    sent = {name.removeprefix("net."): t for name, t in written.briefing.tensors.items()}
    assert same(sent, saved)
    accord.fuse(run, ["outputs"], save=tmp_path / "three", workers=1, quiet=True)
    mistakes: dict[str, Raw] = {
        "expected a model of one trained net; found 3 nets": {"start_from": tmp_path / "three"},
        "the model has net": {"start_from": model, "overrides": ["net.backbone=resnet10"]},
        "the model has classes": {"start_from": model, "overrides": ["data.classes=['1','2']"]},
        "is no saved model": {"start_from": tmp_path},
    }
    for said, options in mistakes.items():
        with pytest.raises(AccordError, match=said):
            accord.brief(study, out, quiet=True, **options)


def test_a_server_without_images_briefs(study: Raw, tmp_path: Path) -> None:
    study["data"] = {"classes": ["cat", "dog"], "image": 16}
    out = tmp_path / "briefing.safetensors"
    header = accord.brief(study, out, quiet=True).briefing.header
    assert (header.height, header.width, header.channels) == (16, 16, 3)
    assert header.classes == ("cat", "dog")
    assert header.origin is not None
    assert (header.origin.study, header.origin.recipe) == ("tiny", "fafi")
    mistakes: dict[str, Raw] = {
        "Set data.classes to their names": {"data": {"image": 16}},
        "and data.image to their size": {"data": {"classes": ["cat", "dog"]}},
        "'data.public': expected null, because the server has no images": {
            "data": {**study["data"], "public": 0.1}
        },
        "expected names that differ": {"data": {"classes": ["cat", "cat"], "image": 16}},
        "found 4. Choose one: add recipes=.fafi. .* and seeds=.0.": {
            "recipes": ["fafi", "ce-ensemble"],
            "seeds": [0, 1],
        },
        "one value for every other key": {"budget": {"epochs": [1, 2]}},
        "only references": {"recipes": ["local-only"]},
        "its map needs public images": {"recipes": ["closed-form-public"]},
    }
    for said, change in mistakes.items():
        with pytest.raises(AccordError, match=said):
            accord.brief({**study, **change}, out, quiet=True)
    # A grid over partitions is one trial here, because the clients' images are elsewhere.
    accord.brief({**study, "partition": {"alpha": [0.1, 0.5]}}, out, quiet=True)
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(AccordError, match=r"mine\.txt exists and is no briefing"):
        accord.brief(study, tmp_path / "mine.txt", quiet=True)
    assert (tmp_path / "mine.txt").read_text() == "mine"
    with pytest.raises(AccordError, match="no images to distribute"):
        accord.run(study, out=tmp_path / "run", workers=1, quiet=True)


def test_public_images_serve_the_briefing_and_the_fusion(study: Raw, tmp_path: Path) -> None:
    """A teacher and a bank are made before the briefing, in a record of their own."""
    study |= {"recipes": ["public-negatives"], "data": {**study["data"], "public": 0.3}}
    out, record = tmp_path / "briefing.safetensors", tmp_path / "record"
    study["recipes"] = [{"use": "public-negatives", "bank": {"teacher_epochs": 1}, "as": "bank"}]
    written = accord.brief(study, out, record=record, quiet=True)
    run = tmp_path / "run"
    accord.run(study, out=run, workers=1, quiet=True)
    assert same(written.briefing.tensors, Briefing.load(only(run).briefing).tensors)
    assert "bank.features" in written.briefing.tensors
    assert len(list(record.glob("teachers/*"))) == 1
    sent = list(exchange(out, images(run, tmp_path / "images"), tmp_path / "sent").values())
    with pytest.raises(AccordError, match="give such images with --public"):
        accord.fuse_files(out, sent, ["distilled"], save=tmp_path / "model")
    student = {"use": "distilled", "epochs": 1}
    public = part_images(run, tmp_path / "public.npz")
    accord.fuse_files(out, sent, [student], save=tmp_path / "model", public=public)
    assert accord.Predictor.load(tmp_path / "model").header.nets == 1


def test_validation_images_serve_the_fusion(study: Raw, tmp_path: Path) -> None:
    """Without any, the recipe's other fusions are used, and a fusion that was named is refused."""
    recipe = {"use": "closed-form-small", "fusion": ["ridge-calibrated", "ridge"], "as": "both"}
    study |= {"recipes": [recipe], "data": {**study["data"], "validation": 0.2}}
    run, out, model = tmp_path / "run", tmp_path / "briefing.safetensors", tmp_path / "model"
    accord.run(study, out=run, workers=1, quiet=True)
    accord.brief(study, out, record=tmp_path / "record", quiet=True)
    sent = list(exchange(out, images(run, tmp_path / "images"), tmp_path / "sent").values())
    test = part_images(run, tmp_path / "test.npz")
    held = part_images(run, tmp_path / "held.npz", "validation")

    found = accord.fuse_files(out, sent, [], test=test, validation=held, save=model)
    expected = {row["fusion"]: row["ece"] for row in accord.load(run).rows}
    assert {name: metrics.ece for name, metrics in found.metrics.items()} == expected
    assert expected["ridge-calibrated"] != expected["ridge"]
    pixels = np.load(test)["images"]
    accord.fuse(run, ["ridge-calibrated"], save=tmp_path / "inside", workers=1, quiet=True)
    one, other = (
        accord.Predictor.load(path).scores(pixels) for path in (model, tmp_path / "inside")
    )
    assert torch.equal(one, other)

    told: list[str] = []
    found = accord.fuse_files(out, sent, [], test=test, tell=told.append)
    assert [*found.metrics] == ["ridge"]
    assert any("'ridge-calibrated' is left out" in line for line in told)
    with pytest.raises(AccordError, match="Give such images with --validation"):
        accord.fuse_files(out, sent, ["ridge-calibrated"], test=test)
    with pytest.raises(AccordError, match="are the same images"):
        accord.fuse_files(out, sent, [], test=test, validation=test)
