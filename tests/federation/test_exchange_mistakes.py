"""Files that cannot be fused are named, and nothing is written; `--without` leaves them out."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import accord
from accord.cli import main
from accord.messages import Briefing, Upload

Raw = dict[str, Any]
Say = Callable[..., tuple[int, str]]
STUDY: Raw = {
    "name": "three",
    "data": {"classes": ["a", "b", "c"], "image": {"size": 8, "channels": 1}},
    "net": {"backbone": "conv4"},
    "budget": {"epochs": 1, "batch": 16},
    "recipes": ["ce-ensemble"],
}


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a briefing and the uploads of three clients, as a server receives them."""
    folder = tmp_path_factory.mktemp("sent")
    briefing = folder / "briefing.safetensors"
    accord.brief(STUDY, briefing, quiet=True)
    draws = np.random.default_rng(0)
    for name in ("north", "south", "west"):
        images = draws.integers(256, size=(12, 8, 8), dtype=np.uint8)
        np.savez(folder / f"{name}.npz", images=images, labels=np.arange(12) % 3)
        keep = folder / "keep"
        found = accord.answer(briefing, folder / f"{name}.npz", name, keep=keep)
        found.save(folder / f"{name}.safetensors")
    return folder


@pytest.fixture
def box(sent: Path, tmp_path: Path) -> Path:
    shutil.copytree(sent, tmp_path / "box")
    return tmp_path / "box"


@pytest.fixture
def say(box: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Say:
    """Runs a command in the folder and returns its exit code and all that it said."""
    monkeypatch.chdir(box)

    def said(*words: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["accord", *words])
        with pytest.raises(SystemExit) as end:
            main()
        found = capsys.readouterr()
        return int(end.value.code or 0), found.out + found.err

    return said


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.safetensors"))


def damaged(path: Path, **values: Any) -> None:
    upload = Upload.load(path)
    tensors = {**upload.tensors, **values.pop("tensors", {})}
    Upload(upload.header.model_copy(update=values), tensors).save(path)


def times(path: Path, factor: float) -> None:
    found = Upload.load(path).tensors
    nets = {n: t for n, t in found.items() if n.startswith("net.") and t.is_floating_point()}
    damaged(path, tensors={name: tensor * factor for name, tensor in nets.items()})


def replaced(path: Path, make: Callable[[Path], None]) -> None:
    path.unlink()
    make(path)


BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "half": (lambda p: p.write_bytes(p.read_bytes()[:5000]), "is not a whole upload"),
    "empty": (lambda p: p.write_bytes(b""), "is not a whole upload"),
    "text": (lambda p: p.write_text("hello" * 9), "is not a whole upload"),
    "gone": (lambda p: p.unlink(), "found no such file"),
    "a pipe": (lambda p: replaced(p, os.mkfifo), "found something that is no plain file"),
    "a folder": (lambda p: replaced(p, Path.mkdir), "found something that is no plain file"),
    "huge weights": (lambda p: times(p, 1e30), "its net gives NaN or infinity for images"),
    "another kind": (
        lambda p: p.write_bytes(p.read_bytes().replace(b'\\"upload\\"', b'\\"uplaod\\"', 1)),
        "expected one upload, found uplaod",
    ),
    "NaN": (
        lambda p: damaged(p, tensors={"feature_mean": torch.full((64,), torch.nan)}),
        "holds NaN or infinity",
    ),
    "a shape": (lambda p: damaged(p, tensors={"score_std": torch.zeros(2)}), "should be (3,)"),
    "zeros": (
        lambda p: damaged(
            p,
            tensors={
                name: torch.zeros_like(t)
                for name, t in Upload.load(p).tensors.items()
                if name.startswith("net.")
            },
        ),
        "every weight of its net is 0",
    ),
    "another briefing": (lambda p: damaged(p, briefing="0" * 64), "answers another briefing"),
    "another epoch": (lambda p: damaged(p, epoch=0), "expected an upload after epoch 1"),
    "no name": (lambda p: damaged(p, client=" "), "expected a name of up to 100"),
    "twice": (lambda p: damaged(p, client="north"), "would count twice"),
    "escapes": (lambda p: damaged(p, client="\x1b[31mred"), "expected a name of up to 100"),
}


def test_a_bad_upload_is_named_and_can_be_left_out(say: Say, box: Path) -> None:
    whole = (box / "west.safetensors").read_bytes()
    files = ["north.safetensors", "south.safetensors", "west.safetensors"]
    for what, (damage, said) in BAD.items():
        damage(box / "west.safetensors")
        code, told = say("fuse", "briefing.safetensors", *files, "--save", "model")
        assert (code, said in told, "west.safetensors" in told) == (2, True, True), (what, told)
        assert "--without" in told, what
        assert "\x1b" not in told, what
        assert not (box / "model").exists(), what
        words = ["fuse", "briefing.safetensors", *files, "--without", "west.safetensors"]
        code, told = say(*words, "--save", "model")
        assert code == 0, (what, told)
        assert "fused 2 uploads, 24 images" in told
        assert accord.Predictor.load(box / "model").header.nets == 2
        shutil.rmtree(box / "model")
        if (box / "west.safetensors").is_dir():
            (box / "west.safetensors").rmdir()
        (box / "west.safetensors").unlink(missing_ok=True)
        (box / "west.safetensors").write_bytes(whole)


def test_what_a_shell_names_besides_uploads_is_passed_over(say: Say, box: Path) -> None:
    shutil.copy(box / "briefing.safetensors", box / "other.safetensors")
    code, told = say("fuse", *names(box)[:1], *names(box), "--save", "model")
    assert code == 0, told
    assert "other.safetensors is a briefing and not an upload: it is passed over" in told
    assert "briefing.safetensors is" not in told
    assert "fused 3 uploads, 36 images" in told
    for name in ("west", "west.safetensors", "./west.safetensors"):
        code, told = say(
            "fuse", *names(box)[:1], *names(box), "--without", name, "--test", "west.npz"
        )
        assert code == 0, told
        assert "north, south\n" in told
        assert f"left out: {name}" in told


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "nothing to do: say where the model is saved"),
        (["--save", "model", "--without", "east"], "no upload of this client, and no file"),
        (["--save", "keep"], "is no part of a saved model"),
        (["--save", "model", "--fusion", "ridge"], "it fuses sums, but the clients"),
        (["--save", "model", "--fusion", "client-mean"], "is a reference and makes no model"),
        (["--save", "model", "--fusion", "nonsense"], "unknown fusion 'nonsense'"),
        (["--save", "m", "--fusion", "outputs", "--fusion", "outputs"], "was named twice"),
        (["--next", "b2.safetensors"], "round 1 of 1, the last one"),
        (["--test", "nowhere"], "--test nowhere: expected a folder"),
        (["--save", "model", "--public", "briefing.safetensors"], "--public briefing.safetensors"),
        (["--save", "model", "--validation", "nowhere"], "--validation nowhere: expected a folder"),
        (["--save", "model", "--trial", "x"], "--trial: this is for a run directory"),
        (["--save", "model", "--workers", "2"], "--workers: this is for a run directory"),
    ],
)
def test_mistakes_on_the_command_line(say: Say, box: Path, words: list[str], said: str) -> None:
    uploads = ["north.safetensors", "south.safetensors", "west.safetensors"]
    before = sorted(box.rglob("*"))
    code, told = say("fuse", "briefing.safetensors", *uploads, *words)
    assert (code, said in told) == (2, True), told
    assert sorted(box.rglob("*")) == before


def test_a_run_takes_no_files(say: Say, box: Path) -> None:
    (box / "run").mkdir()
    for words in (
        ["x.safetensors"],
        ["--next", "b"],
        ["--test", "t"],
        ["--clients", "3"],
        ["--validation", "t"],
    ):
        code, told = say("fuse", "run", *words, "--fusion", "outputs")
        assert code == 2
        assert "this is for a briefing and uploads" in told
    code, told = say("fuse", "north.safetensors", "--save", "m")
    assert (code, "found the message 'upload'" in told) == (2, True)


def test_only_the_clients_that_answered_are_known(say: Say, box: Path) -> None:
    """A class that no client holds is told; a model without the server's file has no next round."""
    for name in ("north", "south"):
        images = np.load(box / f"{name}.npz")["images"]
        np.savez(box / f"{name}.npz", images=images, labels=np.arange(12) % 2)
        found = accord.answer(box / "briefing.safetensors", box / f"{name}.npz", name, keep=box)
        found.save(box / f"{name}.safetensors")
    words = ["north.safetensors", "south.safetensors", "--save", "model"]
    code, told = say("fuse", "briefing.safetensors", *words)
    assert code == 0
    assert "no client has images of c: the model cannot recognise them" in told


def test_a_lost_file_of_the_server_is_asked_for(say: Say, box: Path) -> None:
    study = {**STUDY, "recipes": ["fedavg"], "rounds": {"count": 2}}
    written = accord.brief(study, box / "r1.safetensors", quiet=True)
    assert written.server == box / "r1.server.safetensors"
    found = accord.answer(written.path, box / "north.npz", "north", keep=box / "keep")
    found.save(box / "n1.safetensors")
    written.server.rename(box / "mine")
    code, told = say("fuse", "r1.safetensors", "n1.safetensors", "--next", "r2.safetensors")
    assert (code, "expected the server's own file of this round" in told) == (2, True)
    accord.brief({**study, "seeds": [1]}, box / "r9.safetensors", quiet=True)
    shutil.copy(box / "r9.server.safetensors", written.server)
    code, told = say("fuse", "r1.safetensors", "n1.safetensors", "--next", "r2.safetensors")
    assert (code, "belongs to another briefing" in told) == (2, True)
    assert not (box / "r2.safetensors").exists()
    (box / "mine").rename(written.server)
    code, told = say("fuse", "r1.safetensors", "n1.safetensors", "--next", "r1.safetensors")
    assert (code, "is a file of this round" in told) == (2, True)
    code, _ = say("fuse", "r1.safetensors", "n1.safetensors", "--next", "r2.safetensors")
    assert code == 0


def test_show_explains_every_file(say: Say, box: Path) -> None:
    code, told = say("show", "briefing.safetensors")
    assert code == 0
    for line in ("recipe: ce-ensemble", "classes: 3: a, b, c", "round: 1 of 1", "sha256: "):
        assert line in told
    assert "train conv4 (batch norm, head linear) for 1 epochs, batch 16, lr 0.05" in told
    code, told = say("show", "north.safetensors")
    for line in (
        "client: north",
        "images of each class: 4, 4, 4",
        "The client has 12 images, of 3 of 3 classes, and the exact number of each class.",
        "3 of its classes have fewer than 5 images: their mean features are close to",
        "No image is in the file.",
    ):
        assert line in told
    code, told = say("show", "north.safetensors", "--json")
    found = json.loads(told)
    content = (box / "north.safetensors").read_bytes()
    assert found["sha256"] == hashlib.sha256(content).hexdigest()
    assert found["bytes"] == len(content)
    damaged(box / "west.safetensors", client="\x1b[31mred\n")
    code, told = say("show", "west.safetensors")
    assert code == 0
    assert "\x1b" not in told
    say("fuse", "briefing.safetensors", "north.safetensors", "--save", "model")
    code, told = say("show", "model")
    assert "nets: 1 × conv4" in told
    assert "clients   north" in told
    for strange in ("north.npz", "nowhere", "keep"):
        code, told = say("show", strange)
        assert code == 2, strange
        assert "expected a briefing, an upload" in told or "is no saved model" in told


def changed(path: Path, to: Path, **header: Any) -> Path:
    """A briefing with other values in its header, as a stranger might write it."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    top = json.loads(content[8 : 8 + length])
    about = json.loads(top["__metadata__"]["accord"])
    about["header"] |= header
    top["__metadata__"]["accord"] = json.dumps(about)
    text = json.dumps(top).encode()
    to.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + length :])
    return to


def test_a_briefing_reaches_no_other_folder_of_a_client(say: Say, box: Path) -> None:
    """Neither through the name of its federation nor through that of the client."""
    own = box / "victim" / "now"
    (own / "uploads").mkdir(parents=True)
    (own / "uploads" / "mine.txt").write_text("mine")
    (own / "images.json").write_text("{}")
    old = box / "victim" / "old"
    old.mkdir()
    (old / "images.json").write_text("{}")
    os.utime(old / "images.json", (0, 0))
    for first in (f"{'../' * 3}victim/now", str(own), "x" * 64, "0" * 63):
        evil = changed(
            box / "briefing.safetensors", box / "evil.safetensors", round=2, rounds=2, first=first
        )
        words = ["answer", str(evil), "north.npz", "--name", "x", "--out", "o.safetensors"]
        code, told = say(*words, "--keep", "kept/deep/down")
        assert code == 2, told
        assert "'first'" in told or "first" in told
    for name in (".", "..", "../x"):
        words = ["answer", "briefing.safetensors", "north.npz", "--name", name]
        code, _ = say(*words, "--out", "o.safetensors", "--keep", "kept/down")
        assert code == 0
        (box / "o.safetensors").unlink()
    assert sorted(path.name for path in (box / "kept").iterdir()) == ["down"]
    assert len(list((box / "kept/down").iterdir())) == 3
    assert (own / "uploads" / "mine.txt").read_text() == "mine"
    assert (old / "images.json").exists()


def test_absurd_briefings_are_refused(say: Say, box: Path) -> None:
    absurd: list[Raw] = [
        {"height": 10**6},
        {"width": 10**30},
        {"channels": 4},
        {"classes": ["x"]},
        {"mean": [0.3, 0.3]},
        {"std": [1e-40]},
        {"mean": [1e38]},
        {"budget": {"epochs": 10**9, "batch": 1}},
    ]
    for values in absurd:
        evil = changed(box / "briefing.safetensors", box / "evil.safetensors", **values)
        for words in (["show", str(evil)], ["answer", str(evil), "north.npz"]):
            more = ["--name", "x", "--out", "o.safetensors"] if words[0] == "answer" else []
            code, told = say(*words, *more)
            assert (code, "Traceback" in told) == (2, False), (values, told)
    whole = Briefing.load(box / "briefing.safetensors")
    weights = [name for name, tensor in whole.tensors.items() if tensor.ndim > 1]
    for first in ("net.head.prototypes", weights[0]):
        for change in ("gone", "flat", "nan"):
            bad = dict(whole.tensors)
            if change == "gone":
                del bad[first]
            elif change == "flat":
                bad[first] = bad[first].flatten()
            else:
                bad[first] = torch.full_like(bad[first], torch.nan)
            Briefing(whole.header, bad).save(box / "evil.safetensors")
            words = ["answer", "evil.safetensors", "north.npz", "--name", "x"]
            code, told = say(*words, "--out", "o.safetensors")
            assert code == 2, (first, change, told)
            code, told = say("show", "evil.safetensors")
            assert code in (0, 2), (first, change, told)
    assert not (box / "o.safetensors").exists()


def test_other_clients_and_other_briefings_are_not_written_over(say: Say, box: Path) -> None:
    before = (box / "south.safetensors").read_bytes()
    words = ["answer", "briefing.safetensors", "north.npz", "--name", "north"]
    code, told = say(*words, "--out", "south.safetensors")
    assert (code, "it holds the upload of client south, which would be lost" in told) == (2, True)
    assert (box / "south.safetensors").read_bytes() == before
    code, _ = say(*words, "--out", "north.safetensors")
    assert code == 0
    (box / "study.yaml").write_text(json.dumps(STUDY))
    code, _ = say("brief", "study.yaml", "--out", "briefing.safetensors")
    assert code == 0  # the same briefing again
    sent = (box / "briefing.safetensors").read_bytes()
    code, told = say("brief", "study.yaml", "seeds=[7]", "--out", "briefing.safetensors")
    assert (code, "holds another briefing" in told) == (2, True)
    assert (box / "briefing.safetensors").read_bytes() == sent


def test_a_folder_that_cannot_be_made_is_told_in_a_sentence(say: Say) -> None:
    words = ["answer", "briefing.safetensors", "north.npz", "--name", "x", "--out", "o.safetensors"]
    for keep in ("north.npz", "/proc/nowhere"):
        code, told = say(*words, "--keep", keep)
        assert (code, "Traceback" in told, "accord: " in told) == (2, False, True), told
    code, told = say("flower", "keys", "/proc/nowhere", "--host", "a", "--client", "b")
    assert (code, "Traceback" in told) == (2, False), told


def test_a_copy_and_other_images_in_a_later_round_are_refused(say: Say, box: Path) -> None:
    """One client under two names, and a client that comes back with other images."""
    shutil.copy(box / "north.safetensors", box / "copy.safetensors")
    damaged(box / "copy.safetensors", client="copy")
    words = ["fuse", "briefing.safetensors", "north.safetensors", "copy.safetensors"]
    code, told = say(*words, "--save", "model")
    assert (code, "clients north and copy sent the same weights" in " ".join(told.split())) == (
        2,
        True,
    )
    code, _ = say(*words, "--save", "model", "--without", "copy")
    assert code == 0
    study = {**STUDY, "recipes": ["fedavg"], "rounds": {"count": 2}}
    accord.brief(study, box / "r1.safetensors", quiet=True)
    found = accord.answer(box / "r1.safetensors", box / "north.npz", "north", keep=box / "keep")
    found.save(box / "n1.safetensors")
    assert say("fuse", "r1.safetensors", "n1.safetensors", "--next", "r2.safetensors")[0] == 0
    images = np.load(box / "north.npz")["images"]
    np.savez(box / "other.npz", images=images, labels=np.arange(12) % 2)
    for data, code in (("other", 2), ("north", 0)):
        made = accord.answer(
            box / "r2.safetensors", box / f"{data}.npz", "north", keep=box / "keep"
        )
        made.save(box / "n2.safetensors")
        done, told = say("fuse", "r2.safetensors", "n2.safetensors", "--save", f"m-{data}")
        assert done == code, told
        assert ("sent the label counts [4, 4, 4] in the round before" in told) == (code == 2)
