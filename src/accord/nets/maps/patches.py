"""Whitened patches (Coates and Ng, 2011): features from a dictionary that is not trained.

Every k×k patch p of an image is normalised to mean 0 and standard deviation 1, whitened, and
multiplied with a dictionary D of other such patches. Values above a threshold t, and values below
−t, are averaged over a grid of windows. Only the threshold is not linear, so that two matrix
products are enough.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, Self

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from accord.core.errors import AccordError
from accord.core.randomness import torch_generator
from accord.nets.dead_leaves import leaf_pictures
from accord.nets.maps.base import Around, Block, BlockModule, Limits, Origins, blocks, pooling

FLOOR = 2.5e-3  # added to a patch's variance against noise: 10/255² over a usual variance
SAMPLE = 60_000  # number of patches from which the whitening is computed
PICTURES, SIDE = 400, 32  # number and side of the images from which these patches are taken
SLACK = 1.05  # for rounding errors in the contrast of a patch
AT_ONCE = 2**21  # number of responses in memory at a time, so that they fit into the cache


@blocks.register("patches")
class Patches(Block):
    """φ = grid means of max(0, r − t) and max(0, −r − t), r = D·whitened(p) for every patch p."""

    size: int = Field(
        6, ge=1, le=1024, description="k of the k×k patches; at most two thirds of an image's side"
    )
    count: int = Field(400, ge=1, le=SAMPLE // 4, description="number of rows of the dictionary D")
    grid: int = Field(
        2, ge=1, le=64, description="number of windows along a side; they overlap by half"
    )
    threshold: float = Field(0.5, ge=0, description="t, the threshold of the responses")
    whitening: float = Field(0.1, gt=0, description="ε of the whitening (cov + ε)^(−1/2)")
    source: Literal["synthetic", "public"] = Field(
        "synthetic",
        description="images from which D is taken: synthetic ones, which the seed determines, or "
        "the public images",
    )

    variant: int = Field(
        0, ge=0, description="another number draws another dictionary from the same images"
    )

    @property
    def needs_public(self) -> bool:
        return self.source == "public"

    def build(self, channels: int) -> PatchModule:
        return PatchModule(self, channels)

    def settled(self, around: Around) -> Self:
        """A copy with smaller patches for tiny images, so that a patch has several positions."""
        return self.model_copy(update={"size": min(self.size, max(1, 2 * around.side // 3))})

    def draw(self, channels: int, origins: Origins, index: int = 0) -> dict[str, Tensor]:
        others = (self.variant,) if self.variant else ()
        draws = torch_generator(origins.seed, "patches", index, *others)
        if self.source == "public":
            some = torch.randperm(len(origins.public), generator=draws)[:PICTURES]
            pictures = origins.images(some)
        else:
            pictures = _leaves(PICTURES, SIDE, channels, origins.seed)
        p = contrast_normalised(_sampled(pictures, self.size, draws))
        mean = p.mean(dim=0)
        whiten = _inverse_root((p - mean).T @ (p - mean) / len(p), self.whitening)
        rows = (p - mean) @ whiten
        # A whitened patch with very little contrast is noise.
        length = rows.norm(dim=1)
        rows = rows[length > 0.3 * length.median()]
        if len(rows) < self.count:
            raise AccordError(
                f"patches: expected {self.count} patches with some contrast for the dictionary; "
                f"found {len(rows)} among {SAMPLE:,}. Use a larger `size`"
                f"{', or a smaller `count`' if len(rows) else ''}; if the images are tiny, make "
                "them larger (data.image: 8)."
            )
        chosen = rows[torch.randperm(len(rows), generator=draws)[: self.count]]
        dictionary = F.normalize(chosen, dim=1) @ whiten
        # Dictionary rows sum to 0, also after whitening, so a patch need not be centred first.
        return {"dictionary": dictionary.float(), "offset": (dictionary @ mean).float()}


_leaves = lru_cache(maxsize=2)(leaf_pictures)  # all blocks of a map sample the same pictures


class PatchModule(BlockModule):
    dictionary: Tensor
    offset: Tensor

    def __init__(self, config: Patches, channels: int) -> None:
        super().__init__()
        self.config = config
        self.width = 2 * config.count * config.grid**2
        inside = channels * config.size**2
        self.register_buffer("dictionary", torch.empty(config.count, inside))
        self.register_buffer("offset", torch.empty(config.count))

    def forward(self, images: Tensor) -> Tensor:
        height, width = (side - self.config.size + 1 for side in images.shape[2:])
        if min(height, width) < 1:
            raise AccordError(
                f"patches: expected a size of at most {min(images.shape[2:])}, the side of the "
                f"images; found {self.config.size}."
            )
        pool = pooling(height, width, self.config.grid).to(images)
        if torch.compiler.is_compiling():
            return self._some(images, pool)
        at_once = max(1, AT_ONCE // (self.config.count * height * width))
        return torch.cat([self._some(some, pool) for some in torch.split(images, at_once)])

    def limits(self, pixels: Tensor) -> Limits:
        """‖p‖₂ < √(k²C) for a centred patch of standard deviation 1, so that |D_j p| is limited."""
        D, cells = self.dictionary.double(), self.config.grid**2
        # Rows of D sum to 0 only up to rounding, and a patch is not centred.
        uncentred = D.sum(dim=1).abs() * float(pixels.max()) / FLOOR**0.5
        length, offset = D.shape[1] ** 0.5, self.offset.double()
        each = SLACK * (D.norm(dim=1) * length + offset.abs() + uncentred) - self.config.threshold
        high = each.clamp(min=0).repeat_interleave(cells).repeat(2)
        stretch = torch.linalg.eigvalsh(D.T @ D)[-1].clamp(min=0).sqrt()
        norm = SLACK * cells**0.5 * (stretch * length + offset.norm() + uncentred.norm())
        return Limits(torch.zeros_like(high), high, float(norm))

    def _some(self, images: Tensor, pool: Tensor) -> Tensor:
        dictionary, t = self.dictionary.expand(images.shape[0], -1, -1), self.config.threshold
        r = torch.baddbmm(-self.offset[:, None], dictionary, self._patches(images))
        # max(0, r − t) = max(r, t) − t, and t can be subtracted after the windows are averaged.
        above = torch.matmul(r.clamp(min=t), pool) - t
        below = torch.matmul(r.clamp_(max=-t), pool) + t
        return torch.cat([above, -below], dim=1).flatten(1)

    def _patches(self, images: Tensor) -> Tensor:
        """(N, k²C, positions): every patch, scaled to standard deviation 1."""
        size, contrast = self.config.size, self._contrast(images)
        if torch.compiler.is_compiling():
            return F.unfold(images, size) * contrast.flatten(2)
        # This computes the same in one pass over the memory.
        windows = images.unfold(2, size, 1).unfold(3, size, 1).permute(0, 1, 4, 5, 2, 3)
        p = torch.empty(windows.shape, dtype=images.dtype, device=images.device)
        torch.mul(windows, contrast[:, :, None, None], out=p)
        return p.flatten(1, 3).flatten(2)

    def _contrast(self, images: Tensor) -> Tensor:
        """(N, 1, height, width): 1/√(variance + FLOOR) of every patch, from running means."""
        down, across = (_running(side, self.config.size).to(images) for side in images.shape[2:])
        mean = down @ images.mean(dim=1, keepdim=True) @ across.T
        square = down @ images.square().mean(dim=1, keepdim=True) @ across.T
        variance = (square - mean.square()).clamp(min=0)
        return (variance + FLOOR).rsqrt()


def _running(side: int, size: int) -> Tensor:
    """(side − size + 1, side): a matrix whose row i averages the `size` values from i on."""
    return torch.ones(side - size + 1, side).triu().tril(size - 1) / size


def contrast_normalised(p: Tensor) -> Tensor:
    """Rows scaled to mean 0 and standard deviation 1; rows with little contrast get less than 1."""
    centred = p - p.mean(dim=1, keepdim=True)
    return centred / (centred.square().mean(dim=1, keepdim=True) + FLOOR).sqrt()


def _sampled(pictures: Tensor, size: int, draws: torch.Generator) -> Tensor:
    """(SAMPLE, k²C): patches from random positions, in float64."""
    # A view of all patches: only those that are chosen are copied.
    windows = pictures.unfold(2, size, 1).unfold(3, size, 1)
    count, _, height, width = windows.shape[:4]
    picture = torch.randint(count, (SAMPLE,), generator=draws)
    place = torch.randint(height * width, (SAMPLE,), generator=draws)
    return windows[picture, :, place // width, place % width].flatten(1).double()


def _inverse_root(covariance: Tensor, epsilon: float) -> Tensor:
    values, vectors = torch.linalg.eigh(covariance)
    root: Tensor = (vectors * (values.clamp(min=0) + epsilon).rsqrt()) @ vectors.T
    return root
