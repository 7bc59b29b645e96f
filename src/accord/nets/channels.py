"""The spaces of a net's channels: which layers share the same channels, found by tracing the net.

A residual sum joins the channels of both its arguments. A norm, a ReLU, a pooling and a depthwise
convolution keep the channels. A full convolution makes new channels. If the channels of a space
are reordered, all layers that share the space must be reordered in the same way.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx, nn

IMAGE = 0  # the space of the image's own channels, which are never reordered
ADDS: tuple[Any, ...] = (operator.add, operator.iadd, torch.add)


@dataclass
class Layer:
    """A convolution or norm, and the spaces of its input and output channels."""

    name: str
    module: nn.Module
    inputs: int
    outputs: int

    @property
    def per_channel(self) -> bool:
        """Whether this is a norm or a depthwise convolution."""
        return not isinstance(self.module, nn.Conv2d) or self.module.groups > 1


@dataclass
class Spaces:
    """All layers in the order of the forward pass; `features` is the space of the output."""

    layers: list[Layer] = field(default_factory=list)
    features: int = IMAGE

    def order(self) -> list[int]:
        """The spaces in the order in which convolutions make them."""
        made = [layer.outputs for layer in self.layers if not layer.per_channel]
        return list(dict.fromkeys(made))

    def makers(self, space: int) -> list[Layer]:
        """The full convolutions whose output is in `space`."""
        return [one for one in self.layers if one.outputs == space and not one.per_channel]


def channel_spaces(encoder: nn.Module) -> Spaces:
    """The spaces of an encoder's channels. Residual sums merge spaces."""
    graph = fx.symbolic_trace(encoder)
    modules = dict(graph.named_modules())
    joined: dict[int, int] = {}
    of: dict[fx.Node, int] = {}
    layers: list[Layer] = []
    found = IMAGE
    for node in graph.graph.nodes:
        if node.op == "placeholder":
            of[node] = IMAGE
            continue
        sources = [of[argument] for argument in node.all_input_nodes]
        space = sources[0] if sources else IMAGE
        module = modules.get(str(node.target)) if node.op == "call_module" else None
        if isinstance(module, nn.Conv2d) and module.groups == 1:
            space = 1 + max([IMAGE, *of.values()])
        if isinstance(module, nn.Conv2d | nn.BatchNorm2d | nn.GroupNorm):
            layers.append(Layer(str(node.target), module, sources[0], space))
        if node.target in ADDS or node.target in ("add", "add_"):
            joined[_root(joined, max(sources))] = _root(joined, min(sources))
        of[node] = found = space
    for layer in layers:
        layer.inputs, layer.outputs = _root(joined, layer.inputs), _root(joined, layer.outputs)
    return Spaces(layers, _root(joined, found))


def _root(joined: dict[int, int], space: int) -> int:
    while joined.get(space, space) != space:
        space = joined[space]
    return space
