"""The tutorial of a federation by files, run exactly as it is written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pages import commands, follow, page

PAGE = page("files.md")


def test_the_tutorial_does_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(commands(PAGE)) > 15
    said = follow(PAGE, tmp_path, monkeypatch, capsys)
    assert (tmp_path / ".local/state/accord/north").is_dir()
    accuracy = re.search(r"classwise +([0-9.]+)", said)
    assert accuracy is not None
    assert float(accuracy[1]) > 80  # three clinics with a few digits each know all of them
