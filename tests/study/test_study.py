"""A study is checked whole before anything is read or trained."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import yaml

from accord.core.errors import AccordError
from accord.study.recipe import TrainingRecipe
from accord.study.study import check_study, load_study

Raw = dict[str, Any]


def changed(study: Raw, key: str, value: Any) -> Raw:
    section, _, inner = key.partition(".")
    if not inner:
        return {**study, section: value}
    return {**study, section: {**study.get(section, {}), inner: value}}


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("budgets", {}, "did you mean 'budget'"),
        ("budget.epoch", 3, "did you mean 'epochs'"),
        ("data.tran_limit", 3, "did you mean 'train_limit'"),
        ("partition.alpha", 0, "'partition.alpha': expected greater than 0; found 0"),
        ("partition.alpha", -1.0, "greater than 0"),
        ("partition.alpha", "much", "'partition.alpha'"),
        ("partition.scheme", "dirichlt", "did you mean 'dirichlet'"),
        ("partition.clients", 0, "'partition.clients'"),
        ("budget.lr", math.nan, "'budget.lr': expected a finite number"),
        ("budget.lr", math.inf, "finite"),
        ("budget.lr", 0, "greater than 0"),
        ("budget.epochs", 0, "'budget.epochs'"),
        ("budget.momentum", 1.0, "less than 1"),
        ("budget.checkpoints", [3], "between 1 and epochs = 2"),
        ("budget.schedule", "cosin", "'budget.schedule'"),
        ("net.backbone", "resnet19", "did you mean 'resnet18'"),
        ("net.norm", "layer", "'net.norm'"),
        ("data.augment", "flips", "unknown augmentation"),
        ("data.validation", 1.0, "less than 1"),
        ("data.image", 2, "data.image"),
        ("data", "digits", "expected a mapping"),
        ("recipes", ["faffi"], "did you mean 'fafi'"),
        ("recipes", [], "expected a list of recipes"),
        ("recipes", ["fafi", "OursV4"], "two recipes are named 'fafi'"),
        ("recipes", [{"as": "x"}], "mappings with 'use'"),
        ("recipes", [{"use": "fafi", "objectiv": {}}], "objectiv"),
        ("recipes", [{"use": "fafi", "objective": {"contrst": {}}}], "did you mean 'contrast'"),
        ("recipes", [{"use": "fafi", "objective": {"contrast": {"temperature": 0}}}], "0"),
        ("recipes", [{"use": "fafi", "balance": {"use": "fixed"}}], "found none"),
        ("recipes", [{"use": "etf-fixed", "anchors": None}], "anchors is missing"),
        ("recipes", ["none.yaml"], "none.yaml does not exist"),
        ("fusions", [{"use": "features", "as": "../x"}], "letters, digits"),
        ("fusions", [3], "fusions"),
        ("fusions", ["feature"], "did you mean 'features'"),
        ("fusions", ["outputs", {"use": "average", "as": "outputs"}], "two different fusions"),
        ("fusions", [{"use": "features", "weights": "equal"}], "named 'features'"),
        ("fusions", [{"use": "features", "as": None}], "letters, digits"),
        ("fusions", [{"use": "features", "weights": "most"}], "weights"),
        ("seeds", [], "at least 1 entries"),
        ("seeds", 3, "[3] for that one seed"),
        ("seeds", [-1], "seeds"),
        ("seeds", [True], "seeds"),
        ("seeds", "0-4", "a list such as"),
        ("partition.alpha", "0.1,0.5", "A grid is written"),
        ("name", "Étude 1", "letters, digits"),
        ("seeds", [1, 1], "seeds should differ"),
        ("name", "../escape", "'name'"),
        ("partition.alpha", [], "a grid axis needs different values"),
        ("partition.alpha", [0.1, 0.1], "a grid axis needs different values"),
    ],
)
def test_a_mistake_is_named_with_its_key(study: Raw, key: str, value: Any, said: str) -> None:
    with pytest.raises(AccordError) as caught:
        check_study(changed(study, key, value), Path())
    assert said in str(caught.value)
    assert "pydantic" not in str(caught.value)


def test_missing_data_and_recipes_are_told(study: Raw) -> None:
    for key in ("data", "recipes", "name"):
        with pytest.raises(AccordError, match=key):
            check_study({k: v for k, v in study.items() if k != key}, Path())


def test_a_list_where_one_value_stands_is_an_axis(study: Raw) -> None:
    raw = changed(changed(study, "partition.alpha", [0.5, 0.05]), "budget.lr", [0.1, 0.01])
    trials = check_study({**raw, "recipes": ["fafi", "ce-ensemble"], "seeds": [0, 1]}, Path())
    assert len(trials.trials()) == 2 * 2 * 2 * 2
    assert {trial.setup.budget.lr for trial in trials.trials()} == {0.1, 0.01}


def test_checkpoints_are_one_list_and_end_with_the_last_epoch(study: Raw) -> None:
    checked = check_study(changed(study, "budget.checkpoints", [1]), Path())
    assert [setup.budget.checkpoints for setup in checked.setups] == [(1, 2)]


def test_references_are_added_unless_unwanted(study: Raw) -> None:
    names = [r.name for r in check_study({**study, "references": True}, Path()).recipes]
    assert names == ["fafi", "central", "local-only"]
    assert [r.name for r in check_study(study, Path()).recipes] == ["fafi"]


def test_central_runs_once_for_all_skews(study: Raw) -> None:
    raw = changed({**study, "recipes": ["central", "fafi"]}, "partition.alpha", [1.0, 0.1])
    names = [trial.recipe.name for trial in check_study(raw, Path()).trials()]
    assert sorted(names) == ["central", "fafi", "fafi"]


def test_overrides_reach_into_sections(tmp_path: Path, study: Raw) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(yaml.safe_dump(study))
    checked = load_study(
        path, ["budget.epochs=3", "seeds=[0,1]", "partition.alpha=[0.5,0.05]", "budget.lr=1e-3"]
    )
    assert checked.setups[0].budget.epochs == 3
    assert checked.setups[0].budget.lr == 1e-3
    assert checked.options.seeds == (0, 1)
    assert [setup.partition.skew for setup in checked.setups] == [0.5, 0.05]


@pytest.mark.parametrize("override", ["budget.epochs", "=3", "name.x=3", "seeds=[0"])
def test_a_bad_override_is_told(study: Raw, override: str) -> None:
    with pytest.raises(AccordError):
        load_study(study, [override])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("# nothing\n", "is empty"),
        ("- fafi\n", "found a list"),
        ("fafi", "found a str"),
        ("a: [", "not valid YAML"),
        ("name: a\nname: b\n", "the key 'name' occurs twice"),
        ("data:\n\tname: digits\n", "spaces, not tabs"),
        ("!!python/object/apply:os.system ['true']", "not valid YAML"),
    ],
)
def test_a_file_that_is_no_study(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(text)
    with pytest.raises(AccordError, match=said):
        load_study(path)


def test_a_relative_data_path_is_meant_from_the_study_file(tmp_path: Path, study: Raw) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(yaml.safe_dump({**study, "data": {"name": "folder", "path": "images"}}))
    assert load_study(path).setups[0].data.path == str(tmp_path / "images")
    overridden = load_study(path, ["data.path=other"])
    assert overridden.setups[0].data.path == str(Path.cwd() / "other")


def test_the_resolved_study_asks_for_the_same_trials(study: Raw) -> None:
    raw = changed(study, "partition.alpha", [0.5, 0.05])
    raw["recipes"] = ["fafi", {"use": "etf-fixed", "balance": {"lambda": 10}, "as": "lambda-10"}]
    checked = check_study({**raw, "references": True, "fusions": ["outputs"]}, Path())
    again = check_study(yaml.safe_load(yaml.safe_dump(checked.resolved)), Path())
    assert again.trials() == checked.trials()


def test_a_study_over_schemes_resolves_to_itself(study: Raw) -> None:
    raw = {**study, "partition": {"scheme": ["dirichlet", "iid"], "clients": 3}}
    checked = check_study(raw, Path())
    again = check_study(yaml.safe_load(yaml.safe_dump(checked.resolved)), Path())
    assert again.trials() == checked.trials()


def test_an_override_chooses_recipes_as_the_study_has_them() -> None:
    """Their changes stay, and so do those of the recipes that they stand on."""
    turns = {"use": "turns", "budget": {"epochs": 1}, "as": "turns"}
    blocks = [{"use": "rounds", "recipe": "turns", "stages": 1}]
    sums = {"use": "few-rounds", "map": {"blocks": blocks}, "as": "sums"}
    raw: dict[str, Any] = {"name": "s", "data": {"name": "digits"}, "references": False}
    raw["recipes"] = [turns, sums, "fafi"]
    cases = {
        "[sums]": {"turns", "sums"},
        "sums": {"turns", "sums"},
        "[turns]": {"turns"},
        "[fafi, ce-ensemble]": {"fafi", "ce-ensemble"},
    }
    for asked, names in cases.items():
        found = {one.name: one for one in load_study(raw, [f"recipes={asked}"]).recipes}
        assert found.keys() == names
        for recipe in found.values():
            if isinstance(recipe, TrainingRecipe) and recipe.name == "turns":
                assert recipe.budget["epochs"] == 1
    odd = {**raw, "recipes": [{"use": "fafi", "as": ["x"]}, *raw["recipes"]]}
    assert {one.name for one in load_study(odd, ["recipes=[turns]"]).recipes} == {"turns"}
    shipped = load_study({**raw, "recipes": ["turns"]}, ["recipes=[turns]"]).recipes[0]
    assert isinstance(shipped, TrainingRecipe)
    assert shipped.budget["epochs"] == 3
