"""The sections of a study as the user writes them, and the grid of their lists.

This module does not import torch, so that commands that only read a record start quickly.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, field_validator

from accord.attacks.settings import NO_ATTACK, NONE, AttackConfig
from accord.core.budget import MOST_ROUNDS, Budget
from accord.core.config import Config, keys, parse
from accord.core.errors import AccordError
from accord.core.mergenet import MergeNetConfig
from accord.data.schemes import Partitioned, make_scheme, schemes
from accord.data.settings import NO_SHIFT, DataConfig, ShiftConfig
from accord.nets.settings import NetConfig, TeacherConfig

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"  # names of recipes and fusions are used in file names
LEAVE_OUT = "partition.leave_out"
ATTACK = ("attack.name", "attack.clients")
MOST_TRIALS = 10_000  # of a study
REFERENCES = ("central", "local-only")


class RoundsConfig(Config):
    """The settings of methods with several rounds; one-shot recipes ignore them."""

    count: int | None = Field(
        None,
        ge=1,
        le=MOST_ROUNDS,
        description="number of communication rounds; null: the recipe's own number",
    )
    fraction: float = Field(
        1.0, gt=0, le=1, description="share of the clients that each round asks, drawn at random"
    )
    min_fit_clients: int | None = Field(
        None,
        ge=1,
        description="smallest number of clients that a round asks, and of uploads that it needs "
        "to continue; null: every client that is asked must answer",
    )
    min_available_clients: int | None = Field(
        None,
        ge=1,
        description="number of clients that must be available before a round begins; null: all",
    )


class Setup(Config):
    """The sections of a study whose keys can be grid axes."""

    data: DataConfig
    partition: Partitioned = Field(default_factory=lambda: make_scheme({}))
    shift: ShiftConfig = NO_SHIFT
    attack: AttackConfig = NO_ATTACK
    net: NetConfig = NetConfig()
    budget: Budget = Budget()
    rounds: RoundsConfig = RoundsConfig()
    mergenet: MergeNetConfig = MergeNetConfig()
    teacher: TeacherConfig = TeacherConfig()


class Options(Config):
    """The keys of a study that cannot be grid axes: its name, its seeds and how it runs."""

    name: str = Field(pattern=NAME)
    seeds: tuple[Annotated[int, Field(ge=0, lt=2**63, strict=True)], ...] = Field(
        (0,), min_length=1
    )
    device: str | dict[int | str, str] = Field(
        "auto", description="cpu, cuda, cuda:1, …, or one device per client"
    )
    autocast: bool | Literal["auto"] = "auto"
    compile: bool | Literal["auto"] = "auto"
    keep_checkpoints: bool = False
    references: bool = Field(True, description=f"add {' and '.join(REFERENCES)} to every table")
    track: tuple[str, ...] = Field((), description="trackers that get every finished trial")

    @field_validator("seeds", mode="before")
    @classmethod
    def _a_list(cls, value: Any) -> Any:
        if isinstance(value, int) and not isinstance(value, bool):
            # A number could mean one seed or this many seeds, so it is refused.
            raise ValueError(f"expected a list such as [0, 1, 2], or [{value}] for that one seed")
        return value

    @field_validator("track", mode="before")
    @classmethod
    def _one_or_several(cls, value: Any) -> Any:
        if value is None:
            return ()
        return (value,) if isinstance(value, str) else value

    @field_validator("seeds")
    @classmethod
    def _seeds_differ(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(value)) < len(value):
            twice = next(seed for seed in value if value.count(seed) > 1)
            raise ValueError(f"seeds should differ; found {twice} twice")
        return value


def section_of(raw: Mapping[str, Any], key: str) -> dict[str, Any]:
    if not isinstance(raw[key], Mapping):
        raise AccordError(f"{key!r}: expected a mapping of keys, found {raw[key]!r}.")
    return dict(raw[key])


def grid_axes(sections: Mapping[str, Any]) -> dict[str, list[Any]]:
    """`section.key` → values, for every list at a key that takes a single value."""
    return {
        f"{section}.{key}": value
        for section in keys(Setup)
        for key, value in (sections.get(section) or {}).items()
        if isinstance(value, list) and not takes_list(f"{section}.{key}")
    }


def result_axes(sections: Mapping[str, Any]) -> list[str]:
    """The axes on which trials differ: those of the grid, and the client that is left out.

    `partition.leave_out: each` is an axis whose values are in the data. An attack is always an
    axis, so that every table, figure and name of a trial shows it.
    """
    axes = list(grid_axes(sections))
    left_out = (sections.get("partition") or {}).get("leave_out") is not None
    found = [*axes, LEAVE_OUT] if left_out and LEAVE_OUT not in axes else axes
    attacked = (sections.get("attack") or {}).get("name", NONE) != NONE
    return [*found, *(name for name in ATTACK if name not in found)] if attacked else found


def cells(sections: dict[str, dict[str, Any]]) -> Iterator[Setup]:
    """The setups of all cells of the grid."""
    axes = grid_axes(sections)
    refuse_large(math.prod(len(values) for values in axes.values()), "cells in its grid")
    for name, values in axes.items():
        if not values or len({_distinct(value) for value in values}) < len(values):
            raise AccordError(f"{name!r}: a grid axis needs different values; found {values!r}.")
    for cell in itertools.product(*axes.values()):
        chosen = dict(zip(axes, cell, strict=True))
        filled = {
            section: {key: chosen.get(f"{section}.{key}", value) for key, value in values.items()}
            for section, values in sections.items()
        }
        yield parse(Setup, filled, "")


def _distinct(value: Any) -> Any:
    """A key that is the same for equal values: 1 and 1.0 make the same trial."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if number else repr(value)


def refuse_large(count: int, what: str) -> None:
    """Refuses a study with more trials than anyone could wait for, before they are made."""
    if count > MOST_TRIALS:
        raise AccordError(
            f"the study has {count:,} {what}; expected at most {MOST_TRIALS:,}. Use fewer values, "
            "recipes or seeds, or divide it into several studies with the same --out."
        )


def takes_list(name: str) -> bool:
    """Whether the type of a key is a sequence, so that a list is one value and no grid axis."""
    section, _, key = name.partition(".")
    if section not in Setup.model_fields:
        return False
    model = Setup.model_fields[section].annotation
    # The section `partition` has the keys of its scheme.
    models = [schemes.get(name) for name in schemes] if section == "partition" else [model]
    fields = [one.model_fields.get(key) for one in models if isinstance(one, type)]
    annotations = [field.annotation for field in fields if field]
    return any("tuple" in str(part) for one in annotations for part in (one, *get_args(one)))


def resolved_sections(raw: dict[str, dict[str, Any]], first: Setup) -> dict[str, Any]:
    """The sections with all defaults, and with the values of each grid axis as a list."""
    sections: dict[str, Any] = first.model_dump(mode="json")
    axes = grid_axes(raw)
    # The last epoch of each cell is added to its checkpoints; here they stay as they were asked.
    asked = raw.get("budget", {}).get("checkpoints") or []
    sections["budget"]["checkpoints"] = [asked] if isinstance(asked, int) else list(asked)
    if "partition.scheme" in axes:
        # Each scheme has its own keys; the defaults of the first one would not fit the others.
        sections["partition"] = dict(raw["partition"])
    for name, values in axes.items():
        section, key = name.split(".")
        sections[section][key] = values
    return sections
