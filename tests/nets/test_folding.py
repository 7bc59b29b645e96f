"""Folding batch norms into convolutions changes the cost of an answer, not the answer."""

from __future__ import annotations

import torch
from torch import nn

from accord.messages import NetHeader
from accord.nets.backbones.base import backbones
from accord.nets.folding import folded
from accord.nets.net import Net, fresh_net
from core.cases import looped


def trained_net(backbone: str, norm: str) -> Net:
    """A net whose batch norms have seen something."""
    generator = torch.Generator().manual_seed(0)
    header = NetHeader(backbone=backbone, norm=norm, head="linear")
    net = fresh_net(header, 3, 4, generator)
    with torch.no_grad():
        for module in net.modules():
            if isinstance(module, nn.BatchNorm2d):
                assert module.running_mean is not None
                assert module.running_var is not None
                module.running_mean.normal_(generator=generator)
                module.running_var.uniform_(0.5, 2.0, generator=generator)
                module.weight.uniform_(0.5, 2.0, generator=generator)
                module.bias.normal_(generator=generator)
    return net.eval()


@looped("norm", ["batch", "group"])
@looped("backbone", backbones.names())
def test_a_folded_net_answers_the_same(backbone: str, norm: str) -> None:
    net = trained_net(backbone, norm)
    images = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        features, logits = net(images)
        fast = folded(net)
        folded_features, folded_logits = fast(images)
    for found, expected in ((folded_features, features), (folded_logits, logits)):
        assert float((found - expected).abs().max() / expected.abs().max()) < 1e-5
    # A norm after a pooling, as in white7, is not linear in the convolution, and stays.
    left = sum(isinstance(module, nn.BatchNorm2d) for module in fast.modules())
    assert left == (3 if backbone.startswith("white7") and norm == "batch" else 0)
