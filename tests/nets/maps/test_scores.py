"""The scores of an earlier closed form as features."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from accord.core.errors import AccordError
from accord.messages import unprefixed
from accord.messages.saved_model import SavedModel, save_model
from accord.nets.limits import largest_pixels
from accord.nets.maps import Around, Earlier, FeatureMap, MapConfig, draw_map, patches
from accord.nets.settings import NetConfig
from accord.study.check import check
from core.cases import looped
from nets.maps.support import SMALL, at, closed_model, drawn, noise, origins

AROUND = Around(NetConfig(), 8, classes=3)


@pytest.fixture(autouse=True)
def _few_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patches, "PICTURES", 6)
    monkeypatch.setattr(patches, "SAMPLE", 1_000)


def standing_on(below: MapConfig, *others: dict[str, Any], mirror: bool) -> MapConfig:
    blocks = [{"use": "scores", "recipe": "below"}, *others]
    around = replace(AROUND, below=below.model_dump(mode="json"))
    return MapConfig.model_validate({"blocks": blocks}).settled(around, flips=mirror)


@looped("mirror", [True, False])
@looped("landmarks", [0, 5])
def test_they_are_the_earlier_scores_mirrored_or_not(landmarks: int, mirror: bool) -> None:
    """The same numbers as of the earlier map and head, although its own mirror is left out."""
    config = MapConfig.model_validate({"blocks": [SMALL], "landmarks": landmarks})
    below = config.settled(AROUND, flips=mirror)
    values = draw_map(below, 1, origins())
    first = FeatureMap(below, 1).eval()
    first.load_state_dict(values)
    draws = torch.Generator().manual_seed(1)
    head = {
        "prototypes": torch.randn(3, first.width, generator=draws),
        "bias": torch.randn(3, generator=draws),
    }
    # Images that the earlier net saw with another normalisation: x·0.35 + 0.3 = z·0.3 + 0.2.
    earlier = Earlier(values, head, (), (0.2,), (0.3,))
    top = standing_on(below, {**SMALL, "variant": 1}, mirror=mirror)
    found = drawn(top, replace(origins(), earlier=earlier))
    images = noise(4, 1, 8, 8)
    features = at(found, images)
    assert features.shape == (4, 3 + first.width if not landmarks else features.shape[1])
    seen = (images * 0.35 + 0.3 - 0.2) / 0.3
    expected = at(first, seen) @ head["prototypes"].T + head["bias"]
    torch.testing.assert_close(features[:, :3], expected, rtol=1e-4, atol=1e-4)


def test_another_variant_draws_another_dictionary_from_the_same_images() -> None:
    plain, same, other = (
        draw_map(MapConfig.model_validate({"blocks": [{**SMALL, **more}]}), 1, origins())
        for more in ({}, {"variant": 0}, {"variant": 1})
    )
    assert all(torch.equal(plain[name], same[name]) for name in plain)
    assert not torch.equal(plain["blocks.0.dictionary"], other["blocks.0.dictionary"])


def test_a_map_that_is_not_known_yet_cannot_be_built() -> None:
    config = MapConfig.model_validate({"blocks": [{"use": "scores", "recipe": "below"}]})
    with pytest.raises(ValueError, match="the earlier map is not known yet"):
        FeatureMap(config, 1)


def test_those_of_a_saved_model_are_the_same(model: Path) -> None:
    """Images that the model knows with another normalisation are seen as it knows them."""
    saved = SavedModel.load(closed_model(model))
    weights, header = saved.weights(0), saved.header
    inner = FeatureMap(MapConfig.model_validate(header.net.map), 1).eval()
    inner.load_state_dict(unprefixed("encoder.", weights))
    found = drawn(MapConfig(blocks=[{"use": "kept-scores", "model": str(saved.folder)}]))
    images = noise(4, 1, 8, 8)
    seen = (images * 0.35 + 0.3 - header.mean[0]) / header.std[0]
    expected = at(inner, seen) @ weights["head.prototypes"].T + weights["head.bias"]
    torch.testing.assert_close(at(found, images), expected, rtol=1e-4, atol=1e-4)


def test_no_image_goes_beyond_their_limits(model: Path) -> None:
    """Scores have limits like all other features, so that nobody can send larger sums."""
    saved = SavedModel.load(closed_model(model))
    blocks = [{"use": "kept-scores", "model": str(saved.folder)}, {**SMALL, "variant": 1}]
    found = drawn(MapConfig(blocks=tuple(blocks)))
    pixels = largest_pixels((0.3,), (0.35,), 8, 8)
    limits = found.limits(pixels)
    assert limits.low.isfinite().all()
    assert limits.high.isfinite().all()
    draws = torch.Generator().manual_seed(3)
    raw = torch.rand(200, 1, 8, 8, generator=draws)
    features = at(found, (torch.cat([raw, raw.round()]) - 0.3) / 0.35)
    assert (features >= limits.low).all()
    assert (features <= limits.high).all()
    assert float(features.norm(dim=1).max()) <= limits.norm
    # They are not so wide that they allow anything.
    assert float(limits.high[:10].max()) < 100 * float(features[:, :10].abs().max())


def test_a_model_that_is_not_what_it_says_is_refused(model: Path) -> None:
    saved = SavedModel.load(closed_model(model))
    weights, combiner = saved.weights(0), saved.combiner()
    without = {name: tensor for name, tensor in weights.items() if name != "head.bias"}
    narrow = weights | {"head.prototypes": weights["head.prototypes"][:, 1:]}
    whole = weights | {"head.bias": weights["head.bias"].int()}
    inner = saved.header.net.map or {}
    unsettled = {**inner, "blocks": [{"use": "scores", "recipe": "below"}]}
    cases: tuple[tuple[dict[str, Any], dict[str, torch.Tensor], str], ...] = (
        (inner, without, r"'bias' should be float32 \(10,\); found absent"),
        (inner, narrow, r"'prototypes' should be float32 \(10, 72\); found float32 \(10, 71\)"),
        (inner, whole, r"'bias' should be float32 \(10,\); found int32"),
        (unsettled, weights, "its net cannot be built: the earlier map is not known yet"),
        ({}, weights, "damaged"),
    )
    for said, tensors, wrong in cases:
        net = saved.header.net.model_copy(update={"map": said})
        header = saved.header.model_copy(update={"net": net})
        save_model(saved.folder, header, [tensors], combiner)
        with pytest.raises(AccordError, match=wrong):
            MapConfig(blocks=({"use": "kept-scores", "model": str(saved.folder)},))


def test_keys_that_are_set_automatically_are_refused() -> None:
    told: list[tuple[str, dict[str, Any]]] = [
        ("digest", {"use": "kept-scores", "model": "nowhere", "digest": "00"}),
        ("classes", {"use": "kept-scores", "model": "nowhere", "classes": 3}),
        ("backbone", {"use": "encoder", "model": "nowhere", "backbone": "cnn3"}),
        ("map", {"use": "scores", "recipe": "closed-form", "map": {}}),
        ("norm", {"use": "teacher", "norm": "group"}),
        ("clients", {"use": "rounds", "recipe": "turns", "clients": 3}),
    ]
    for key, block in told:
        with pytest.raises(AccordError, match=f"[`']{key}[`'] is set automatically. Remove it"):
            check({"name": "own", "fusion": ["ridge"], "map": {"blocks": [block]}}, "recipes.own")
