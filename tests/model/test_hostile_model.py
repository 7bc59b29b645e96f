"""A saved model and messages that were changed, damaged, or ask for too much."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from accord.core.errors import AccordError
from accord.federation.answering import answer
from accord.messages import Briefing, NetHeader
from accord.messages.saved_model import COMBINER, ModelHeader, SavedModel, save_model
from accord.model.predictor import Predictor
from accord.nets.net import fresh_net, loaded_net
from tests_support import brief_for

NET = NetHeader(backbone="conv4", norm="batch", head="linear")
HEADER = ModelHeader(
    classes=("a", "b"),
    height=8,
    width=8,
    channels=1,
    mean=(0.5,),
    std=(0.25,),
    net=NET,
    nets=1,
    combiner="average",
    fusion={"use": "average"},
    origin={"run": "r"},
)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    weights = fresh_net(NET, 1, 2, torch.Generator().manual_seed(0)).state_dict()
    save_model(tmp_path / "model", HEADER, [weights], {})
    return tmp_path / "model"


def changes(value: Any) -> list[Any]:
    """The value with one leaf changed, for every leaf."""
    if isinstance(value, dict):
        return [{**value, key: new} for key in value for new in changes(value[key])]
    if isinstance(value, list):
        return [
            [*value[:i], new, *value[i + 1 :]]
            for i, one in enumerate(value)
            for new in changes(one)
        ]
    return [value + 1 if isinstance(value, int | float) else f"{value}x"]


def test_every_change_of_a_model_is_noticed(saved: Path) -> None:
    SavedModel.load(saved).weights(0)
    content = json.loads((saved / "model.json").read_text())
    assert len(changes(content)) > 12
    for changed in changes(content):
        (saved / "model.json").write_text(json.dumps(changed))
        with pytest.raises(AccordError, match=r"model\.json"):
            SavedModel.load(saved)
    (saved / "model.json").write_text(json.dumps(content))
    draws = random.Random(0)
    for name in ("net-0.safetensors", COMBINER):
        good = (saved / name).read_bytes()
        for place in (0, 9, *(draws.randrange(len(good)) for _ in range(10)), len(good) - 1):
            flipped = bytes([good[place] ^ 1])
            (saved / name).write_bytes(good[:place] + flipped + good[place + 1 :])
            with pytest.raises(AccordError, match="Save the model again"):
                (SavedModel.load(saved).weights(0), SavedModel.load(saved).combiner())
        (saved / name).write_bytes(good)
    for text in ("", "[]", "5", "{", "[" * 3000, '{"format": 2}', "null"):
        (saved / "model.json").write_text(text)
        with pytest.raises(AccordError):
            Predictor.load(saved)
    shutil.rmtree(saved)
    with pytest.raises(AccordError):
        Predictor.load(saved)


def test_models_that_ask_for_too_much_are_refused() -> None:
    wrong = {"height": 10**9, "width": 10**6, "channels": 10**9, "nets": 10**9}
    for key, value in wrong.items():
        with pytest.raises(ValueError, match=key):
            ModelHeader.model_validate({**HEADER.model_dump(), key: value})
    weights = fresh_net(NET, 1, 2, torch.Generator().manual_seed(0)).state_dict()
    patches = {"use": "patches", "size": 1024, "count": 15_000, "grid": 64}
    for net in (
        NET.model_copy(update={"backbone": "resnet50"}),
        NET.model_copy(update={"map": {"blocks": [patches] * 50}}),  # 89 GB and more
        NET.model_copy(update={"map": {"blocks": [{"use": "patches", "size": 10**9}]}}),
        NET.model_copy(update={"head": "prototypes"}),
    ):
        with pytest.raises(AccordError, match=r"net|expected"):
            loaded_net(net, 1, 2, weights)
    with pytest.raises(AccordError, match="head"):
        loaded_net(NET, 1, 10**9, weights)


def test_damaged_briefings_are_refused(tmp_path: Path) -> None:
    briefing = brief_for("ce-ensemble")
    path = tmp_path / "briefing.safetensors"
    briefing.save(path)
    good = path.read_bytes()
    draws = random.Random(0)
    for place in (*range(0, 40, 7), *(draws.randrange(len(good)) for _ in range(40))):
        flipped = bytes([good[place] ^ (1 << draws.randrange(8))])
        path.write_bytes(good[:place] + flipped + good[place + 1 :])
        with pytest.raises(AccordError):
            Briefing.load(path)
    for content in (b"", good[:7], good[:-1], b"\xff" * 8 + good[8:], draws.randbytes(500)):
        path.write_bytes(content)
        with pytest.raises(AccordError):
            Briefing.load(path)
    large = briefing.header.model_copy(
        update={"net": briefing.header.net.model_copy(update={"backbone": "resnet50"})}
    )
    Briefing(large, briefing.tensors).save(path)
    (tmp_path / "images" / "0").mkdir(parents=True)
    with pytest.raises(AccordError):
        answer(path, tmp_path / "images", "a", keep=tmp_path / "keep")
