"""Microseconds per image and view on one thread, for each augmentation set and each of its steps.

`python -m benchmarks views` times the sets, `python -m benchmarks.views` also times the steps. A
time is the best of several, because other programs can only increase it. The steps are run on as
many images as `augment` processes at a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from accord.core.randomness import torch_generator
from accord.data import colour
from accord.data.augmentations import augmentations
from accord.data.crop import crop, draw_boxes
from accord.data.views import VALUES_AT_ONCE, augment, normalise
from benchmarks.figure import Figure

TARGET = 40.0  # µs
IMAGES, VIEWS, SIZE, CHANNELS = 128, 2, 32, 3
PART = VALUES_AT_ONCE // (SIZE * SIZE * CHANNELS)
MEAN, STD = (0.5,) * CHANNELS, (0.25,) * CHANNELS


def microseconds(run: Callable[[], object], count: int, repeats: int = 200) -> float:
    """The best time of `run`, which makes `count` views."""
    run()
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return best / count * 1e6


def separable_crop(images: Tensor, boxes: Tensor) -> Tensor:
    """An alternative to `crop`: one matrix of bilinear weights per image and axis."""
    tops, lefts, heights, widths = boxes.unsqueeze(2).unbind(1)
    pixels = torch.arange(SIZE, dtype=torch.float32)

    def weights(start: Tensor, length: Tensor) -> Tensor:
        at = (start + (pixels + 0.5) * (length / SIZE) - 0.5).clamp(start, start + length - 1)
        return (at.unsqueeze(2) - pixels).abs_().neg_().add_(1).clamp_(min=0)

    across = weights(lefts, widths).transpose(1, 2)
    narrowed = torch.bmm(images.view(PART, CHANNELS * SIZE, SIZE), across)
    return torch.matmul(weights(tops, heights).unsqueeze(1), narrowed.view_as(images))


def steps() -> dict[str, Callable[[], object]]:
    """Times each step on every image, although some steps are random in training."""
    generator = torch_generator(0, "benchmark", "steps")
    bytes_ = torch.randint(256, (PART, SIZE, SIZE, CHANNELS), generator=generator).byte()
    images = torch.rand((PART, CHANNELS, SIZE, SIZE), generator=generator)
    factors = torch.rand(PART, generator=generator) * 0.2
    no_flips = torch.zeros(PART, dtype=torch.bool)
    box_laws = (SIZE, SIZE, (0.2, 1.0), (3 / 4, 4 / 3), generator)
    boxes = draw_boxes(PART, *box_laws)
    return {
        "uint8 to planes": lambda: bytes_.permute(0, 3, 1, 2).contiguous().float().div_(255),
        "draw boxes": lambda: draw_boxes(PART, *box_laws),
        "crop": lambda: crop(images, boxes, no_flips),
        "crop, separable": lambda: separable_crop(images, boxes),
        "brightness": lambda: colour.adjust_brightness(images, 0.9 + factors),
        "contrast": lambda: colour.adjust_contrast(images, 0.9 + factors),
        "saturation": lambda: colour.adjust_saturation(images, 0.9 + factors),
        "hue": lambda: colour.rotate_hue(images, factors),
        "grey": lambda: colour.to_grey(images.clone()),
        "to channels last": lambda: images.permute(0, 2, 3, 1).contiguous(),
        "normalise": lambda: normalise(bytes_, MEAN, STD),
    }


def sets() -> dict[str, Callable[[], object]]:
    """Times each augmentation set on a batch."""
    generator = torch_generator(0, "benchmark")
    images = torch.randint(256, (IMAGES, SIZE, SIZE, CHANNELS), generator=generator).byte()
    return {
        name: partial(augment, images, augmentations.get(name), VIEWS, generator, MEAN, STD)
        for name in augmentations
    }


def measure() -> list[Figure]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    figures = []
    for name, run in sets().items():
        taken = microseconds(run, IMAGES * VIEWS)
        shown = f"{taken:.1f} µs per image and view"
        figures.append(Figure(f"views, {name}", shown, f"≤ {TARGET:.0f} µs", taken <= TARGET))
    torch.set_num_threads(threads)
    return figures


def main() -> None:
    torch.set_num_threads(1)
    print(f"{IMAGES} images, {VIEWS} views, {SIZE}×{SIZE}×{CHANNELS}: µs per image and view")
    for name, run in sets().items():
        print(f"  {name:<18}{microseconds(run, IMAGES * VIEWS):6.2f}")
    print("steps")
    for name, step in steps().items():
        print(f"  {name:<18}{microseconds(step, PART):6.2f}")


if __name__ == "__main__":
    main()
