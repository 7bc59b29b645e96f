"""What every registered block of fixed features must do, alone and within a map."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
import torch

from accord.core.parts import make_part
from accord.nets.maps import FeatureMap, MapConfig, draw_map, patches
from accord.nets.maps.base import Block, BlockModule, blocks
from core.cases import looped
from nets.maps.support import SMALL, TEACHER, at, closed_model, drawn, noise, origins

# Settings that make a block small. One that is not here is asked for as it is.
SETTINGS: dict[str, dict[str, Any]] = {
    "patches": SMALL,
    "teacher": TEACHER,
    "rounds": {**TEACHER, "use": "rounds", "recipe": "fedavg"},
}
# Scores are those of another map, which no study stands behind here; see test_scores.py.
every_block = looped("name", [name for name in blocks.names() if name != "scores"])
SHAPES = [(1, 8, 8), (1, 16, 12)]


@pytest.fixture(autouse=True)
def _few_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patches, "PICTURES", 6)
    monkeypatch.setattr(patches, "SAMPLE", 1_000)


def spec_of(name: str, model: Path) -> dict[str, Any]:
    """The block as a user writes it; one that reads a saved model is given one."""
    folder = closed_model(model) if name == "kept-scores" else model
    reads = {"model": str(folder)} if "model" in blocks.get(name).model_fields else {}
    return {"use": name, **SETTINGS.get(name, {}), **reads}


def block_of(name: str, model: Path) -> Block:
    return make_part(blocks, MapConfig(blocks=[spec_of(name, model)]).blocks[0], "block")


def filled(block: Block) -> BlockModule:
    module = block.build(1).eval()
    module.load_state_dict(block.draw(1, origins()))
    return module


def kinds(base: type[Any]) -> set[type[Any]]:
    """All classes of blocks that can be made, wherever they stand."""
    further = {found for kind in base.__subclasses__() for found in kinds(kind)}
    return further if inspect.isabstract(base) else {base, *further}


def test_every_block_that_can_be_made_is_registered() -> None:
    assert {blocks.get(name) for name in blocks} == kinds(Block)


@every_block
def test_an_image_has_as_many_features_as_stated_and_they_depend_on_it(
    name: str, model: Path
) -> None:
    module = filled(block_of(name, model))
    for shape in SHAPES:
        with torch.inference_mode():
            found = module(noise(3, *shape))
        assert found.shape == (3, module.width), shape
        assert found.isfinite().all(), shape
        assert len({tuple(row) for row in found.tolist()}) == 3, shape


@every_block
def test_an_image_alone_and_in_another_order_is_as_in_a_batch(name: str, model: Path) -> None:
    module, images = filled(block_of(name, model)), noise(4, 1, 8, 8)
    with torch.inference_mode():
        together, turned = module(images), module(images.flip(0))
        alone = torch.cat([module(image[None]) for image in images])
    torch.testing.assert_close(alone, together, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(turned.flip(0), together, rtol=1e-4, atol=1e-5)


@every_block
def test_the_same_origins_give_the_same_values_to_the_last_bit(name: str, model: Path) -> None:
    block = block_of(name, model)
    one, two = block.draw(1, origins()), block.draw(1, origins())
    assert one.keys() == two.keys() == block.build(1).state_dict().keys()
    assert all(torch.equal(one[key], two[key]) for key in one)


@every_block
def test_nothing_of_it_is_trained_or_moved_by_images(name: str, model: Path) -> None:
    module = filled(block_of(name, model)).train()
    assert not any(parameter.requires_grad for parameter in module.parameters())
    before = {key: value.clone() for key, value in module.state_dict().items()}
    module(noise(4, 1, 8, 8))
    assert all(torch.equal(before[key], value) for key, value in module.state_dict().items())


@every_block
def test_it_is_drawn_without_public_images_unless_it_needs_them(name: str, model: Path) -> None:
    block = block_of(name, model)
    if not block.needs_public:
        with_them, without = (block.draw(1, origins(public=count)) for count in (40, 0))
        assert all(torch.equal(with_them[key], without[key]) for key in with_them)
    assert block.asks_teachers == 0 or block.needs_public  # teachers learn from public images


@every_block
def test_in_a_map_its_features_are_times_its_weight(name: str, model: Path) -> None:
    spec, images = spec_of(name, model), noise(3, 1, 8, 8)
    with torch.inference_mode():
        alone = filled(block_of(name, model))(images)
    for weight in (1.0, 0.25):
        found = drawn(MapConfig(blocks=[{**spec, "weight": weight}], mirror=False))
        torch.testing.assert_close(at(found, images), weight * alone, rtol=1e-4, atol=1e-5)


@every_block
def test_a_client_builds_it_from_the_message_alone(name: str, model: Path) -> None:
    config = MapConfig(blocks=[spec_of(name, model)], mirror=True)
    values = draw_map(config, 1, origins())
    travelled = MapConfig.model_validate_json(config.model_dump_json())
    assert travelled == config
    found = FeatureMap(travelled, 1).eval()
    found.load_state_dict(values)
    images = noise(2, 1, 8, 8)
    assert torch.equal(at(found, images), at(drawn(config), images))


@every_block
def test_every_setting_says_what_it_means(name: str) -> None:
    fields = blocks.get(name).model_fields
    assert [key for key, field in fields.items() if not field.description] == []
