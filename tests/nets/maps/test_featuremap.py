"""The whole map: blocks side by side, mirror images, a kernel, and how a user spells it."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.nn import functional as F

from accord.core.config import parse
from accord.core.errors import AccordError
from accord.data.imageset import ImageSet
from accord.nets.maps import Around, FeatureMap, MapConfig, Origins, draw_map, patches
from accord.nets.maps.encoders import StageModule
from accord.nets.maps.patches import Patches
from accord.nets.settings import NetConfig
from core.cases import looped
from nets.maps.support import PUBLIC, SMALL, TEACHER, at, drawn, noise, origins, teacher
from tests_support import digits


@pytest.fixture(autouse=True)
def _few_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patches, "PICTURES", 6)
    monkeypatch.setattr(patches, "SAMPLE", 1_000)


# --- blocks side by side -------------------------------------------------------------------------


@looped(
    ("blocks", "landmarks", "width"),
    [
        ([SMALL], 0, 2 * 4 * 9),
        ([{**SMALL, "grid": 2, "count": 5}], 0, 2 * 5 * 4),
        ([SMALL, {**SMALL, "size": 5, "count": 3, "grid": 1}], 0, 2 * 4 * 9 + 2 * 3),
        ([TEACHER], 0, (64 + 64) * 16),
        ([{**TEACHER, "stages": 1, "grid": 2}], 0, 64 * 4),
        ([SMALL, {**TEACHER, "grid": 1}], 0, 72 + 128),
        ([SMALL], 13, 13),
        ([PUBLIC, {**TEACHER, "grid": 1}], 40, 40),
    ],
)
def test_the_width_is_that_of_the_features(
    blocks: list[dict[str, Any]], landmarks: int, width: int
) -> None:
    for mirror, shape in product((False, True), ((8, 8), (16, 12))):
        found = drawn(MapConfig(blocks=blocks, landmarks=landmarks, mirror=mirror))
        features = at(found, noise(3, 1, *shape))
        assert features.shape == (3, found.width) == (3, width), (mirror, shape)
        assert features.isfinite().all(), (mirror, shape)


@pytest.mark.parametrize("stages", [1, 2, 3])
def test_the_width_of_the_last_stages_of_resnet10(stages: int) -> None:
    block = {**TEACHER, "backbone": "resnet10", "stages": stages, "grid": 3}
    source = origins(channels=3, side=32, public=4, backbone="resnet10")
    found = drawn(MapConfig(blocks=[block]), source, 3)
    assert found.width == sum([128, 64, 32][:stages]) * 9
    assert at(found, noise(2, 3, 32, 32)).shape == (2, found.width)


def test_more_stages_than_an_encoder_has_are_refused() -> None:
    config = MapConfig(blocks=[{**TEACHER, "stages": 9}])
    with pytest.raises(AccordError, match=r"conv4 has \d stages; found stages: 9"):
        FeatureMap(config, 1)


def test_blocks_stand_side_by_side_in_order_times_their_weights() -> None:
    specs = [{**SMALL, "weight": 0.5}, {**TEACHER, "weight": 3.0}]
    images = noise(3, 1, 8, 8)
    together = at(drawn(MapConfig(blocks=specs)), images)
    alone = [at(drawn(MapConfig(blocks=[{**spec, "weight": 1}])), images) for spec in specs]
    expected = torch.cat([0.5 * alone[0], 3 * alone[1]], dim=1)
    torch.testing.assert_close(together, expected)


def test_two_blocks_of_a_kind_have_different_dictionaries() -> None:
    found = draw_map(MapConfig(blocks=[SMALL, SMALL]), 1, origins())
    assert not torch.equal(found["blocks.0.dictionary"], found["blocks.1.dictionary"])


def test_under_a_kernel_a_block_counts_by_its_weight_however_wide() -> None:
    # Squared distances between images, from each block: 4 to 1 for weights of 2 and 1.
    wide, narrow = {**SMALL, "count": 20, "weight": 2}, {**SMALL, "size": 2, "count": 2}
    source = origins()
    found = drawn(MapConfig(blocks=[wide, narrow], landmarks=10), source)
    assert found.kernel is not None
    with torch.inference_mode():
        features = found.side_by_side(source.images(torch.arange(40)))
    a = (features - found.kernel.centre) * found.kernel.scale
    changing = features.std(dim=0) > 1e-3 * features.std(dim=0).max()
    assert changing.float().mean() > 0.9
    share = [part.var(dim=0).sum().item() for part in torch.split(a, found.widths, dim=1)]
    assert share[0] / share[1] == pytest.approx(4, rel=0.1)
    assert 2 * sum(share) == pytest.approx(1, rel=0.05)


def test_stages_are_averages_of_the_encoders_own_maps() -> None:
    images, encoder = noise(3, 1, 16, 16), teacher()
    with torch.inference_mode():
        maps = encoder.forward_stages(images)[-2:]
        features = encoder(images)
    alone = drawn(MapConfig(blocks=[{**TEACHER, "stages": 1, "grid": 1}]))
    torch.testing.assert_close(at(alone, images), features, rtol=1e-5, atol=1e-6)
    both = drawn(MapConfig(blocks=[{**TEACHER, "stages": 2, "grid": 1}]))
    expected = torch.cat([one.mean(dim=(2, 3)) for one in maps], dim=1)
    torch.testing.assert_close(at(both, images), expected, rtol=1e-5, atol=1e-6)
    # A map as large as the grid, or smaller, is read place by place.
    side = maps[-1].shape[2]
    fine = drawn(MapConfig(blocks=[{**TEACHER, "stages": 1, "grid": 2 * side}]))
    expected = F.interpolate(maps[-1], scale_factor=2, mode="nearest").flatten(1)
    torch.testing.assert_close(at(fine, images), expected, rtol=1e-5, atol=1e-6)


@looped("blocks", [[SMALL], [SMALL, TEACHER]])
@looped("landmarks", [0, 12])
def test_an_image_and_its_mirror_image_have_the_same_features(
    blocks: list[dict[str, Any]], landmarks: int
) -> None:
    images = noise(4, 1, 8, 8)
    mirrored = drawn(MapConfig(blocks=blocks, landmarks=landmarks, mirror=True))
    torch.testing.assert_close(at(mirrored, images), at(mirrored, images.flip(3)))
    assert (at(mirrored, images) - at(mirrored, images.flip(2))).abs().max() > 0.01
    plain = drawn(MapConfig(blocks=blocks, landmarks=landmarks, mirror=False))
    assert (at(plain, images) - at(plain, images.flip(3))).abs().max() > 0.01
    if not landmarks:
        mean = (at(plain, images) + at(plain, images.flip(3))) / 2
        torch.testing.assert_close(at(mirrored, images), mean)


@pytest.mark.parametrize("landmarks", [0, 12])
def test_an_image_alone_is_as_in_a_batch(landmarks: int) -> None:
    found = drawn(MapConfig(blocks=[SMALL, TEACHER], landmarks=landmarks, mirror=True))
    images = noise(4, 1, 8, 8)
    alone = torch.cat([at(found, image[None]) for image in images])
    torch.testing.assert_close(at(found, images), alone, rtol=1e-3, atol=1e-3)


def test_frozen_is_frozen() -> None:
    found = drawn(MapConfig(blocks=[SMALL, TEACHER])).train()
    block = found.blocks[1]
    assert isinstance(block, StageModule)
    assert not any(module.training for module in block.modules())
    before = {name: tensor.clone() for name, tensor in found.state_dict().items()}
    images = noise(4, 1, 8, 8)
    together = at(found, images)
    torch.testing.assert_close(at(found, images[:1]), together[:1], rtol=1e-4, atol=1e-5)
    assert all(torch.equal(before[name], t) for name, t in found.state_dict().items())


# --- its values ----------------------------------------------------------------------------------


@pytest.mark.parametrize("landmarks", [0, 12])
def test_values_make_the_same_map_anywhere(landmarks: int, tmp_path: Path) -> None:
    config = MapConfig(blocks=[PUBLIC, TEACHER], landmarks=landmarks, mirror=True)
    values = draw_map(config, 1, origins())
    again = draw_map(config, 1, origins())
    assert values.keys() == again.keys() == FeatureMap(config, 1).state_dict().keys()
    assert all(torch.equal(values[name], again[name]) for name in values)
    save_file(values, tmp_path / "map.safetensors")
    travelled = MapConfig.model_validate_json(config.model_dump_json())
    assert travelled == config
    one, two = FeatureMap(config, 1).eval(), FeatureMap(travelled, 1).eval()
    one.load_state_dict(values)
    two.load_state_dict(load_file(tmp_path / "map.safetensors"))
    images = noise(3, 1, 8, 8)
    assert torch.equal(at(one, images), at(two, images))


def test_another_seed_is_another_map() -> None:
    config = MapConfig(blocks=[SMALL], landmarks=12)
    one, two = (draw_map(config, 1, origins(seed)) for seed in (0, 1))
    assert not torch.equal(one["blocks.0.dictionary"], two["blocks.0.dictionary"])
    assert not torch.equal(one["kernel.landmarks"], two["kernel.landmarks"])


def test_the_kernels_features_have_a_public_mean_of_zero() -> None:
    source = origins()
    found = drawn(MapConfig(blocks=[SMALL], landmarks=12, mirror=True), source)
    phi = at(found, source.images(torch.arange(40)))
    assert phi.mean(dim=0).abs().max() < 1e-3
    assert phi.std(dim=0).min() > 1e-3


def test_more_landmarks_than_public_images_are_refused() -> None:
    with pytest.raises(AccordError, match="landmarks"):
        draw_map(MapConfig(blocks=[SMALL], landmarks=41), 1, origins(public=40))


def test_landmarks_that_are_all_alike_are_refused() -> None:
    images = np.repeat(digits()[0][:1], 20, axis=0)
    alike = ImageSet(images, np.arange(20), np.zeros(20, dtype=np.int64))
    with pytest.raises(AccordError, match="alike"):
        draw_map(MapConfig(blocks=[SMALL], landmarks=5), 1, Origins(0, alike, (0.3,), (0.35,)))


# --- as a user writes it -------------------------------------------------------------------------


def test_blocks_are_spelled_out() -> None:
    full = MapConfig(blocks=[{"use": "patches"}]).blocks
    assert full == ({"use": "patches", **Patches().model_dump()},)
    for spelling in ("patches", ["patches"], {"use": "patches"}, ({"use": "patches", **full[0]},)):
        assert MapConfig.model_validate({"blocks": spelling}).blocks == full


def test_the_default_is_spelled_out_too() -> None:
    assert MapConfig() == MapConfig(blocks=[{"use": "patches"}])


@looped(
    ("blocks", "said"),
    [
        ("patch", "unknown block 'patch'; did you mean 'patches'"),
        ([{"use": "patches", "sise": 3}], "unknown key 'map.blocks[0].sise'; did you mean 'size'"),
        (
            [{"use": "patches", "size": 0}],
            "'map.blocks[0].size': expected greater than or equal to 1",
        ),
        ([{"use": "patches", "weight": 0}], "'map.blocks[0].weight'"),
        ([{"use": "patches", "source": "private"}], "'map.blocks[0].source'"),
        ([{"use": "encoder"}], "'map.blocks[0].model' is missing"),
        ([{"use": "encoder", "model": "nowhere"}], "nowhere is no saved model"),
        ([], "'map.blocks': expected at least 1"),
        ([{"size": 3}], "'map.blocks[0]': expected a name or a mapping with 'use'"),
        (5, "'map.blocks[0]': expected a name or a mapping with 'use'"),
        (None, "'map.blocks[0]': expected a name or a mapping with 'use'"),
    ],
)
def test_mistakes_are_named(blocks: Any, said: str) -> None:
    with pytest.raises(AccordError) as error:
        parse(MapConfig, {"blocks": blocks}, "map")
    assert said in str(error.value)


def test_a_teacher_is_settled_by_the_studys_net() -> None:
    config = MapConfig.model_validate({"blocks": [SMALL, {"use": "teacher", "stages": 2}]})
    with pytest.raises(ValueError, match="not known yet"):
        FeatureMap(config, 3)
    settled = config.settled(Around(NetConfig(backbone="resnet10", norm="group"), 32), flips=True)
    assert settled.blocks[0] == config.blocks[0]
    assert settled.blocks[1]["backbone"] == "resnet10"
    assert settled.blocks[1]["norm"] == "group"
    assert FeatureMap(settled, 3).width == 72 + (64 + 128) * 16
    assert MapConfig.model_validate(settled.model_dump()) == settled


@pytest.mark.parametrize("flips", [False, True])
def test_mirror_images_count_where_the_dataset_allows_flips_unless_told(flips: bool) -> None:
    assert MapConfig().settled(Around(NetConfig(), 32), flips).mirror is flips
    for told in (False, True):
        assert MapConfig(mirror=told).settled(Around(NetConfig(), 32), flips).mirror is told


@looped(
    ("config", "public", "teachers"),
    [
        (MapConfig(), False, 0),
        (MapConfig(blocks=[PUBLIC]), True, 0),
        (MapConfig(blocks=[SMALL], landmarks=5), True, 0),
        (MapConfig(blocks=[SMALL, TEACHER]), True, 1),
        (MapConfig(blocks=[{**TEACHER, "teachers": 3}, TEACHER]), True, 3),
    ],
)
def test_a_map_says_what_it_needs(config: MapConfig, public: bool, teachers: int) -> None:
    assert config.needs_public is public
    assert config.teachers == teachers
