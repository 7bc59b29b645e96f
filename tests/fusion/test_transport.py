"""Neurons matched by optimal transport: whatever their order was, the function stays the same."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from accord.core.errors import AccordError
from accord.core.randomness import torch_generator
from accord.fusion.base import Scene
from accord.fusion.transport import Transport, matched, reordered
from accord.fusion.uploads import UploadFiles
from accord.messages import Briefing, NetHeader
from accord.nets.channels import channel_spaces
from accord.nets.net import Net, fresh_net
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
