"""Named sets of random augmentations for training images."""

from __future__ import annotations

from dataclasses import dataclass, replace

from accord.core.errors import AccordError
from accord.core.registry import Registry


@dataclass(frozen=True)
class Augmentation:
    """A set of random changes of an image. The defaults change nothing.

    For a strength s of brightness, contrast or saturation, a factor is drawn uniformly from
    [max(0, 1 − s), 1 + s]. For a strength s of hue, a rotation in turns is drawn uniformly from
    [−s, s]. With probability `jitter`, all four are applied to an image, in this order.
    """

    scale: tuple[float, float] = (1.0, 1.0)  # share of the area that a crop keeps
    ratio: tuple[float, float] = (3 / 4, 4 / 3)  # width / height of a crop
    shift: float = 0.0  # largest shift, as a share of the height (width); the edge is repeated
    flip: float = 0.0  # probability of a horizontal mirror image
    jitter: float = 0.0  # probability of the colour changes
    brightness: float = 0.0
    contrast: float = 0.0
    saturation: float = 0.0
    hue: float = 0.0
    grey: float = 0.0  # probability of conversion to grey
    hole: float = 0.0  # side of a square that is filled with the mean, as a share of the height

    def __post_init__(self) -> None:
        _require(0 < self.scale[0] <= self.scale[1] <= 1, "scale", "0 < low ≤ high ≤ 1", self.scale)
        _require(0 < self.ratio[0] <= self.ratio[1], "ratio", "0 < low ≤ high", self.ratio)
        _require(0 <= self.shift < 1, "shift", "a share from 0 to below 1", self.shift)
        for name in ("flip", "jitter", "grey"):
            value = getattr(self, name)
            _require(0 <= value <= 1, name, "a probability from 0 to 1", value)
        for name in ("brightness", "contrast", "saturation"):
            value = getattr(self, name)
            _require(value >= 0, name, "a strength of at least 0", value)
        _require(0 <= self.hole <= 1, "hole", "a share from 0 to 1", self.hole)
        _require(0 <= self.hue <= 0.5, "hue", "a strength from 0 to 0.5", self.hue)


def _require(holds: bool, name: str, expected: str, found: object) -> None:
    if not holds:
        raise AccordError(f"augmentation: {name} must be {expected}, found {found}")


augmentations: Registry[Augmentation] = Registry("augmentation")

NONE = augmentations.register("none")(Augmentation())
augmentations.register("reference")(
    Augmentation(
        scale=(0.2, 1.0),
        flip=0.5,
        jitter=0.8,
        brightness=0.4,
        contrast=0.4,
        saturation=0.4,
        hue=0.1,
        grey=0.2,
    )
)
augmentations.register("upright")(replace(augmentations.get("reference"), flip=0.0))
augmentations.register("light")(Augmentation(shift=1 / 8, flip=0.5))
augmentations.register("holes")(replace(augmentations.get("light"), hole=5 / 16))
augmentations.register("upright-holes")(replace(augmentations.get("holes"), flip=0.0))
augmentations.register("digits")(
    Augmentation(scale=(0.6, 1.0), jitter=0.8, brightness=0.4, contrast=0.4)
)
