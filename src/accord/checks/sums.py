"""Sums of fixed features: what the features of any images can add up to."""

from __future__ import annotations

import torch
from torch import Tensor

from accord.checks.words import REMEDY, at_worst, refuse
from accord.closed_form.packing import variances
from accord.core.errors import AccordError
from accord.messages import MAP, Briefing, SummingSpec, Upload, unprefixed
from accord.nets.limits import largest_pixels
from accord.nets.maps import FeatureMap, MapConfig
from accord.nets.maps.base import Limits

ROUNDED = 1e-3  # relative error of a feature, and of its sums
_known: dict[str, Limits] = {}  # digest of a briefing → the limits of its map


def check_map_sums(upload: Upload, briefing: Briefing, where: str) -> None:
    """Refuses sums that are larger than those of any images. `Upload.check` was called before."""
    limits = limits_of(briefing)
    counts = upload.tensors["label_counts"].double()
    sums = upload.tensors["feature_sums"].double()
    slack = ROUNDED * torch.maximum(limits.low.abs(), limits.high.abs()) + 1e-30
    for side, limit in ((-1, limits.low - slack), (1, limits.high + slack)):
        beyond = side * (sums - counts[:, None] * limit)
        refuse(
            (beyond > 0) & (counts[:, None] > 0),
            f"{where}: tensor 'feature_sums' should be at {'most' if side > 0 else 'least'} the "
            "number of images of a class times the "
            f"{'largest' if side > 0 else 'smallest'} value of each feature of the briefing's map; "
            f"found a sum that is beyond it by {at_worst(beyond)}",
        )
    _check_squares(sums, counts, variances(upload.tensors, sums.shape[1]), limits, slack, where)


def _check_squares(
    sums: Tensor, counts: Tensor, scatter: Tensor, limits: Limits, slack: Tensor, where: str
) -> None:
    images = counts.sum()
    mean = sums.sum(dim=0) / images
    low, high = limits.low - slack, limits.high + slack
    # Values between low and high with this mean have the largest squares if they are low or high.
    most = images * (high - mean).clamp(min=0) * (mean - low).clamp(min=0)
    never_negative = limits.low >= 0
    alone = sums.square().sum(dim=0) - images * mean.square() + images * slack.square()
    most = torch.where(never_negative, torch.minimum(most, alone.clamp(min=0)), most)
    most = most.nan_to_num(nan=torch.inf) * (1 + ROUNDED) + ROUNDED * images * mean.square() + 1e-30
    refuse(
        scatter > most,
        f"{where}: the scatter of a feature about its mean should be at most {at_worst(most)} for "
        f"{images:.0f} images and these 'feature_sums'; found {at_worst(scatter)}",
    )
    total = float(scatter.sum() + images * mean.square().sum())
    limit = float(images) * limits.norm**2 * (1 + 1e-2)
    if total > limit:
        raise AccordError(
            f"{where}: the squares of all features should add up to at most {limit:.4g} for "
            f"{images:.0f} images and the briefing's map; found {total:.4g}. {REMEDY}"
        )


def limits_of(briefing: Briefing) -> Limits:
    """The limits of the briefing's map; those of the last briefing are kept."""
    if briefing.digest not in _known:
        header = briefing.header
        if not isinstance(header.training, SummingSpec) or header.net.map is None:
            raise ValueError("the briefing has no map")
        found = FeatureMap(MapConfig.model_validate(header.net.map), header.channels).eval()
        found.load_state_dict(unprefixed(MAP, briefing.tensors))
        pixels = largest_pixels(header.mean, header.std, header.height, header.width)
        _known.clear()
        with torch.inference_mode():
            _known[briefing.digest] = found.limits(pixels)
    return _known[briefing.digest]
