"""A kernel in finitely many dimensions, against scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import pdist
from sklearn.kernel_approximation import Nystroem
from sklearn.metrics.pairwise import rbf_kernel
from torch import Tensor

from accord.core.randomness import torch_generator
from accord.nets.maps.nystrom import Nystrom, draw_nystrom, gaussian
from closed_forms import made_up
from core.cases import looped

GAMMA = 0.3


def public(rows: int = 60, width: int = 9, seed: int = 0) -> Tensor:
    """Features of unlike spreads and offsets."""
    return torch.from_numpy(made_up(seed, rows, width, 3).features).float()


def drawn(
    features: Tensor,
    landmarks: int,
    weights: Tensor | None = None,
    gamma: float = GAMMA,
    seed: int = 0,
) -> Nystrom:
    width = features.shape[1]
    weights = torch.ones(width) if weights is None else weights
    draws = torch_generator(seed, "landmarks")
    module = Nystrom(width, landmarks, gamma)
    module.load_state_dict(draw_nystrom(features, weights, landmarks, gamma, draws))
    return module


def standardised(module: Nystrom, features: Tensor) -> Tensor:
    return (features - module.centre) * module.scale


def lengths(b: Tensor) -> Tensor:
    return b.square().sum(dim=1)


def unshifted(module: Nystrom, features: Tensor) -> Tensor:
    """L⁻¹k(a): φ without the public mean taken off."""
    found: Tensor = module(features) + module.shift @ module.whiten.T
    return found


# --- the kernel --------------------------------------------------------------------------------


def test_the_kernel_by_hand() -> None:
    a = torch.tensor([[0.0, 0.0], [3.0, 4.0]], dtype=torch.float64)
    expected = torch.tensor([[1.0, -2.5], [-2.5, 1.0]], dtype=torch.float64)
    expected = torch.where(expected == 1, 1.0, expected.exp())
    torch.testing.assert_close(gaussian(a, a, lengths(a), 0.1), expected)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(1, 12),
    others=st.integers(1, 12),
    width=st.integers(1, 6),
    gamma=st.floats(1e-3, 10),
)
def test_the_kernel_is_that_of_scikit_learn(
    seed: int, rows: int, others: int, width: int, gamma: float
) -> None:
    draws = np.random.default_rng(seed)
    a, b = draws.normal(size=(rows, width)), draws.normal(size=(others, width))
    found = gaussian(torch.from_numpy(a), torch.from_numpy(b), lengths(torch.from_numpy(b)), gamma)
    np.testing.assert_allclose(found.numpy(), rbf_kernel(a, b, gamma), rtol=1e-9, atol=1e-12)


def test_the_kernel_of_float32_is_at_most_1() -> None:
    # Differences of large squares may come out below 0.
    a = 100 + torch.randn(50, 20, generator=torch.Generator().manual_seed(0))
    before = a.clone()
    found = gaussian(a, a, lengths(a), 1e-3)
    assert found.max() <= 1
    np.testing.assert_allclose(found.numpy(), rbf_kernel(a.double(), gamma=1e-3), atol=1e-3)
    assert torch.equal(a, before)


# --- features ----------------------------------------------------------------------------------


def test_products_are_the_kernel_where_every_public_image_is_a_landmark() -> None:
    features = public()
    module = drawn(features, len(features))
    phi = unshifted(module, features)
    K = rbf_kernel(standardised(module, features).double().numpy(), gamma=GAMMA)
    np.testing.assert_allclose((phi @ phi.T).numpy(), K, rtol=0, atol=1e-3)
    assert K.min() < 0.9  # not all alike


@looped("gamma", [0.1, 0.3, 2.0])
@looped("landmarks", [1, 5, 30])
def test_with_fewer_landmarks_products_are_those_of_scikit_learn(
    landmarks: int, gamma: float
) -> None:
    features = public(200)
    module = drawn(features, landmarks, gamma=gamma)
    a = standardised(module, features).double().numpy()
    oracle = Nystroem(kernel="rbf", gamma=gamma, n_components=landmarks, random_state=0)
    theirs = oracle.fit(module.landmarks.double().numpy()).transform(a)
    ours = unshifted(module, features).double().numpy()
    assert ours.shape == (200, landmarks)
    np.testing.assert_allclose(ours @ ours.T, theirs @ theirs.T, rtol=0, atol=2e-3)


def test_more_landmarks_tell_more_of_the_kernel() -> None:
    features = public(200)
    wrong = []
    for landmarks in (2, 20, 150):
        module = drawn(features, landmarks)
        phi = unshifted(module, features).double().numpy()
        K = rbf_kernel(standardised(module, features).double().numpy(), gamma=GAMMA)
        wrong.append(np.abs(phi @ phi.T - K).mean())
    assert wrong[0] > 2 * wrong[1] > 4 * wrong[2]


@pytest.mark.parametrize("landmarks", [1, 10, 60])
def test_the_public_mean_is_zero(landmarks: int) -> None:
    features = public()
    phi = drawn(features, landmarks)(features)
    assert phi.mean(dim=0).abs().max() < 1e-4
    assert phi.abs().max() > 0.1


@pytest.mark.parametrize("rows", [20, 60, 300])
def test_two_images_are_at_a_mean_squared_distance_of_1(rows: int) -> None:
    features = public(rows)
    module = drawn(features, 10)
    apart = pdist(standardised(module, features).double().numpy(), "sqeuclidean")
    assert apart.mean() == pytest.approx(1, rel=0.05)


def test_landmarks_are_public_images_without_a_repeat() -> None:
    features = public()
    module = drawn(features, 40)
    a = standardised(module, features).double()
    nearest = torch.cdist(module.landmarks.double(), a).min(dim=1)
    assert nearest.values.max() < 1e-5
    assert len(set(nearest.indices.tolist())) == 40


def test_features_count_by_their_weight_and_not_by_their_units() -> None:
    features, weights = public(), torch.tensor([1.0] * 5 + [0.5] * 4)
    module = drawn(features, 30, weights)
    spread = standardised(module, features).std(dim=0)
    torch.testing.assert_close(spread / spread[0], weights, rtol=1e-3, atol=0)
    units = 2.0 ** torch.arange(-4, 5)
    other = drawn(features * units, 30, weights)
    torch.testing.assert_close(other(features * units), module(features), rtol=0, atol=1e-4)
    # Twice the weight of all of them is no weight at all: distances are brought to 1 anyway.
    torch.testing.assert_close(
        drawn(features, 30, 2 * weights)(features), module(features), rtol=0, atol=1e-4
    )


def test_a_seed_decides_every_bit() -> None:
    features = public()
    first, same, other = (drawn(features, 10, seed=seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(first[name], same[name]) for name in first)
    assert not torch.equal(first["landmarks"], other["landmarks"])


def test_an_image_alone_is_as_in_a_batch() -> None:
    module, fresh = drawn(public(), 20), public(8, seed=3)
    alone = torch.cat([module(image[None]) for image in fresh])
    torch.testing.assert_close(module(fresh), alone, rtol=1e-4, atol=1e-4)


# --- degenerate public images --------------------------------------------------------------------


@pytest.mark.parametrize("value", [0.0, 0.1, 1e4])
def test_a_feature_that_never_changes_among_them_adds_nothing(value: float) -> None:
    features = public()
    with_constant = torch.cat([features, torch.full((60, 1), value)], dim=1)
    module, plain = drawn(with_constant, 20), drawn(features, 20)
    found = module(with_constant)
    assert found.isfinite().all()
    torch.testing.assert_close(found, plain(features), rtol=0, atol=1e-3)


def test_nor_does_it_drown_the_others_where_it_does_change() -> None:
    # A client's image with 1 in a feature that is 0 in all public ones: still the image it is.
    features = public()
    features = features / features.std(dim=0)
    with_constant = torch.cat([features, torch.zeros(60, 1)], dim=1)
    module = drawn(with_constant, 30)
    changed = with_constant.clone()
    changed[:, -1] = 1.0
    before, after = unshifted(module, with_constant), unshifted(module, changed)
    cosine = torch.cosine_similarity(before, after, dim=1)
    assert cosine.min() > 0.8
    assert (after.norm(dim=1) / before.norm(dim=1)).min() > 0.8


def test_landmarks_that_are_alike_are_no_trouble() -> None:
    features = public(30).repeat(2, 1)  # every image twice
    module = drawn(features, 60)
    phi = unshifted(module, features)
    assert phi.isfinite().all()
    K = rbf_kernel(standardised(module, features).double().numpy(), gamma=GAMMA)
    np.testing.assert_allclose((phi @ phi.T).numpy(), K, rtol=0, atol=1e-2)


def test_a_block_of_small_features_counts_beside_one_of_large_ones() -> None:
    small, large = public(seed=1), 1e6 * public(seed=2)
    both = torch.cat([small, large], dim=1)
    draws = torch_generator(0, "landmarks")
    found = draw_nystrom(both, torch.ones(18), 10, GAMMA, draws, [9, 9])
    assert (found["scale"] > 0).all()
