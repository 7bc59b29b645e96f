"""Recipes: short files that compose parts, changed from a study without touching them."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from accord.errors import AccordError
from accord.recipe import check, merge, resolve, shipped


@pytest.mark.parametrize("name", shipped())
def test_every_shipped_recipe_resolves_and_explains_itself(name: str) -> None:
    recipe = resolve(name, Path())
    assert recipe.name == name
    assert len(recipe.about) > 20
    assert check(recipe.model_dump(mode="json"), name) == recipe


def test_aliases_of_the_notes_lead_to_recipes() -> None:
    assert resolve("OursV4", Path()) == resolve("fafi", Path())
    assert resolve("OursV7", Path()).name == "etf-fixed"


def test_fafi_is_the_sum_of_its_four_terms() -> None:
    recipe = resolve("fafi", Path())
    assert recipe.objective == {
        "cross-entropy": {},
        "contrast": {"temperature": 0.07},
        "prototypes": {"temperature": 1.0},
        "separation": {"temperature": 1.0},
    }
    assert recipe.views == 2
    assert recipe.head == "prototypes"
    assert [spec["use"] for spec in recipe.fusion] == ["features"]


def test_a_study_changes_one_parameter_and_gives_a_new_name() -> None:
    recipe = resolve({"use": "etf-fixed", "balance": {"lambda": 10}, "as": "lambda-10"}, Path())
    assert recipe.name == "lambda-10"
    assert recipe.balance == {"use": "fixed", "lambda": 10.0, "decay": False}
    assert recipe.objective == resolve("fafi", Path()).objective


def test_a_term_is_removed_by_null() -> None:
    recipe = resolve({"use": "fafi", "objective": {"contrast": None}, "as": "plain"}, Path())
    assert "contrast" not in recipe.objective
    assert "separation" in recipe.objective


def test_another_part_replaces_the_old_one_whole() -> None:
    assert merge({"balance": {"use": "a", "x": 1}}, {"balance": {"use": "b"}}) == {
        "balance": {"use": "b"}
    }
    assert merge({"balance": {"use": "a", "x": 1}}, {"balance": {"x": 2}}) == {
        "balance": {"use": "a", "x": 2}
    }


def test_a_recipe_file_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        yaml.safe_dump({"name": "mine", "extends": "fafi", "fusion": "outputs"})
    )
    recipe = resolve("mine.yaml", tmp_path)
    assert recipe.name == "mine"
    assert recipe.alias is None
    assert [spec["use"] for spec in recipe.fusion] == ["outputs"]


def test_a_recipe_file_with_a_wrong_key_is_told(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("name: mine\nextends: fafi\nfusions: outputs\n")
    with pytest.raises(AccordError, match="did you mean 'fusion'"):
        resolve("mine.yaml", tmp_path)


def test_a_recipe_that_extends_itself_is_told(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("name: mine\nextends: mine.yaml\n")
    with pytest.raises(AccordError, match="extends itself"):
        resolve("mine.yaml", tmp_path)


def test_ce_ensemble_fedavg_and_local_only_train_alike() -> None:
    trainings = [resolve(n, Path()).training for n in ("ce-ensemble", "fedavg-once", "local-only")]
    assert trainings[0] == trainings[1] == trainings[2]
