"""Relative paths in a study are meant from where they are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from accord.study.paths import absolute_recipe


def absolute_source(bank: object, folder: Path) -> object:
    """The `bank` of a recipe that stands in `folder`."""
    return absolute_recipe({"bank": bank}, folder)["bank"]


def test_a_relative_source_is_meant_from_the_folder_of_its_file(tmp_path: Path) -> None:
    spec = {"size": 5, "source": "runs/before"}
    found = absolute_source(spec, tmp_path)
    assert found == {"size": 5, "source": str(tmp_path / "runs" / "before")}
    assert spec["source"] == "runs/before"  # the caller's own is left alone


def test_a_relative_source_from_a_relative_folder_becomes_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = absolute_source({"source": "before"}, Path("studies"))
    assert found == {"source": str(tmp_path / "studies" / "before")}


def test_a_source_that_is_absolute_or_at_home_stays_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("USERPROFILE", str(tmp_path / "home"))
    away = tmp_path / "away"
    assert absolute_source({"source": str(away)}, Path("x")) == {"source": str(away)}
    expected = {"source": str(tmp_path / "home" / "runs")}
    assert absolute_source({"source": "~/runs"}, Path("x")) == expected


@pytest.mark.parametrize("spec", [None, "bank", {}, {"size": 5}, {"source": None}, {"source": 3}])
def test_whatever_has_no_source_stays_as_it_is(spec: object, tmp_path: Path) -> None:
    assert absolute_source(spec, tmp_path) == spec
