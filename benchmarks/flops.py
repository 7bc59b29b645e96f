"""Counts the arithmetic of a training step, so that its speed can be held against a sgemm's."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn


def training_flops(encoder: nn.Module, image: Tensor) -> int:
    """FLOPs of one training pass of one `image` (1, C, H, W) through convolutions and linears.

    A multiply-add is 2. The backward pass does the forward's work twice, once for the weights and
    once for the input, which the first layer's input does not need. Everything else (norms, relu,
    loss, optimiser, augmentation) is not counted: it is what costs time beside these.
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
