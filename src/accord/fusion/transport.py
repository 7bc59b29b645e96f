"""OT-Fusion (Singh and Jaggi, 2020, arXiv 1910.05653): neurons are matched and then averaged."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import torch
from torch import Tensor, nn

from accord.core.errors import AccordError
from accord.fusion.average import Average, Tensors
from accord.fusion.base import Scene, fusions
from accord.messages import NET, unprefixed
from accord.nets.backbones.base import build_encoder
from accord.nets.channels import IMAGE, Layer, Spaces, channel_spaces


@fusions.register("transport")
class Transport(Average):
    """`average` after optimal transport has matched all channels to those of the largest client.

    From the first layer to the last, the channels of a space are matched by their incoming weights,
    with BatchNorm folded in and with inputs that are already matched. A space that residual sums
    share is matched once, by all convolutions that write to it. Both nets have the same number of
    channels with equal mass, so that the plan is a permutation and a matched net computes the same
    function as before.
    """

    def require(self, norm: str, public: int) -> None:
        super().require(norm, public)
        if find_spec("ot") is None:
            raise AccordError(
                "the fusion 'transport' needs POT, which is not installed: "
                "pip install 'accord[transport]'."
            )
        if norm != "batch":
            raise AccordError(
                "the fusion 'transport' reorders channels, which group norm does not allow; set "
                "net.norm to batch."
            )

    def nets(self, scene: Scene) -> Iterator[Tensors]:
        header = scene.briefing.header
        self.require(header.net.norm, len(scene.public))
        spaces = channel_spaces(build_encoder(header.net.backbone, header.channels, "batch"))
        sizes = [summary.header.samples for summary in scene.uploads.summaries()]
        largest = unprefixed(NET, scene.uploads.load(sizes.index(max(sizes))).tensors)
        for net in super().nets(scene):
            yield matched(net, largest, spaces)


def matched(net: Tensors, reference: Tensors, spaces: Spaces) -> Tensors:
    """`net` with its channels in the order of the most similar channels of `reference`."""
    orders: dict[int, Tensor] = {}
    for space in spaces.order():
        ready = [m for m in spaces.makers(space) if m.inputs == IMAGE or m.inputs in orders]
        cost = sum(
            torch.cdist(
                _acting(reference, maker, spaces), _reordered(net, maker, spaces, orders)
            ).square()
            for maker in ready
        )
        orders[space] = _assignment(torch.as_tensor(cost))
    return reordered(net, spaces, orders)


def reordered(net: Tensors, spaces: Spaces, orders: dict[int, Tensor]) -> Tensors:
    """The same function with reordered channels: channel `orders[space][i]` becomes the i-th."""
    found = dict(net)
    for layer in spaces.layers:
        prefix = f"encoder.{layer.name}."
        for name in [name for name in net if name.startswith(prefix)]:
            if net[name].ndim and layer.outputs in orders:
                found[name] = found[name][orders[layer.outputs]]
            if net[name].ndim == 4 and not layer.per_channel and layer.inputs in orders:
                found[name] = found[name][:, orders[layer.inputs]]
    if spaces.features in orders:
        prototypes = net["head.prototypes"]
        found["head.prototypes"] = prototypes[:, orders[spaces.features]]
    return found


def _acting(net: Tensors, maker: Layer, spaces: Spaces) -> Tensor:
    """(outputs, inputs·k·k + 1): weights and shift of a convolution with folded batch norm."""
    norm = f"encoder.{_norm_after(maker, spaces).name}."
    weight = net[f"encoder.{maker.name}.weight"]
    gain = net[norm + "weight"] / (net[norm + "running_var"] + EPSILON).sqrt()
    shift = net[norm + "bias"] - net[norm + "running_mean"] * gain
    return torch.cat([weight.flatten(1) * gain[:, None], shift[:, None]], dim=1).double()


def _reordered(net: Tensors, maker: Layer, spaces: Spaces, orders: dict[int, Tensor]) -> Tensor:
    """`_acting` with the inputs in their new order."""
    acting = _acting(net, maker, spaces)
    if maker.inputs == IMAGE:
        return acting
    weight = net[f"encoder.{maker.name}.weight"]
    folded = acting[:, :-1].reshape(weight.shape)[:, orders[maker.inputs]]
    return torch.cat([folded.flatten(1), acting[:, -1:]], dim=1)


def _norm_after(maker: Layer, spaces: Spaces) -> Layer:
    names = [layer.name for layer in spaces.layers]
    return spaces.layers[names.index(maker.name) + 1]


def _assignment(cost: Tensor) -> Tensor:
    """The column that optimal transport assigns to each row."""
    import ot  # an optional extra

    mass = torch.full((len(cost),), 1 / len(cost), dtype=torch.float64).numpy()
    plan = torch.from_numpy(ot.emd(mass, mass, cost.numpy()))
    return plan.argmax(dim=1)


EPSILON = nn.BatchNorm2d(1).eps
