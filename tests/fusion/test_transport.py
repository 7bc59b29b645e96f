"""Neurons matched by optimal transport: whatever their order was, the function stays the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from torch import Tensor

from accord.core.errors import AccordError
from accord.core.randomness import torch_generator
from accord.fusion.base import Scene
from accord.fusion.transport import Transport, matched, reordered
from accord.fusion.uploads import UploadFiles
from accord.messages import NET, Briefing, NetHeader, unprefixed
from accord.nets.channels import channel_spaces
from accord.nets.net import Net, fresh_net
from fusion.clients import BRIEFING, KNOWN, written
from tests_support import brief_for, images_of

BACKBONES = ["conv4", "resnet10", "mobilenetv2"]


def net_of(backbone: str, name: str = "net") -> Net:
    """With statistics of its own, as after training."""
    header = NetHeader(backbone=backbone, norm="batch", head="prototypes")
    net = fresh_net(header, 3, 10, torch_generator(0, name))
    with torch.no_grad():
        net.train()(torch.randn(8, 3, 16, 16, generator=torch_generator(0, name, "images")))
    return net.eval()


def shuffled(net: Net, seed: int) -> dict[str, Tensor]:
    """The same function, its channels in another order."""
    spaces, weights = channel_spaces(net.encoder), dict(net.state_dict())
    sizes = {layer.outputs: len(weights[f"encoder.{layer.name}.weight"]) for layer in spaces.layers}
    draws = torch_generator(seed, "order")
    orders = {space: torch.randperm(sizes[space], generator=draws) for space in spaces.order()}
    return reordered(weights, spaces, orders)


@pytest.mark.parametrize("backbone", BACKBONES)
def test_reordering_channels_leaves_the_function_as_it_is(backbone: str) -> None:
    net, images = net_of(backbone), torch.randn(3, 3, 16, 16, generator=torch_generator(1, "x"))
    other = net_of(backbone, "other")
    other.load_state_dict(shuffled(net, 0))
    moved = [
        (a != b).any().item() for a, b in zip(net.parameters(), other.parameters(), strict=True)
    ]
    assert sum(moved) > len(moved) / 3  # norms start at 1 and 0, in whatever order
    with torch.no_grad():
        torch.testing.assert_close(other(images)[1], net(images)[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("backbone", BACKBONES)
def test_a_net_in_another_order_is_matched_exactly(backbone: str) -> None:
    net = net_of(backbone)
    weights, spaces = dict(net.state_dict()), channel_spaces(net.encoder)
    found = matched(shuffled(net, 1), weights, spaces)
    for name, tensor in weights.items():
        assert torch.equal(found[name], tensor), name


def test_residual_sums_share_their_channels() -> None:
    spaces = channel_spaces(net_of("resnet10").encoder)
    outputs = {layer.name: layer.outputs for layer in spaces.layers}
    assert outputs["stages.stem.0"] == outputs["stages.stage1.0.body.3"]
    assert outputs["stages.stage2.0.body.3"] == outputs["stages.stage2.0.shortcut.0"]
    assert outputs["stages.stage1.0.body.0"] != outputs["stages.stem.0"]
    assert spaces.features == outputs["stages.stage4.0.body.3"]


def test_group_norm_is_refused() -> None:
    sent = brief_for("fafi")
    header = sent.header.model_copy(
        update={"net": sent.header.net.model_copy(update={"norm": "group"})}
    )
    scene = Scene(UploadFiles([], sent), Briefing(header, sent.tensors), images_of([]))
    with pytest.raises(AccordError, match="group norm does not allow"):
        next(iter(Transport().nets(scene)))


# --- what is matched -----------------------------------------------------------------------------


def test_channels_are_matched_as_they_act_with_their_batch_norm() -> None:
    """Other scales before the norm, which takes them out again: the function stays the same."""
    net = net_of("conv4")
    weights, spaces = dict(net.state_dict()), channel_spaces(net.encoder)
    scaled = {name: tensor.clone() for name, tensor in weights.items()}
    draws = torch_generator(3, "scales")
    for stage in range(1, 5):
        prefix = f"encoder.stages.stage{stage}."
        scale = 10 ** (2 * torch.rand(64, generator=draws) - 1)
        scaled[prefix + "0.weight"] *= scale[:, None, None, None]
        scaled[prefix + "1.running_mean"] *= scale
        scaled[prefix + "1.running_var"] *= scale**2
    other = net_of("conv4", "other")
    other.load_state_dict(scaled)
    found = matched(shuffled(other, 1), weights, spaces)
    for name, tensor in scaled.items():
        assert torch.equal(found[name], tensor), name


def test_channels_that_differ_in_their_shift_alone_are_told_apart() -> None:
    net = net_of("conv4")
    weights, spaces = dict(net.state_dict()), channel_spaces(net.encoder)
    first = "encoder.stages.stage1."
    weights[first + "0.weight"][1] = weights[first + "0.weight"][0]
    weights[first + "1.running_var"][1] = weights[first + "1.running_var"][0]
    weights[first + "1.running_mean"][:2] = torch.tensor([-1.0, 1.0])
    space = next(layer.outputs for layer in spaces.layers if layer.name == "stages.stage1.0")
    swapped = reordered(weights, spaces, {space: torch.tensor([1, 0, *range(2, 64)])})
    found = matched(swapped, weights, spaces)
    for name, tensor in weights.items():
        assert torch.equal(found[name], tensor), name


def test_the_first_layer_is_matched_by_the_least_sum_of_squared_distances() -> None:
    one, two = (dict(net_of("conv4", name).state_dict()) for name in ("one", "two"))
    spaces = channel_spaces(net_of("conv4").encoder)
    conv, norm = "encoder.stages.stage1.0.", "encoder.stages.stage1.1."

    def acting(net: dict[str, Tensor]) -> NDArray[np.float64]:
        gain = net[norm + "weight"] / (net[norm + "running_var"] + 1e-5).sqrt()
        shift = net[norm + "bias"] - gain * net[norm + "running_mean"]
        rows = torch.cat([(gain[:, None] * net[conv + "weight"].flatten(1)), shift[:, None]], dim=1)
        return rows.double().numpy()

    apart = cdist(acting(one), acting(two))
    _, best = linear_sum_assignment(apart**2)
    assert (linear_sum_assignment(apart)[1] != best).any()  # distances would be matched otherwise
    found = matched(two, one, spaces)
    assert torch.equal(found[conv + "weight"], two[conv + "weight"][torch.from_numpy(best)])


def test_everybody_is_matched_to_the_client_with_the_most_images(tmp_path: Path) -> None:
    files = UploadFiles(written(tmp_path, [[0, 1], [0, 1, 2, 2, 2], [1, 2, 0]]), BRIEFING)
    nets = list(Transport().nets(Scene(files, BRIEFING, KNOWN)))
    for k, found in enumerate(nets):
        own = unprefixed(NET, files.load(k).tensors)
        unmoved = all(torch.equal(found[name], own[name]) for name in own)
        assert unmoved is (k == 1)
