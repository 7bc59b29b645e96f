"""What every method promises, found by the registry."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
import torch

from accord.core.errors import AccordError
from accord.core.parts import make_part, part_spec
from accord.fusion.average import Average
from accord.fusion.base import Merge, fusions
from accord.messages import (
    NET,
    TEACHER,
    Briefing,
    ServerState,
    TeacherHeader,
    prefixed,
    unprefixed,
)
from accord.methods import Method, methods
from accord.study.library import shipped
from accord.study.resolve import resolve
from methods.scenes import CLIENTS, scene_of
from tests_support import brief_for, same

SEVERAL = [name for name in methods if "count" in methods.get(name).model_fields]


def method_of(name: str, **values: Any) -> Method:
    made = make_part(methods, {"use": name, **values}, "method")
    return made.filled({"use": "average"}, "recipe")


def opening_for(method: Method, **budget: Any) -> Briefing:
    """A first briefing, with a teacher if the method needs one."""
    plain = brief_for("ce-ensemble", **budget)
    if not method.needs_teacher:
        return plain
    teacher = TeacherHeader(net=plain.header.net, mean=(0.3,), std=(0.35,))
    header = plain.header.model_copy(update={"teacher": teacher})
    return Briefing(header, {**plain.tensors, **prefixed(TEACHER, unprefixed(NET, plain.tensors))})


@pytest.mark.parametrize("name", methods.names())
def test_a_method_explains_itself_and_starts_from_the_opening(name: str) -> None:
    method = method_of(name)
    assert inspect.getdoc(type(method))
    fields = type(method).model_fields
    asked = fields["count"].default if name in SEVERAL else 1
    assert method.rounds == asked
    assert method.open_rounds is (asked == 0)
    method = method.with_rounds(method.rounds_for(5)) if method.open_rounds else method
    assert (method.rounds_for(3), method.open_rounds) == (method.rounds, False)
    opening = opening_for(method)
    state = method.start(opening)
    assert state.round == 1
    told = method.brief(state)
    assert told.header.rounds == method.rounds
    plain = opening.header.model_copy(update={"teacher": None})  # clients need no teacher
    assert told.header.model_copy(update={"rounds": 1}) == plain
    for key, tensor in opening.tensors.items():
        if not key.startswith(TEACHER):
            assert torch.equal(told.tensors[key], tensor)
    # A round that is made again, after an interruption, is the same.
    assert same(method.start(opening).tensors, state.tensors)
    assert make_part(methods, part_spec(name, method), "method") == method


@pytest.mark.parametrize("name", SEVERAL)
def test_a_state_survives_the_disk_and_the_next_round_is_numbered_on(
    name: str, tmp_path: Path
) -> None:
    method = method_of(name).with_rounds(2)
    state = method.start(opening_for(method, epochs=1))
    following = method.advance(state, scene_of(method.brief(state), tmp_path))
    assert following.round == 2
    assert following.header.answered == tuple(CLIENTS)
    following.save(tmp_path / "state")
    again = ServerState.load(tmp_path / "state")
    assert again.header == following.header
    assert same(again.tensors, following.tensors)
    briefing = method.brief(again)
    assert not any(key.startswith("server.") for key in briefing.tensors)
    assert (briefing.header.round, briefing.header.rounds) == (2, 2)
    assert briefing.header.first_epoch == 1
    moved = [k for k in briefing.tensors if k.startswith(NET)]
    assert not all(torch.equal(briefing.tensors[k], state.tensors[k]) for k in moved)


@pytest.mark.parametrize("name", SEVERAL)
def test_what_makes_no_single_net_cannot_be_advanced(name: str) -> None:
    method = make_part(methods, name, "method")
    for rule in fusions:
        kind, spec = fusions.get(rule), {"use": rule}
        able = issubclass(kind, Merge) and not kind.personal and not kind.after_advance
        advances = able and kind().of == "nets"
        alone = method.one_by_one and not issubclass(kind, Average)  # there is one upload
        if advances and not alone:
            assert method.filled(spec, "recipes.x").rounds == method.rounds
        else:
            said = f"expected average.*{rule}" if advances else f"{rule}.*no next round can start"
            with pytest.raises(AccordError, match=f"recipes.x.*{said}"):
                method.filled(spec, "recipes.x")


def test_every_shipped_recipe_has_a_method_that_is_registered() -> None:
    found = {name: resolve(name, Path()) for name in shipped()}
    several = {name for name, recipe in found.items() if recipe.several_rounds}
    averaging = {"fedavg", "fedprox", "scaffold", "kd", "public-rounds"}
    turns = {"turns", "public-turns", "unlabelled-turns"}
    enriching = {n for n in found if n.startswith("mergenet-")} | {"finetune-public"}
    assert several == averaging | enriching | turns
    for recipe in found.values():
        assert recipe.method_name in methods
        few = {"public-rounds": 4, "turns": 20, "public-turns": 20, "unlabelled-turns": 15}
        assert recipe.make_method().rounds_for(5) == few.get(
            recipe.name, 5 if recipe.name in several else 1
        )
