"""Initial weights. Nets are built without values and then filled from a given generator alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor, nn

M = TypeVar("M", bound=nn.Module)


def materialise(build: Callable[[], M]) -> M:
    """The module that `build` makes, on the CPU and without values.

    Set its values with `initialise` or with a state dict. PyTorch's layers draw their weights from
    the global random state when they are made; on the meta device they draw none. Every value is
    NaN until it is set, so that a missing value is noticed.
    """
    with torch.device("meta"):
        module = build()
    # `to_empty` is not used, because its first call needs half a second to load meta functions.
    for part in module.modules():
        for name, parameter in list(part.named_parameters(recurse=False)):
            values = _unset(parameter)
            setattr(part, name, nn.Parameter(values, requires_grad=parameter.requires_grad))
        for name, buffer in list(part.named_buffers(recurse=False)):
            setattr(part, name, _unset(buffer))
    return module


def _unset(tensor: Tensor) -> Tensor:
    """A CPU tensor of the shape and type of `tensor`, filled with NaN, or with 0 for integers."""
    value = math.nan if tensor.is_floating_point() else 0
    return torch.full(tensor.shape, value, dtype=tensor.dtype, device="cpu")


@torch.no_grad()
def initialise(module: nn.Module, generator: torch.Generator) -> None:
    """Sets every weight of `module`. The same generator state gives exactly the same weights.

    Convolutions are drawn from N(0, 2 / fan_out), Kaiming's rule for ReLU. Weights and biases of
    linear layers are uniform in ±1/√fan_in. Norms start with scale 1, shift 0, running mean 0 and
    running variance 1. A layer with a method `set_values` is not drawn and sets its values itself.
    """
    for part in module.modules():
        own = getattr(part, "set_values", None)
        if own is not None:
            own()
        elif isinstance(part, nn.Conv2d):
            _initialise_conv(part, generator)
        elif isinstance(part, nn.Linear):
            _initialise_linear(part, generator)
        elif isinstance(part, nn.BatchNorm2d | nn.GroupNorm | nn.LayerNorm):
            part.reset_parameters()  # sets constants and draws nothing
        elif [*part.parameters(recurse=False), *part.buffers(recurse=False)]:
            raise TypeError(f"there is no rule to initialise the values of {type(part).__name__}")


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


# The values are drawn into a new CPU tensor and then copied, so that they do not depend on the
# device or the memory format of the module.


def _normal(shape: torch.Size, generator: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=generator, device="cpu")


def _uniform(shape: torch.Size, bound: float, generator: torch.Generator) -> Tensor:
    return (torch.rand(shape, generator=generator, device="cpu") * 2 - 1) * bound
