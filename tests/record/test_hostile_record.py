"""Records with damaged files: every reader says which file, and where in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from accord.core.errors import AccordError
from accord.record.folders import TrialFolder
from accord.record.record import Record
from accord.report.evidence import read_evidence
from accord.report.results import load
from written_runs import over_epochs, trial, write_run

ODD: tuple[Any, ...] = ("text", None, True, -1, [], {}, float("inf"), 10**400)


def test_values_of_the_wrong_kind_are_refused(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [trial("fafi", 0, over_epochs(0.5, 0.6))])
    (folder,) = Record(run).trials()
    load(run)
    keys = {"measures.json": ("accuracy", "epoch", "round"), "trial.json": ("seed", "recipe")}
    for name, names in keys.items():
        path = folder.path / name
        text = path.read_text()
        for key in names:
            for value in ODD:
                allowed = key == "recipe" and isinstance(value, str)
                path.write_text(json.dumps(_with(json.loads(text), key, value)))
                if allowed:
                    continue
                with pytest.raises(AccordError, match=name) as refused:
                    load(run)
                assert len(str(refused.value)) < 500
                assert read_evidence([run])[0].missing
        for content in ("", "{", "[]", "5", "[" * 3000, "\0", "é".encode().decode("latin-1") * 3):
            path.write_text(content)
            with pytest.raises(AccordError, match=name):
                load(run)
        path.write_text(text)


def _with(content: Any, key: str, value: Any) -> Any:
    """`content` with another value at `key`, wherever it occurs."""
    if isinstance(content, dict):
        return {k: value if k == key else _with(v, key, value) for k, v in content.items()}
    return [_with(one, key, value) for one in content] if isinstance(content, list) else content


def test_a_broken_line_of_events_is_named_and_a_torn_one_is_not_read(tmp_path: Path) -> None:
    folder = TrialFolder(tmp_path)
    good = json.dumps({"client": "a", "epoch": 1, "loss": float("nan")})
    folder.events.write_text(f'{good}\n{good}\n{{"client": "a", "ep')
    assert len(folder.read_events()) == 2
    (tmp_path / "trial.json").write_text('{"status": "finished"}')
    with pytest.raises(AccordError, match="its last line is incomplete"):
        folder.read_events()
    (tmp_path / "trial.json").unlink()
    for bad in ("{", "[]", "5", "[" * 3000, '{"client": 5, "epoch": 1}', '{"client": "a"}', "\0"):
        folder.events.write_text(f"{good}\n{bad}\n{good}\n")
        with pytest.raises(AccordError, match="line 2"):
            folder.read_events()
    folder.events.write_bytes(b"\xff\n")
    with pytest.raises(AccordError, match="UTF-8"):
        folder.read_events()


def test_a_damaged_study_of_a_record_is_refused(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [trial("fafi", 0, over_epochs(0.5))])
    for content in (
        b"",
        b"[",
        b"\xff",
        b"a: " + b"[" * 3000,
        b"a: 1",
        b"recipes: 5",
        b"a: &a [*a]",
    ):
        (run / "study.yaml").write_bytes(content)
        with pytest.raises(AccordError, match=r"study\.yaml"):
            Record(run).asked()
