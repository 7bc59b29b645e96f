"""Studies with a shift: its keys are grid axes, and every recipe meets the same changed images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import accord
from accord.core.errors import AccordError
from accord.data.allocation import open_allocation
from accord.data.settings import NO_SHIFT
from accord.federation.exchange.brief import only_trial
from accord.messages import Upload
from accord.record.record import Record
from accord.study.study import Study, check_study
from accord.study.teacher_study import teacher_study

Raw = dict[str, Any]
SHIFT = {"rotation": 60, "colour": 0.8, "noise": 0.2, "labels": 0.3}


@pytest.fixture
def shifted(study: Raw) -> Raw:
    study["data"] |= {"test_per_client": 0.2}
    study["budget"] = {"epochs": 1, "batch": 32}
    study["recipes"] = ["ce-ensemble", "central"]
    return {**study, "shift": {**SHIFT, "scale": [0, 1]}}


def setups_of(raw: Raw) -> Study:
    return check_study(raw, Path())


def test_a_study_with_two_strengths(shifted: Raw, tmp_path: Path) -> None:
    out = tmp_path / "run"
    accord.run(shifted, overrides=["shift.scale=0"], out=out, workers=1, quiet=True)
    accord.run(shifted, out=out, workers=1, quiet=True)  # a record takes more strengths
    record = Record(out)
    rows = record.rows()
    # Each strength has its own rows, also of the bound that has all images in one place.
    assert {(row["recipe"], row["shift.scale"]) for row in rows} == {
        (recipe, scale) for recipe in ("ce-ensemble", "central") for scale in (0, 1)
    }
    assert len({row["trial"] for row in rows}) == 4
    assert all(row["site_mean"] is not None for row in rows)
    counted = 0
    for trial in record.trials():
        for index, path in enumerate(sorted(trial.path.glob("uploads/*.safetensors"))):
            counts = Upload.load(path).tensors["label_counts"].tolist()
            assert counts == trial.info()["label_counts"][index]
            counted += 1
    assert counted == 2 * (3 + 1)
    infos = [trial.info() for trial in record.trials()]
    values = {info["config"]["shift"]["scale"]: info["shift"] for info in infos}
    assert values[0] == {}
    assert sorted(site["rotation"][0] for site in values[1].values()) == [-60, 0, 60]
    _clients_see_what_the_study_says(out)
    with pytest.raises(AccordError, match=r"shift\.rotation was 60\.0, now it is 5\.0"):
        accord.run(shifted, overrides=["shift.rotation=5"], out=out, workers=1, quiet=True)


def _clients_see_what_the_study_says(out: Path) -> None:
    """The allocations of the record, as a worker opens them, have its shifts."""
    opened = [open_allocation(path) for path in out.glob("allocations/*.json")]
    assert sorted(one.shift.scale for one in opened) == [0, 0, 1, 1]
    for one in opened:
        assert one.shift.model_dump(exclude_defaults=True, exclude={"scale"}) == SHIFT
        original = np.asarray(one.dataset.train.images)[one.held(0)]
        data = one.client(0)
        changed = (data.images[data.rows] != original).mean()
        assert changed == 0 if one.shift.scale == 0 else changed > 0.3


def test_images_elsewhere_have_no_shift(study: Raw) -> None:
    study |= {"partition": {"scheme": "sites", "names": ["a", "b"]}, "shift": {"blur": 1}}
    with pytest.raises(AccordError, match=r"'shift' changes the images .* Remove the section"):
        setups_of(study)
    setups_of({**study, "shift": {"blur": 1, "scale": 0}})


def test_only_what_clients_hold_is_shifted(shifted: Raw) -> None:
    """Not the public images of a bound or of a teacher, nor the images of people who answer."""
    shifted["data"] |= {"public": 0.2}
    shifted["recipes"] = ["public-teacher", "central", "local-only"]
    found = {trial.recipe.name: trial.setup for trial in setups_of(shifted).trials()}
    assert found["public-teacher"].shift == NO_SHIFT
    assert found["central"].shift.scale == found["local-only"].shift.scale == 1
    assert found["central"].partition.pooled == 1
    assert found["central"].partition.name == "dirichlet"  # it says which client sees an image
    del shifted["data"]["test_per_client"]
    shifted["shift"]["scale"] = 0
    plain = {trial.recipe.name: trial.setup for trial in setups_of(shifted).trials()}
    assert plain["central"].partition.pooled == 1  # wrong labels are those of a client, too
    shifted["shift"]["labels"] = 0
    plain = {trial.recipe.name: trial.setup for trial in setups_of(shifted).trials()}
    assert plain["central"].partition.name == "iid"
    assert teacher_study(shifted).setups[0].shift == NO_SHIFT
    shifted |= {"recipes": ["ce-ensemble"], "shift": {**SHIFT, "scale": [0, 1]}}
    assert only_trial(setups_of(shifted)).setup.shift == NO_SHIFT
