"""The whitened first layer: its responses, and that nothing trains or draws it."""

from __future__ import annotations

import torch

from accord.nets.backbones.base import build_encoder
from accord.nets.backbones.whitened import Whitening, whitening_filters
from accord.nets.dead_leaves import leaf_pictures
from accord.nets.initialise import initialise


def test_its_responses_to_other_synthetic_images_are_uncorrelated_and_of_variance_one() -> None:
    images = leaf_pictures(300, 32, 3, seed=1)
    filters = whitening_filters(3)
    assert filters.shape == (24, 3, 2, 2)
    assert torch.equal(filters[:12], -filters[12:])
    found = torch.nn.functional.conv2d(images, filters[:12]).permute(0, 2, 3, 1).reshape(-1, 12)
    covariance = found.T @ found / len(found)
    assert (covariance - covariance.diagonal().diag()).abs().max() < 0.1
    # The eigenvalue v becomes v/(v + 0.0005), which is much less than 1 only for tiny ones.
    assert (covariance.diagonal() - 1).abs().max() < 0.25


def test_no_generator_draws_it_and_no_gradient_reaches_it() -> None:
    values = []
    for seed in (0, 1):
        encoder = build_encoder("white7", 1, "batch")
        initialise(encoder, torch.Generator().manual_seed(seed))
        white = next(m for m in encoder.modules() if isinstance(m, Whitening))
        values.append(white.weight)
        assert not white.weight.requires_grad
    assert torch.equal(values[0], values[1])
    assert torch.equal(values[0].detach(), whitening_filters(1))
