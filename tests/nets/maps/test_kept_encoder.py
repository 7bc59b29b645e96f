"""An encoder that somebody kept, as fixed features."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from accord.core.config import parse
from accord.core.errors import AccordError
from accord.messages import NetHeader
from accord.messages.saved_model import SavedModel, save_model
from accord.model.predictor import Predictor
from accord.nets.maps import FeatureMap, MapConfig, draw_map, patches
from accord.nets.net import loaded_net
from nets.maps.support import at, drawn, noise, origins


@pytest.fixture(autouse=True)
def _few_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patches, "PICTURES", 6)
    monkeypatch.setattr(patches, "SAMPLE", 1_000)


def kept(model: Path, **parameters: Any) -> MapConfig:
    spec = {"use": "encoder", "model": str(model), "stages": 1, "grid": 1, **parameters}
    return MapConfig(blocks=[spec])


@pytest.mark.parametrize("net", [0, 1])
def test_a_kept_encoder_gives_the_features_it_gave(model: Path, net: int) -> None:
    config = kept(model, net=net)
    assert config.blocks[0]["backbone"] == "conv4"
    assert config.blocks[0]["norm"] == "batch"
    assert config.blocks[0]["digest"]
    assert not config.needs_public
    found = drawn(config)
    predictor = Predictor.load(model)
    own = loaded_net(predictor.header.net, 1, 10, predictor.weights(net)).eval()
    images = noise(3, 1, 8, 8)
    # The study normalises otherwise than the encoder was used to: it must see what it knows.
    raw = images * 0.35 + 0.3
    with torch.inference_mode():
        expected = own.encoder((raw - predictor.header.mean[0]) / predictor.header.std[0])
    torch.testing.assert_close(at(found, images), expected, rtol=1e-4, atol=1e-5)
    other = drawn(kept(model, net=1 - net))
    assert (at(other, images) - expected).abs().max() > 0.01


def test_a_client_needs_no_file_of_it(model: Path) -> None:
    config = kept(model)
    values, told = draw_map(config, 1, origins()), config.model_dump(mode="json")
    shutil.rmtree(model)
    found = FeatureMap(MapConfig.model_validate(told), 1).eval()
    found.load_state_dict(values)
    assert at(found, noise(2, 1, 8, 8)).isfinite().all()


def test_a_message_names_no_folder_and_opens_none(model: Path) -> None:
    """A briefing with another folder must not make a client look into it."""
    sent = kept(model).sent()
    assert sent.blocks[0]["model"] == ""
    assert str(model) not in sent.model_dump_json()
    values = draw_map(kept(model), 1, origins())
    shutil.rmtree(model)
    found = FeatureMap(MapConfig.model_validate(sent.model_dump(mode="json")), 1).eval()
    found.load_state_dict(values)
    inner = {"blocks": [{**sent.blocks[0], "model": str(model), "digest": ""}]}
    outer = {"blocks": [{"use": "scores", "recipe": "below", "classes": 2, "map": inner}]}
    alone = {"blocks": inner["blocks"][0]}  # a map reads it like a list of one
    for told in (inner, outer, alone):
        with pytest.raises(AccordError, match="names a saved model and does not say its digest"):
            parse(
                NetHeader,
                {"backbone": "conv4", "norm": "batch", "head": "linear", "map": told},
                "header",
            )


def test_another_model_in_its_place_is_refused(model: Path) -> None:
    told = kept(model).model_dump(mode="json")
    saved = SavedModel.load(model)
    weights, second, combiner = saved.weights(0), saved.weights(1), saved.combiner()
    first = next(name for name in sorted(weights) if name.endswith("weight"))
    changed = weights[first].clone()
    changed.view(-1)[0] += 1e-3
    save_model(model, saved.header, [weights | {first: changed}, second], combiner)
    with pytest.raises(AccordError, match="is not the model it was"):
        draw_map(MapConfig.model_validate(told), 1, origins())
    assert kept(model).blocks[0]["digest"] != told["blocks"][0]["digest"]


def test_a_net_that_it_has_not_is_refused(model: Path) -> None:
    with pytest.raises(AccordError, match="has 2 nets, counted from 0; found net: 2"):
        kept(model, net=2)


def test_an_encoder_for_other_images_is_refused(model: Path) -> None:
    with pytest.raises(AccordError, match="channel"):
        draw_map(kept(model), 3, origins(channels=3))


def test_scores_need_a_closed_form(model: Path) -> None:
    blocks = [{"use": "kept-scores", "model": str(model)}]
    with pytest.raises(AccordError, match=r"expected a model of a closed form.*trained nets"):
        MapConfig.model_validate({"blocks": blocks})
