"""Whether a training step fits into memory; it is estimated before the work begins."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from accord.core.errors import AccordError
from accord.core.reading import megabytes, memory
from accord.data.allocation import Allocation
from accord.messages import NetHeader
from accord.nets.net import Net
from accord.study.recipe import TrainingRecipe
from accord.study.study import Trial

SMALL = 32  # pixels of a side
MOST_BYTES = 2**16  # bytes of memory for one pixel; resnet50 needs about 36,000


def refuse_large_steps(trial: Trial, allocation: Allocation) -> None:
    """Refuses a training step whose values alone need more memory than this machine has."""
    recipe = trial.recipe
    sizes = [len(part) for part in allocation.partition.indices]
    if not isinstance(recipe, TrainingRecipe) or not sizes or not max(sizes):
        return
    images = min(trial.setup.budget.batch, max(sizes)) * recipe.views
    _, height, width, channels = allocation.dataset.train.images.shape
    if images * height * width * MOST_BYTES <= memory():
        return  # it fits with any net
    net = trial.setup.net
    header = NetHeader(backbone=net.backbone, norm=net.norm, head=recipe.head)
    each = values_of_one(header, (channels, height, width), len(allocation.classes))
    if 4 * each * images > memory():
        raise AccordError(
            f"a step with {images:,} images (budget.batch × views) of {height}×{width} pixels "
            f"needs at least {megabytes(4 * each * images)} of memory; this machine has "
            f"{megabytes(memory())}. Use a smaller budget.batch, data.image or net.backbone."
        )


def values_of_one(header: NetHeader, shape: tuple[int, int, int], classes: int) -> int:
    """About how many values the layers of a net compute for one image.

    They are counted for a small image and grow with the number of pixels.
    """
    channels, height, width = shape
    small = (min(height, SMALL), min(width, SMALL))
    count = 0

    def add(_: nn.Module, __: tuple[Tensor, ...], output: object) -> None:
        nonlocal count
        count += output.numel() if isinstance(output, Tensor) else 0

    net = Net(header, channels, classes).eval()
    for module in net.modules():
        if not any(module.children()):
            module.register_forward_hook(add)
    with torch.inference_mode():
        net(torch.zeros(1, channels, *small))
    return count * height * width // (small[0] * small[1])
