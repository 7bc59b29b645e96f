"""Weights from a given generator only: nets are built without values, then filled in."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor, nn

M = TypeVar("M", bound=nn.Module)


def materialise(build: Callable[[], M]) -> M:
    """What `build` builds, on the CPU and without values: `initialise` it or load a state dict.

    PyTorch's layers draw their weights from global random state when they are made; on the meta
    device they cannot. Every value is NaN until it is set, so a forgotten one cannot go unnoticed.
    """
    with torch.device("meta"):
        module = build()
    # Not `to_empty`: its first call loads half a second's worth of torch's meta functions.
    for part in module.modules():
        for name, parameter in list(part.named_parameters(recurse=False)):
            values = _unset(parameter)
            setattr(part, name, nn.Parameter(values, requires_grad=parameter.requires_grad))
        for name, buffer in list(part.named_buffers(recurse=False)):
            setattr(part, name, _unset(buffer))
    return module


def _unset(tensor: Tensor) -> Tensor:
    """As large as `tensor`, on the CPU: NaN everywhere, or 0 where numbers are whole."""
    value = math.nan if tensor.is_floating_point() else 0
    return torch.full(tensor.shape, value, dtype=tensor.dtype, device="cpu")


@torch.no_grad()
def initialise(module: nn.Module, generator: torch.Generator) -> None:
    """Set every weight of `module`; the same generator state gives the same bits.

    Convolutions: N(0, 2 / fan_out), Kaiming's rule for ReLU. Linear layers: uniform in
    ±1/√fan_in, weight and bias. Norms: scale 1, shift 0, running mean 0 and variance 1.
    """
    for part in module.modules():
        if isinstance(part, nn.Conv2d):
            _initialise_conv(part, generator)
        elif isinstance(part, nn.Linear):
            _initialise_linear(part, generator)
        elif isinstance(part, nn.BatchNorm2d | nn.GroupNorm):
            part.reset_parameters()  # constants only, nothing random
        elif [*part.parameters(recurse=False), *part.buffers(recurse=False)]:
            raise TypeError(f"no rule to initialise the values of {type(part).__name__}")


def _initialise_conv(conv: nn.Conv2d, generator: torch.Generator) -> None:
    fan_out = conv.out_channels * math.prod(conv.kernel_size)
    conv.weight.copy_(_normal(conv.weight.shape, generator) * math.sqrt(2 / fan_out))
    if conv.bias is not None:
        conv.bias.zero_()


def _initialise_linear(linear: nn.Linear, generator: torch.Generator) -> None:
    bound = 1 / math.sqrt(linear.in_features)
    linear.weight.copy_(_uniform(linear.weight.shape, bound, generator))
    if linear.bias is not None:
        linear.bias.copy_(_uniform(linear.bias.shape, bound, generator))


# Drawn into a fresh CPU tensor and copied, so that the values do not depend on the device or the
# memory format of the module.


def _normal(shape: torch.Size, generator: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=generator, device="cpu")


def _uniform(shape: torch.Size, bound: float, generator: torch.Generator) -> Tensor:
    return (torch.rand(shape, generator=generator, device="cpu") * 2 - 1) * bound
