"""Uploads that arrive in a run, or lie there before it: copies and other images are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import accord
from accord.core.errors import AccordError
from accord.messages import Upload
from accord.record.record import Record
from records import contents, timeless

Raw = dict[str, Any]


@pytest.fixture
def study(study: Raw) -> Raw:
    study |= {"recipes": ["ce-ensemble"], "references": False}
    study["budget"] = {"epochs": 1, "batch": 32}
    return study


def messages(run: Path) -> dict[str, bytes]:
    return {name: found for name, found in contents(run).items() if name.endswith(".safetensors")}


def test_two_runs_write_the_same_messages(study: Raw, tmp_path: Path) -> None:
    study |= {"recipes": ["scaffold", "closed-form-small"], "rounds": {"count": 2}}
    study["keep_checkpoints"] = True
    for name in ("one", "two"):
        accord.run(study, out=tmp_path / name, workers=1, quiet=True)
    one, two = messages(tmp_path / "one"), messages(tmp_path / "two")
    assert len(one) > 15
    assert [name for name in one if one[name] != two[name]] == []
    assert one.keys() == two.keys()
    assert timeless(tmp_path / "one") == timeless(tmp_path / "two")


def begin_again(run: Path) -> None:
    """As if the run had been killed after the answers, before anything was measured."""
    (trial,) = Record(run).trials()
    (trial.path / "measures.json").unlink()
    info = trial.info()
    (trial.path / "trial.json").write_text(json.dumps({**info, "status": "running"}))


def test_bad_uploads_in_a_record_are_asked_for_again(study: Raw, tmp_path: Path) -> None:
    accord.run(study, out=tmp_path, workers=1, quiet=True)
    (trial,) = Record(tmp_path).trials()
    before, rows = messages(tmp_path), timeless(tmp_path)
    path = trial.round(1).upload("1", 1, last=True)
    good = Upload.load(path)
    counts = good.tensors["label_counts"]
    more = good.header.model_copy(update={"samples": 10 * good.header.samples})
    bad = {
        "ten times the images": Upload(more, {**good.tensors, "label_counts": 10 * counts}),
        "cosines": Upload(
            good.header, {**good.tensors, "score_mean": good.tensors["score_mean"] - 3}
        ),
    }
    for what, upload in bad.items():
        upload.save(path)
        with pytest.raises(AccordError, match="client-1"):
            accord.fuse(tmp_path, ["classwise"], workers=1, quiet=True)
        begin_again(tmp_path)
        accord.run(study, out=tmp_path, workers=1, quiet=True)
        assert timeless(tmp_path) == rows, what
        assert {n: c for n, c in messages(tmp_path).items() if "refused" not in n} == before, what


def test_a_copy_is_refused_unless_the_study_gives_out_copies(study: Raw, tmp_path: Path) -> None:
    study["recipes"] = ["closed-form-small"]
    study["partition"] = {"scheme": "copies", "clients": 2}
    results = accord.run(study, out=tmp_path / "copies", workers=1, quiet=True)
    assert not results.failures
    study["partition"] = {"alpha": 0.5, "clients": 3}
    accord.run(study, out=tmp_path / "run", workers=1, quiet=True)
    (trial,) = Record(tmp_path / "run").trials()
    own = Upload.load(trial.round(1).upload("0", 1, last=True))
    copy = Upload(own.header.model_copy(update={"client": "new"}), own.tensors)
    copy.save(tmp_path / "copy.safetensors")
    with pytest.raises(AccordError, match="clients 0 and new sent the same weights or sums"):
        accord.fuse(
            tmp_path / "run", ["ridge"], add=[tmp_path / "copy.safetensors"], workers=1, quiet=True
        )
