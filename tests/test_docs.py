"""The documentation speaks of what is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.main import get_command

from accord.cli import app
from accord.core.config import keys
from accord.data.augmentations import augmentations
from accord.data.inventory import inventory
from accord.data.schemes import schemes
from accord.nets.backbones.base import backbones
from accord.record.rows import COLUMNS
from accord.record.site_rows import SITE_COLUMNS
from accord.study.settings import Options, Setup
from accord.study.study import load_study
from tests_support import training_recipe

ROOT = Path(__file__).resolve().parents[1]
STUDY = (ROOT / "docs/study.md").read_text()
RECORD = (ROOT / "docs/record.md").read_text()
README = (ROOT / "README.md").read_text()


def test_every_key_of_a_study_is_explained() -> None:
    for key in keys(Options):
        assert f"`{key}`" in STUDY
    for section in keys(Setup):
        model = Setup.model_fields[section].annotation
        assert isinstance(model, type)
        for key in model.model_fields:
            assert re.search(rf"`({section}\.)?{key}`", STUDY), f"{section}.{key}"


def test_every_choice_is_named() -> None:
    for name in (*backbones.names(), *schemes.names(), *augmentations.names()):
        assert f"`{name}`" in STUDY, name
    for entry in inventory(ROOT):
        assert entry.name in README, entry.name


def test_every_column_is_explained() -> None:
    for column in (*COLUMNS, *SITE_COLUMNS):
        assert f"`{column}`" in RECORD, column


def test_every_command_is_in_the_readme() -> None:
    for name in get_command(app).commands:  # type: ignore[attr-defined]
        assert f"`accord {name}" in README


@pytest.mark.parametrize("path", sorted((ROOT / "studies").glob("*.yaml")), ids=lambda p: p.name)
def test_every_study_that_comes_along_is_valid(path: Path) -> None:
    assert load_study(path).trials()


def test_the_study_and_the_recipe_shown_are_valid(tmp_path: Path) -> None:
    (tmp_path / "shown.yaml").write_text(block(README, "name: skew"))
    assert len(load_study(tmp_path / "shown.yaml").trials()) == 2 * 3 * 3 + 2 * 3 + 3
    (tmp_path / "mine.yaml").write_text(block(STUDY, "name: mine"))
    recipe = training_recipe("mine.yaml", tmp_path)
    assert "separation" not in recipe.objective
    (tmp_path / "two.yaml").write_text(block(STUDY, "name: two"))
    balances = {
        name: term["balance"] for name, term in training_recipe("two.yaml", tmp_path).align.items()
    }
    assert (balances["anchors"]["use"], balances["contrast"]["use"]) == ("entropy", "curriculum")
    assert recipe.align["anchors"]["balance"] == {
        "use": "fixed",
        "lambda": 1.0,
        "attenuation": "constant",
    }
    shown = block((ROOT / "docs/bank.md").read_text(), "name: all-of-it")
    (tmp_path / "all-of-it.yaml").write_text(shown)
    combined = training_recipe("all-of-it.yaml", tmp_path)
    assert combined.bank is not None
    assert set(combined.align) == {"anchors", "mmd"}


def block(text: str, holding: str) -> str:
    """The fenced block that holds some words."""
    blocks: list[str] = re.findall(r"```\w*\n(.*?)```", text, re.S)
    return next(block for block in blocks if holding in block)
