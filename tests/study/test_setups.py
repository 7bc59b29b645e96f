"""The setup of a trial: what a recipe replaces, and what recipes do not use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from accord.core.errors import AccordError
from accord.core.mergenet import MergeNetConfig
from accord.nets.settings import TeacherConfig
from accord.study.study import Trial, load_study

Raw = dict[str, Any]
STUDY: Raw = {
    "name": "setups",
    "data": {"name": "digits", "public": 0.1},
    "budget": {"epochs": 2, "checkpoints": [1]},
    "rounds": {"count": 3, "fraction": 0.5, "min_fit_clients": 2},
    "mergenet": {"lr": 0.5, "f": 4, "start_round": 3},
    "teacher": {"epochs": 7},
    "references": False,
}


def trials(*recipes: Any, **changes: Any) -> list[Trial]:
    return load_study({**STUDY, "recipes": list(recipes), **changes}).trials()


def only(*recipes: Any, **changes: Any) -> Trial:
    (found,) = trials(*recipes, **changes)
    return found


def test_a_recipe_replaces_values_of_the_study() -> None:
    setup = only("mergenet-client").setup
    assert (setup.mergenet.lr, setup.mergenet.f, setup.mergenet.train) == (0.0001, 4, "client")
    own = {"use": "mergenet-client", "mergenet": {"lr": 0.2}, "teacher": {"epochs": 9}, "as": "own"}
    setup = only(own).setup
    assert (setup.mergenet.lr, setup.mergenet.f, setup.teacher.epochs) == (0.2, 4, 9)
    random = only("mergenet-random-teacher", teacher={"model": "somewhere"}).setup.teacher
    assert (random.model, random.allow_random) == (None, True)


def test_recipes_that_do_not_use_a_section_have_its_defaults() -> None:
    unlike = ("fedavg", "fafi", "closed-form-small", "finetune-public")
    found = trials("mergenet-public", "kd", *unlike)
    by_name = {trial.recipe.name: trial.setup for trial in found}
    for recipe in ("fedavg", "fafi", "closed-form-small"):
        assert by_name[recipe].mergenet == MergeNetConfig()
        assert by_name[recipe].teacher == TeacherConfig()
    assert by_name["finetune-public"].teacher == TeacherConfig()  # it has no teacher
    assert by_name["kd"].mergenet == MergeNetConfig()
    assert by_name["kd"].teacher.epochs == 7
    # Therefore they have one trial on the axis of a section that they do not use.
    found = trials("fedavg", "mergenet-public", mergenet={"start_round": [1, 2, 3]})
    assert [trial.recipe.name for trial in found].count("fedavg") == 1
    assert [trial.recipe.name for trial in found].count("mergenet-public") == 3


def test_a_pooled_recipe_trains_the_epochs_of_all_rounds_at_once() -> None:
    central = {"use": "central", "method": "averaging", "fusion": "average", "as": "longer"}
    *several, plain = trials(central, "mergenet-central", "central")
    for trial in several:
        assert trial.method.rounds == 1
        assert trial.setup.budget.epochs == 6
        assert trial.setup.budget.checkpoints == (1, 2, 3, 4, 5, 6)
        assert trial.setup.rounds.min_fit_clients is None  # there is one client
    assert trial.setup.mergenet.start_round == 1
    assert trial.setup.mergenet.f == 4
    assert plain.setup.budget.epochs == 2  # a one-shot recipe keeps the study's epochs


def test_the_method_has_the_settings_of_the_trial() -> None:
    method, control = (t.method for t in trials("mergenet-public", "finetune-public"))
    assert method.fusion_applied(2) is False
    assert method.fusion_applied(3) is True
    assert method.needs_teacher
    assert not control.needs_teacher


def test_relative_models_start_from_the_study(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(
        "name: s\ndata: {name: digits, public: 0.1}\nteacher: {model: nets/a}\nreferences: false\n"
        "recipes: [kd, {use: kd, teacher: {model: nets/b}, as: other}]\n"
    )
    one, other = load_study(tmp_path / "study.yaml").trials()
    assert one.setup.teacher.model == str(tmp_path / "nets/a")
    assert other.setup.teacher.model == str(tmp_path / "nets/b")
    several = load_study(tmp_path / "study.yaml", ["teacher={model: [a, b]}"])
    assert {s.teacher.model for s in several.setups} == {str(Path.cwd() / n) for n in "ab"}
    (over, _) = load_study(tmp_path / "study.yaml", ["teacher.model=here"]).trials()
    assert over.setup.teacher.model == str(Path.cwd() / "here")


def test_settings_that_do_not_fit_a_recipe_are_refused() -> None:
    wrong = {"use": "finetune-public", "mergenet": {"heads": 7}, "as": "x"}
    with pytest.raises(AccordError, match="multiple of heads"):
        only(wrong)
    with pytest.raises(AccordError, match="one teacher, either for a bank or"):
        only({"use": "public-negatives", "objective": {"distillation": {}}, "as": "x"})
    for section in ({"mergenet": {"f": 2}}, {"teacher": {"epochs": 2}}):
        idle = {"name": "idle", "data": {"name": "digits"}, "recipes": ["fedavg"], **section}
        assert load_study(idle).idle_sections() == [*section]
        assert load_study({**idle, "recipes": ["kd", "mergenet-public"]}).idle_sections() == []
