"""Folding of batch norms: in eval mode a batch norm is linear and can be part of a convolution."""

from __future__ import annotations

from torch import fx, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from accord.nets.backbones.base import Encoder
from accord.nets.net import Net


def folded(net: Net) -> Net:
    """The net with every batch norm folded into the convolution before it, for eval mode only.

    A batch norm after a pooling stays: pooling is not linear.
    """
    if not isinstance(net.eval().encoder, Encoder):
        return net
    encoder = fx.symbolic_trace(net.encoder)
    for node in list(encoder.graph.nodes):
        norm = _module(encoder, node)
        if not isinstance(norm, nn.BatchNorm2d):
            continue
        before = node.args[0]
        convolution = _module(encoder, before)
        if isinstance(convolution, nn.Conv2d) and len(before.users) == 1:
            encoder.set_submodule(before.target, fuse_conv_bn_eval(convolution, norm))
            node.replace_all_uses_with(before)
            encoder.graph.erase_node(node)
    encoder.delete_all_unused_submodules()
    encoder.recompile()
    net.encoder = encoder  # type: ignore[assignment]  # the traced encoder is called in the same way
    return net


def _module(encoder: fx.GraphModule, node: object) -> nn.Module | None:
    """The module that a node of the graph calls."""
    if isinstance(node, fx.Node) and node.op == "call_module":
        return encoder.get_submodule(str(node.target))
    return None
