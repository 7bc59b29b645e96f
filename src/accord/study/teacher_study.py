"""The study of `accord teacher`: one net, trained as the recipe public-teacher, for one seed.

Everything else of the user's study is left out: its recipes, seeds, shift and rounds change neither
the public images nor a net that learns from them in one place. The partition is left out too,
unless it has a part in the choice of the images.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from accord.core.errors import AccordError, nearest
from accord.data.known import DATASETS
from accord.data.schemes import EACH
from accord.study.resolve import resolve
from accord.study.settings import Setup, grid_axes
from accord.study.study import Study, check_study, read_study
from accord.study.syntax import Spec

NAME = "teacher"
PUBLIC = 0.1  # the fraction of public images if only a dataset is named
# What the teacher learns from → the recipe's `pooled`, and `data.dealt`.
IMAGES: dict[str, tuple[bool | str, str]] = {
    "public": ("public", "train"),
    "train": (True, "all"),
}
LEFT_OUT = ("teacher", "mergenet", "rounds", "fusions", "shift")
ABOUT = "One net that learns from images in one place: a teacher."


def teacher_study(
    source: Path | str | Mapping[str, Any],
    overrides: Sequence[str] = (),
    *,
    backbone: str | None = None,
    epochs: int | None = None,
    on: str = "public",
    seed: int = 0,
) -> Study:
    """The study that trains one teacher.

    `source` is a study (a file or a mapping) or the name of a dataset. A study's budget counts only
    where the recipe public-teacher has no value of its own; an override of a budget always counts.
    """
    _check_options(epochs, on, seed)
    raw, folder = read_study(_study_of(source, on), overrides)
    said = _section(raw, "teacher")
    chosen = backbone or said.get("backbone")
    if chosen is not None:
        raw["net"] = {**_section(raw, "net"), "backbone": chosen}
    pooled, dealt = IMAGES[on]
    raw["data"] = {**_section(raw, "data"), "dealt": dealt}
    own = _section(read_study({}, overrides)[0], "budget")
    epochs = said.get("epochs") if epochs is None else epochs
    if epochs is not None:
        own = {**own, "epochs": epochs}
    recipe = _recipe(f"{on}-teacher", pooled)
    asked = {
        **{key: value for key, value in raw.items() if key not in LEFT_OUT},
        "recipes": [{**recipe, "budget": {**recipe["budget"], **own}}],
        "seeds": [seed],
        "references": False,
    }
    setup = _only_setup(check_study(asked, folder), asked)
    if on == "public" and not setup.data.public:
        raise AccordError(
            "there are no public images to learn from: data.public is 0. Set it, for example "
            f"data.public={PUBLIC}, or use --on train."
        )
    # The budget is written where a later command with another one is told which value differs.
    kept = {key: value for key, value in asked.items() if key not in (*LEFT_OUT, "partition")}
    sections = setup.model_dump(mode="json", include={"data", "net", "budget"})
    if setup.partition.pooled:  # it has a part in the choice of the images
        alone = setup.partition.model_copy(update={"pooled": 0})
        sections["partition"] = alone.model_dump(mode="json")
    name = _name(asked["name"], setup, on, seed)
    return check_study(
        {**kept, **sections, "name": name, "recipes": [{**recipe, "budget": {}}]}, folder
    )


def _check_options(epochs: int | None, on: str, seed: int) -> None:
    if epochs is not None and epochs < 1:
        raise AccordError(f"--epochs: expected 1 or more; found {epochs}.")
    if on not in IMAGES:
        raise AccordError(f"--on: expected {' or '.join(IMAGES)}; found {on!r}.")
    if not 0 <= seed < 2**63:
        raise AccordError(f"--seed: expected a whole number from 0 to 2⁶³ − 1; found {seed}.")


def _study_of(source: Path | str | Mapping[str, Any], on: str) -> Path | Mapping[str, Any]:
    """The user's study, or a new one for the name of a dataset."""
    if isinstance(source, Mapping):
        return source
    if Path(source).suffix in (".yaml", ".yml"):
        return Path(source)
    name, known = str(source), DATASETS.names()
    if name not in known:
        raise AccordError(
            f"expected the name of a dataset, or a study file that ends in .yaml; found "
            f"{name!r}{nearest(name, known) or '.'} Known datasets: {', '.join(known)}."
        )
    public = PUBLIC if on == "public" else 0.0
    return {"name": NAME, "data": {"name": name, "public": public}}


def _section(raw: Spec, key: str) -> Spec:
    found = raw.get(key)
    if found is not None and not isinstance(found, Mapping):
        raise AccordError(f"{key!r}: expected a mapping of keys, found {found!r}.")
    return dict(found or {})


def _recipe(name: str, pooled: bool | str) -> Spec:
    """The recipe public-teacher with one net, as it is written in a record."""
    plain = resolve("public-teacher", Path()).model_dump(mode="json", exclude_none=True)
    return {**plain, "name": name, "about": ABOUT, "pooled": pooled, "copies": 1}


def _only_setup(study: Study, asked: Spec) -> Setup:
    """The setup of the study's only teacher. Raises AccordError if a grid asks for several."""
    setups = [trial.setup for trial in study.trials()]
    if len(setups) == 1 and setups[0].partition.leave_out == EACH:
        raise AccordError(
            "'partition.leave_out': expected one client or null, because one teacher is trained; "
            "found each. Choose one, for example partition.leave_out=null."
        )
    if len(setups) == 1:
        return setups[0]
    values = [setup.model_dump(mode="json") for setup in setups]
    for name, axis in grid_axes(asked).items():
        section, key = name.split(".")
        if len({repr(value[section].get(key)) for value in values}) > 1:
            choice = "--backbone " if name == "net.backbone" else f"{name}="
            raise AccordError(
                f"{name}: expected one value, because one teacher is trained; found {axis!r}. "
                f"Choose one, for example {choice}{axis[0]}."
            )
    raise AssertionError("several setups differ in no axis of the grid")


def _name(study: str, setup: Setup, on: str, seed: int) -> str:
    """The name of the record; other images, another net or another seed give another name."""
    images = [setup.data.name, Path(setup.data.path).stem if setup.data.path else ""]
    words = dict.fromkeys([NAME, study, *images, setup.net.backbone, on, f"s{seed}"])
    return "-".join(re.sub(r"[^A-Za-z0-9._-]+", "_", word) for word in words if word)
