"""Limits of what a net can compute, from its weights and the range of pixels alone.

No image is needed. Both functions send one made-up image of the largest pixels through a copy of
the encoder in which every operation is replaced by an upper limit of its size.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from accord.nets.backbones.base import Encoder


def largest_pixels(mean: Sequence[float], std: Sequence[float], height: int, width: int) -> Tensor:
    """(1, C, H, W): the largest size that a normalised pixel of each channel can have."""
    sizes = [max(abs(0 - m), abs(1 - m)) / abs(s) for m, s in zip(mean, std, strict=True)]
    return torch.tensor(sizes)[None, :, None, None].expand(1, -1, height, width).clone()


def limiting(encoder: Encoder) -> Encoder:
    """A net whose features of `largest_pixels` are ≥ |f| of every image, in eval mode.

    |Σ w x| ≤ Σ |w| |x|, and |γ(x − μ)/σ + β| ≤ |γ|(|x| + |μ|)/σ + |β|. A group norm divides m
    values by their standard deviation, so that none of them is larger than √m.
    """
    found = copy.deepcopy(encoder).eval()
    with torch.no_grad():
        for module in found.modules():
            for parameter in module.parameters(recurse=False):
                parameter.abs_()
            if isinstance(module, nn.BatchNorm2d) and module.running_mean is not None:
                module.running_mean.abs_().neg_()
            if isinstance(module, nn.GroupNorm):
                module.register_forward_hook(_limit_of_group_norm)
    return found


def limits_of_batch_norms(encoder: Encoder, pixels: Tensor) -> dict[str, Tensor]:
    """Name of a batch norm → the largest root mean square that its inputs can have in training.

    In training, a batch norm makes the mean of x² over a batch γ² + β² or less, whatever it gets.
    A convolution adds root mean squares: rms(Σ w x) ≤ Σ |w| rms(x). With a stride s, or a pooling
    of s×s pixels, it may see the s² times larger mean of a part of the pixels.
    """
    found = copy.deepcopy(encoder).eval()
    limits: dict[str, Tensor] = {}

    def note(name: str) -> None:
        def look(module: nn.Module, inputs: tuple[Tensor, ...], outputs: Tensor) -> Tensor:
            limits[name] = inputs[0].amax(dim=(0, 2, 3))
            assert isinstance(module, nn.BatchNorm2d)
            size = (module.weight.square() + module.bias.square()).sqrt()
            return torch.broadcast_to(size[None, :, None, None], outputs.shape).clone()

        found.get_submodule(name).register_forward_hook(look)

    with torch.inference_mode():
        for name, module in found.named_modules():
            if isinstance(module, nn.Conv2d):
                module.weight.abs_()
                module.register_forward_hook(_times_stride)
            if isinstance(module, nn.MaxPool2d):
                module.register_forward_hook(_times_stride)
            if isinstance(module, nn.BatchNorm2d):
                note(name)
        found(pixels)
    return limits


def _times_stride(module: nn.Module, _inputs: tuple[Tensor, ...], outputs: Tensor) -> Tensor:
    assert isinstance(module, nn.Conv2d | nn.MaxPool2d)
    stride = module.stride
    return outputs * float(max(stride) if isinstance(stride, tuple) else stride)


def _limit_of_group_norm(module: nn.Module, inputs: tuple[Tensor, ...], outputs: Tensor) -> Tensor:
    assert isinstance(module, nn.GroupNorm)
    values = inputs[0][0].numel() // module.num_groups
    size = module.weight * values**0.5 + module.bias
    return torch.broadcast_to(size[None, :, None, None], outputs.shape).clone()
