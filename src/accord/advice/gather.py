"""Reads the facts about a federation from a study or from images. Nothing is trained."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from accord.advice.facts import Facts, Limits
from accord.advice.layouts import sections_of
from accord.core.errors import AccordError
from accord.data.allocation import Allocation
from accord.data.settings import ELSEWHERE
from accord.federation.plan import Plan
from accord.study.settings import grid_axes, section_of
from accord.study.study import Study, Trial, check_study, read_study

Spec = dict[str, Any]
Tell = Callable[[str], None]
SEEDS = [0, 1, 2]  # of the study that is written


@dataclass(frozen=True)
class Source:
    """Where the facts come from: the sections of a study, and remarks about them."""

    name: str  # of the study that is written
    sections: Spec  # `data`, `partition`, and `net` if the user has chosen one
    folder: Path  # where relative paths start
    rounds: int | None = None  # exchanges that the user's own study has
    remarks: tuple[str, ...] = ()
    own: bool = True  # whether the sections are the user's own, and not made for images

    def changed(self, **data: Any) -> Source:
        """The same with other values in the section `data`."""
        sections = {**self.sections, "data": {**self.sections["data"], **data}}
        return replace(self, sections=sections)


@dataclass(frozen=True)
class Gathered:
    """The facts, where they come from, and what else the dataset has."""

    facts: Facts
    source: Source
    augment: str  # the dataset's own augmentation
    columns: tuple[str, ...] = ()  # those that could name sites
    tested: bool = False  # whether the test part has images of every site


def source_of(
    study: Path | str | None,
    data: Path | str | None,
    *,
    column: str | None = None,
    clients: int | None = None,
    public: float | None = None,
    image: int | None = None,
) -> Source:
    """The user's study, or one that fits the images at `data`."""
    if (study is None) == (data is None):
        given = "neither" if study is None else "both"
        raise AccordError(
            f"expected a study file or --data PATH; found {given}. Write `accord advise "
            "STUDY.yaml`, or `accord advise --data FOLDER`."
        )
    _check_numbers(clients, public, image)
    if data is not None:
        raw = sections_of(Path(data), column, clients, image)
        found = Source(_name(Path(data).stem), raw, Path(), own=False)
    else:
        options = {"--column": column, "--clients": clients, "--image": image}
        for option, value in options.items():
            if value is not None:
                raise AccordError(
                    f"{option} is for --data; a study says this itself, in its sections data and "
                    f"partition. Found {option} {value}. Change the study instead."
                )
        assert study is not None
        found = _of_study(Path(study))
    return found if public is None else found.changed(public=public)


def _check_numbers(clients: int | None, public: float | None, image: int | None) -> None:
    if clients is not None and clients < 1:
        raise AccordError(f"--clients: expected 1 or more; found {clients}.")
    if public is not None and (math.isnan(public) or not 0 <= public < 1):
        raise AccordError(
            f"--public: expected a fraction of the images, from 0 to below 1; found {public:g}."
        )
    if image is not None and not 4 <= image <= 1024:
        raise AccordError(f"--image: expected a size from 4 to 1024 pixels; found {image}.")


def _of_study(path: Path) -> Source:
    raw, folder = read_study(path)
    if not raw.get("data"):
        raise AccordError(f"{path}: expected a section `data`; found none. Name the images in it.")
    sections = {key: raw[key] for key in ("data", "partition", "net") if raw.get(key) is not None}
    name = _name(str(raw.get("name") or path.stem))
    _checked(name, sections, folder)
    axes = ", ".join(grid_axes(sections))
    remark = f"The study is a grid ({axes}). The facts and costs are those of its first cell."
    rounds = section_of(raw, "rounds").get("count") if raw.get("rounds") is not None else None
    known = rounds if isinstance(rounds, int) else None
    return Source(name, sections, folder, known, (remark,) if axes else ())


def _name(of: str) -> str:
    """The name of the study that is written, with characters that a name may have."""
    allowed = re.sub(r"[^A-Za-z0-9._-]+", "-", of).strip("-._")
    return f"{allowed}-advised" if allowed else "advised"


def _checked(name: str, sections: Spec, folder: Path) -> Study:
    """A small study with these sections and the seeds of the study that is written."""
    asked = {"name": name, "recipes": ["closed-form-small"], "references": False, "seeds": SEEDS}
    return check_study({**asked, **sections}, folder)


def first_cell(sections: Spec) -> Spec:
    """Sections with the first value of each grid axis."""
    found = {key: dict(v) if isinstance(v, dict) else v for key, v in sections.items()}
    for name, values in grid_axes(sections).items():
        section, _, key = name.partition(".")
        found[section][key] = values[0]
    return found


def gather(source: Source, limits: Limits, data_root: Path | None, tell: Tell) -> Gathered:
    """Loads and partitions the images, and describes the federation.

    Seeds can draw different clients. The facts are those of the seed with the smallest client.
    """
    study = _checked(source.name, first_cell(source.sections), source.folder)
    trial = study.trials()[0]
    if trial.setup.partition.elsewhere or trial.setup.data.name == ELSEWHERE:
        raise AccordError(
            "the images of this study are at its clients, so that this machine knows no facts "
            "about them. Use --data with images that resemble those of the clients."
        )
    plan = Plan(study, data_root, tell)
    found = [plan.allocation(one)[1] for one in study.trials()]
    allocation = min(found, key=lambda one: int(one.partition.label_counts.sum(axis=1).min()))
    facts = _facts(trial, allocation, source, limits)
    columns = allocation.dataset.train.columns
    several = [name for name, values in columns.items() if len(set(values)) > 1]
    tested = set(range(len(allocation.site_names))) <= set(allocation.owners("test").tolist())
    return Gathered(facts, source, allocation.dataset.augment, tuple(several), tested)


def _numbered(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"client {name}" for name in names)


def _facts(trial: Trial, allocation: Allocation, source: Source, limits: Limits) -> Facts:
    partition, scheme = allocation.partition, trial.setup.partition
    _, height, width, channels = allocation.dataset.train.images.shape
    chosen = (source.sections.get("net") or {}).get("backbone")
    return Facts(
        counts=partition.label_counts,
        clients=partition.names if scheme.named_by else _numbered(partition.names),
        classes=allocation.classes,
        height=height,
        width=width,
        channels=channels,
        public=len(allocation.split.public),
        labelled=not limits.unlabelled,
        validation=len(allocation.split.validation),
        exchanges=limits.exchanges or source.rounds or 1,
        megabytes=limits.megabytes,
        private=limits.private,
        one_net=limits.one_net,
        gpu=torch.cuda.is_available() if limits.gpu is None else limits.gpu,
        simulated=scheme.named_by is None,
        backbone=trial.setup.net.backbone if chosen is not None else None,
    )
