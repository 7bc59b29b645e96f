"""Recipes: short files that compose parts, changed from a study without touching them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from accord.core.errors import AccordError
from accord.core.yamls import to_yaml
from accord.study.check import check
from accord.study.library import shipped
from accord.study.recipe import TrainingRecipe
from accord.study.resolve import resolve
from accord.study.study import check_study, load_study
from accord.study.syntax import merge
from tests_support import training_recipe

Raw = dict[str, Any]


@pytest.mark.parametrize("name", shipped())
def test_every_shipped_recipe_resolves_and_explains_itself(name: str) -> None:
    recipe = resolve(name, Path())
    assert recipe.name == name
    assert len(recipe.about) > 20
    assert check(recipe.model_dump(mode="json"), name) == recipe


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("OursV4", "fafi"),
        ("OursV5", "random-anchors"),
        ("OursV7", "etf-fixed"),
        ("OursV8", "etf-progressive"),
        ("OursV9", "etf-entropy"),
        ("OursV10", "etf-uncertainty"),
        ("OursV12", "etf-attenuated"),
    ],
)
def test_aliases_of_the_notes_lead_to_recipes(alias: str, name: str) -> None:
    assert resolve(alias, Path()) == resolve(name, Path())
    assert resolve(name, Path()).alias == alias


def test_fafi_is_the_sum_of_its_four_terms() -> None:
    recipe = training_recipe("fafi", Path())
    assert recipe.objective == {
        "cross-entropy": {"weight": 1.0, "smoothing": 0.0, "adjusted": False},
        "contrast": {
            **{
                "weight": 1.0,
                "temperature": 0.07,
                "queue": 0,
                "bank": "none",
                "hardness": 0.0,
                "synthetic": 0,
            },
            "balanced": False,
        },
        "prototypes": {"weight": 1.0, "temperature": 1.0},
        "separation": {"weight": 1.0, "temperature": 1.0},
    }
    assert recipe.views == 2
    assert recipe.head == "prototypes"
    assert [fusion.use for fusion in recipe.fusion] == ["features"]


FIXED = {"use": "fixed", "lambda": 5.0, "attenuation": "constant"}
LIKE_THE_NET = {"lr_factor": 1.0, "momentum": "net", "clip": "together"}
SIGMA = {"start_local": 0.0, "start_align": 0.0, **LIKE_THE_NET}
CAPPED = {
    **SIGMA,
    "attenuation": "linear",
    "gamma": "auto",
    "lambda_cap": 50.0,
    "momentum": 0.0,
}
BALANCES: dict[str, Raw] = {
    "random-anchors": FIXED,
    "etf-fixed": FIXED,
    "etf-progressive": FIXED,
    "etf-entropy": {
        "use": "entropy",
        "lambda_min": 0.1,
        "lambda_max": 10.0,
        "attenuation": "constant",
    },
    "etf-curriculum": {"use": "curriculum", "start_weight": 0.1, "end_weight": 1.0},
    "etf-confidence": {
        "use": "confidence",
        "lowest": 0.1,
        "highest": 1.0,
        "memory": 0.9,
        "watch": "cross-entropy",
    },
    "etf-gradnorm": {"use": "gradnorm", "rate": 1.0, "memory": 0.9, "highest": 1000.0},
    "etf-uncertainty": {"use": "uncertainty", **SIGMA},
    "etf-uncertainty-repaired": {
        "use": "uncertainty",
        "start_local": -1.0,
        "start_align": 0.0,
        "lr_factor": 0.01,
        "momentum": 0.0,
        "clip": "apart",
    },
    "etf-rescaled": {"use": "rescaled", "start_local": 0.0, **LIKE_THE_NET, "lambda": 0.0},
    "etf-attenuated": {"use": "attenuated", **SIGMA, "attenuation": "linear"},
    "etf-stabilised": {"use": "stabilised", **CAPPED},
    "etf-attenuated-log": {"use": "attenuated-log", **CAPPED},
    "etf-upgrad": {"use": "gradient", "aggregator": "upgrad", "lambda": 1.0},
}


@pytest.mark.parametrize("name", shipped())
def test_each_recipe_weighs_its_anchors_as_the_methods_say(name: str) -> None:
    """All that pull prototypes are FAFI but for the anchors, the way to them and the balance."""
    recipe = resolve(name, Path())
    if not isinstance(recipe, TrainingRecipe):
        assert name not in BALANCES
        return
    if name not in BALANCES:
        assert recipe.anchors is None or recipe.head == "anchors"
        assert "anchors" not in recipe.align
        return
    progressive = name == "etf-progressive"
    assert recipe.align == {
        "anchors": {"over": "held", "progressive": progressive, "balance": BALANCES[name]}
    }
    assert recipe.anchors == {"use": "random" if name == "random-anchors" else "etf"}
    fafi = training_recipe("fafi", Path())
    for key in ("objective", "views", "head", "fusion"):
        assert getattr(recipe, key) == getattr(fafi, key)


def balance_of(recipe: TrainingRecipe) -> Any:
    return recipe.align["anchors"]["balance"]


def test_a_study_changes_one_parameter_and_gives_a_new_name() -> None:
    recipe = training_recipe(
        {"use": "etf-fixed", "balance": {"lambda": 10}, "as": "lambda-10"}, Path()
    )
    assert recipe.name == "lambda-10"
    assert recipe.alias is None
    assert balance_of(recipe) == {**FIXED, "lambda": 10.0}
    assert recipe.objective == training_recipe("fafi", Path()).objective


@pytest.mark.parametrize(
    "change",
    [
        {"balance": "entropy"},
        {"balance": {"use": "entropy"}},
        {"align": {"anchors": {"balance": "entropy"}}},
        {"align": {"anchors": {"balance": {"use": "entropy"}}}},
    ],
)
def test_another_rule_of_balance_replaces_the_old_one_whole(change: Raw) -> None:
    recipe = training_recipe({"use": "etf-fixed", **change})
    assert balance_of(recipe) == BALANCES["etf-entropy"]
    assert recipe.align["anchors"]["over"] == "held"


def test_a_recipe_file_changes_the_balance_it_inherits(tmp_path: Path) -> None:
    (tmp_path / "slow.yaml").write_text(
        "name: slow\nextends: etf-uncertainty-repaired\nbalance: {lr_factor: 0.001}\n"
    )
    expected = {**BALANCES["etf-uncertainty-repaired"], "lr_factor": 0.001}
    assert balance_of(training_recipe("slow.yaml", tmp_path)) == expected


HALF = {"use": "fixed", "lambda": 0.5}
TWO_PULLS: Raw = {
    "use": "etf-uncertainty",
    "objective": {"separation": None},
    "align": {"separation": {"balance": HALF}},
    "as": "two-pulls",
}


def test_each_alignment_term_has_a_balance_of_its_own() -> None:
    recipe = training_recipe(TWO_PULLS, Path())
    assert list(recipe.objective) == ["cross-entropy", "contrast", "prototypes"]
    assert list(recipe.align) == ["anchors", "separation"]
    assert balance_of(recipe) == BALANCES["etf-uncertainty"]
    assert recipe.align["separation"] == {
        "temperature": 1.0,
        "balance": {**FIXED, "lambda": 0.5},
    }


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"use": "fafi", "balance": HALF}, r"recipes.fafi.balance is for .* found none"),
        ({**TWO_PULLS, "balance": HALF}, "one alignment term; found anchors, separation"),
        (
            {"use": "etf-fixed", "align": {"separation": {"balance": HALF}}},
            "'separation' is in both objective and align.*separation: null",
        ),
        (
            {**TWO_PULLS, "align": {"separation": {"temperature": 2.0}}},
            r"align\.separation\.balance is missing.*balance: {use: fixed, lambda: 5}",
        ),
        (
            {"use": "fafi", "objective": {"separation": None}, "align": ["separation"]},
            r"align\.separation\.balance is missing",
        ),
        ({"use": "etf-fixed", "anchors": None}, "anchors is missing"),
        ({"use": "etf-fixed", "balance": {"use": "fixd"}}, "did you mean 'fixed'"),
        ({"use": "etf-fixed", "balance": {"decay": True}}, "Known here: lambda, attenuation"),
        ({"use": "etf-fixed", "balance": {"attenuation": "fast"}}, "balance.attenuation"),
        ({"use": "etf-uncertainty", "balance": {"momentum": 1.5}}, "balance.momentum"),
        ({"use": "etf-stabilised", "balance": {"gamma": -1}}, "balance.gamma"),
        ({"use": "etf-entropy", "balance": {"lambda_max": 0}}, "lambda_min should not exceed"),
        ({"use": "etf-confidence", "balance": {"highest": 0}}, "lowest should not exceed"),
        ({"use": "etf-confidence", "balance": {"watch": "cross"}}, "watches .* 'cross'; found"),
        (
            {"use": "etf-confidence", "objective": {"cross-entropy": None}},
            "watches the local term 'cross-entropy'; found contrast, prototypes, separation",
        ),
    ],
)
def test_a_balance_that_cannot_work_is_told(change: Raw, said: str) -> None:
    with pytest.raises(AccordError, match=said):
        resolve(change, Path())


def test_confidence_may_watch_another_term() -> None:
    recipe = training_recipe({"use": "etf-confidence", "balance": {"watch": "contrast"}})
    assert balance_of(recipe)["watch"] == "contrast"


def test_what_a_record_keeps_of_a_recipe_is_the_recipe(study: Raw, tmp_path: Path) -> None:
    asked = {**study, "recipes": [*shipped(), TWO_PULLS]}
    checked = check_study(asked, Path())
    (tmp_path / "study.yaml").write_text(to_yaml(checked.resolved))
    assert load_study(tmp_path / "study.yaml").recipes == checked.recipes


def test_a_term_is_removed_by_null() -> None:
    recipe = training_recipe(
        {"use": "fafi", "objective": {"contrast": None}, "as": "plain"}, Path()
    )
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
    recipe = training_recipe("mine.yaml", tmp_path)
    assert recipe.name == "mine"
    assert recipe.alias is None
    assert [fusion.use for fusion in recipe.fusion] == ["outputs"]


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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"use": "fafi", "align": {"separation": "x"}, "balance": "fixed"}, "a mapping of keys"),
        ({"use": "fafi", "objective": {"separation": {"balance": "fixed"}}}, "separation.balance"),
        ({"use": "etf-fixed", "balance": None}, r"anchors\.balance is missing"),
        ({"use": "etf-stabilised", "balance": {"momentum": 3}}, "less than 1 or 'net'; found 3"),
        ({"use": "etf-stabilised", "balance": {"gamma": "x"}}, "a number or 'auto'; found 'x'"),
        ({"use": "etf-stabilised", "balance": {"lambda_cap": 0.5}}, "λ that training starts with"),
        (
            {"use": "etf-stabilised", "balance": {"lambda_cap": 5, "start_local": "entropy"}},
            r"starts with \(10\)",
        ),
        (
            {"use": "fafi", "align": {"separation": {"balance": "fixed"}}, "balance": "fixed"},
            "given twice",
        ),
        ({"use": "fafi", "objective": ["cross-entropy", {"contrast": {}}]}, "names of terms only"),
        ({"use": "fafi", "objective": {"contrast": {"use": "prototypes"}}}, "`use` is not for"),
    ],
)
def test_a_mistake_in_a_balance_is_told_at_its_key(change: dict[str, Any], message: str) -> None:
    with pytest.raises(AccordError, match=message):
        resolve({**change, "as": "mine"}, Path())


def test_without_its_alignment_term_a_recipe_needs_no_balance() -> None:
    recipe = training_recipe(
        {"use": "etf-fixed", "align": None, "balance": None, "as": "mine"}, Path()
    )
    assert recipe.align == {}


@pytest.mark.parametrize("other", ["gradient", "uncertainty", "rescaled"])
def test_a_rule_that_mixes_the_local_gradient_is_the_only_one_to_change_it(other: str) -> None:
    align = {"anchors": {"balance": "gradient"}, "separation": {"balance": other}}
    entry = {"use": "etf-upgrad", "objective": {"separation": None}, "align": align, "as": "two"}
    with pytest.raises(AccordError, match=r"'anchors' mixes.*found anchors, separation"):
        resolve(entry, Path())
    align["separation"]["balance"] = "entropy"
    assert set(training_recipe(entry, Path()).align) == {"anchors", "separation"}


def test_a_changed_recipe_does_not_pass_for_the_original() -> None:
    assert resolve({"use": "OursV7", "balance": {"lambda": 9}}, Path()).name == "etf-fixed-changed"
    assert resolve({"use": "OursV7"}, Path()).name == "etf-fixed"
