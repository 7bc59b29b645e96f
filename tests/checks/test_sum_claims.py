"""Sums that the features of no images have are refused, and those of any images are accepted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from accord.checks import check_upload
from accord.checks.sums import limits_of
from accord.client.base import answer
from accord.client.make import make_client
from accord.closed_form.packing import PACKINGS, Packing
from accord.closed_form.sums import Sums
from accord.core.budget import Budget
from accord.core.errors import AccordError
from accord.core.randomness import torch_generator
from accord.data.imageset import ImageSet
from accord.messages import NET, Briefing, BriefingHeader, NetHeader, SummingSpec, Upload, prefixed
from accord.nets.maps.base import Around, Earlier, Origins
from accord.nets.maps.feature_map import MapConfig, draw_map
from accord.nets.net import net_with_map
from accord.nets.settings import NetConfig
from tests_support import CLASSES, digits, images_of

SMALL = {"use": "patches", "size": 3, "count": 20, "grid": 2}
HELD = [0] * 14 + [3] * 9 + [7]


def briefing_of(
    packing: Packing = "float32", landmarks: int = 0, *, scores: bool = False
) -> Briefing:
    config = MapConfig(blocks=(SMALL,), mirror=False, landmarks=landmarks)
    images, labels = digits()
    public = ImageSet(images, np.arange(200), labels[:200])
    source = Origins(0, public, (0.3,), (0.35,))
    values = draw_map(config, 1, source)
    if scores:
        config, values = with_scores(config, values, source)
    spec = config.model_dump(mode="json")
    header = BriefingHeader(
        seed=0,
        height=8,
        width=8,
        channels=1,
        classes=CLASSES,
        mean=(0.3,),
        std=(0.35,),
        augment="none",
        net=NetHeader(backbone="conv4", norm="batch", head="linear", map=spec),
        training=SummingSpec(map=spec, packing=packing),
        budget=Budget(epochs=1),
    )
    net = net_with_map(header.net, 1, len(CLASSES), values, torch_generator(0, "net"))
    return Briefing(header, prefixed(NET, net.state_dict()))


def with_scores(
    below: MapConfig, values: dict[str, Tensor], source: Origins
) -> tuple[MapConfig, dict[str, Tensor]]:
    """The scores of the closed form `below` beside other patches."""
    draws = torch_generator(0, "head")
    width = below.width(1)
    head = {
        "prototypes": torch.randn(len(CLASSES), width, generator=draws),
        "bias": torch.randn(len(CLASSES), generator=draws),
    }
    blocks = ({"use": "scores", "recipe": "below"}, {**SMALL, "variant": 1})
    around = Around(NetConfig(), 8, classes=len(CLASSES), below=below.model_dump(mode="json"))
    config = MapConfig(blocks=blocks, mirror=False).settled(around, flips=False)
    earlier = Earlier(values, head, (), source.mean, source.std)
    return config, draw_map(config, 1, replace(source, earlier=earlier))


def refused(briefing: Briefing, upload: Upload, **tensors: Tensor) -> str:
    with pytest.raises(AccordError) as caught:
        check_upload(Upload(upload.header, {**upload.tensors, **tensors}), briefing, "here")
    return str(caught.value)


def test_sums_of_any_images_are_accepted() -> None:
    draws = np.random.default_rng(0)
    extreme = (draws.random((12, 8, 8, 1)).round() * 255).astype(np.uint8)
    flat = np.full((5, 8, 8, 1), 255, np.uint8)
    for packing in PACKINGS:
        for landmarks in (0, 30):
            briefing = briefing_of(packing, landmarks)
            for pixels in (extreme, flat, extreme[:1], extreme[:2]):
                labels = np.arange(len(pixels)) % 3
                data = ImageSet(pixels, np.arange(len(pixels)), labels.astype(np.int64))
                upload = answer(make_client(data, briefing, "0"))
                check_upload(upload, briefing, f"{packing} {landmarks} {len(pixels)}")
            upload = answer(make_client(images_of(HELD), briefing, "0"))
            check_upload(upload, briefing, "digits")


def test_scatters_that_no_images_have_are_refused() -> None:
    briefing = briefing_of()
    upload = answer(make_client(images_of(HELD), briefing, "0"))
    found = Sums.of(upload.tensors)
    width = found.sums.shape[1]

    def with_scatter(scatter: Tensor) -> dict[str, Tensor]:
        return Sums(found.counts, found.sums, scatter).tensors("float32")

    within = found.scatter.clone()
    apart = (found.means - found.mean) * found.counts.double().sqrt()[:, None]
    within -= 0.9 * (apart.T @ apart)
    bad: dict[str, tuple[Callable[[], Tensor], str]] = {
        "scale": (lambda: found.scatter * 1e3, "should be at most"),
        "spectrum": (lambda: torch.diag(found.scatter.diagonal()), "more directions than its 24"),
        "class means": (lambda: within, "below that of its class means|further apart"),
        "negative": (lambda: -found.scatter, "below 0"),
    }
    for what, (make, said) in bad.items():
        told = refused(briefing, upload, **with_scatter(make()))
        assert any(part in told for part in said.split("|")), (what, told)
    both = Sums(found.counts, 8 * found.sums, 64 * found.scatter).tensors("float32")
    assert "map" in refused(briefing, upload, **both)
    assert len(limits_of(briefing).high) == width


def test_scores_of_an_earlier_closed_form_are_limited_too() -> None:
    """A client that multiplies them could make all others' images count for nothing."""
    for packing in PACKINGS:
        briefing = briefing_of(packing, scores=True)
        upload = answer(make_client(images_of(HELD), briefing, "0"))
        check_upload(upload, briefing, packing)
        found = Sums.of(upload.tensors)
        for size in (1e3, 1e6):
            factor = torch.ones(found.sums.shape[1], dtype=torch.float64)
            factor[: len(CLASSES)] = size
            scatter = found.scatter * factor * factor[:, None]
            large = Sums(found.counts, found.sums * factor, scatter).tensors(packing)
            assert "should be at" in refused(briefing, upload, **large)
