"""Counts the FLOPs of a training step, so that its speed can be compared with that of sgemm."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn


def training_flops(encoder: nn.Module, image: Tensor) -> int:
    """The FLOPs of convolutions and linear layers in one training pass of an `image` (1, C, H, W).

    A multiply-add counts as 2. The backward pass does the work of the forward pass twice, once for
    the weights and once for the input; the first layer needs no gradient of its input. All other
    work (norms, relu, loss, optimiser, augmentation) is not counted.
    """
    multiply_adds = 0

    def count(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        nonlocal multiply_adds
        assert isinstance(layer, nn.Conv2d | nn.Linear)
        per_output = math.prod(layer.weight.shape[1:])
        multiply_adds += output.numel() * per_output * (3 if inputs[0].requires_grad else 2)

    hooks: list[Any] = [
        layer.register_forward_hook(count)
        for layer in encoder.modules()
        if isinstance(layer, nn.Conv2d | nn.Linear)
    ]
    mode = encoder.training
    with torch.enable_grad():
        encoder.eval()(image)
    encoder.train(mode)
    for hook in hooks:
        hook.remove()
    return 2 * multiply_adds
