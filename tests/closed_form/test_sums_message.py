"""Sums in a message: they survive every packing, and what no images could give is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from accord.client.summing import sums_of
from accord.closed_form.packing import PACKINGS, Packing, packed, squared, unpacked, variances
from accord.closed_form.sums import Sums, check_sums, expected_sums
from accord.core.errors import AccordError
from accord.core.randomness import numpy_generator
from closed_form.support import CLASSES, EDGES
from closed_forms import Data, assert_same_sums, furthest, made_up, pixels, sums_by_hand
from core.cases import case, looped

seeds = st.integers(0, 10_000)
widths = st.integers(1, 8)


def correlations(scatter: Tensor) -> Tensor:
    spread = scatter.diagonal().sqrt()
    scale = torch.where(spread > 0, spread, 1.0)
    return scatter / scale / scale[:, None]


def assert_survives(data: Data, packing: Packing) -> None:
    """What comes out of a message is what went in, but for the packing's rounding."""
    sent = sums_by_hand(data, CLASSES)
    tensors = sent.tensors(packing)
    check_sums(tensors, "an honest client")
    found = Sums.of(tensors)
    assert found.counts.tolist() == sent.counts.tolist()
    torch.testing.assert_close(found.sums, sent.sums, rtol=1e-6, atol=1e-30)
    assert torch.equal(found.scatter, found.scatter.T)
    torch.testing.assert_close(
        found.scatter.diagonal(), sent.scatter.diagonal(), rtol=1e-6, atol=1e-30
    )
    if packing == "float32":
        torch.testing.assert_close(found.scatter, sent.scatter, rtol=1e-6, atol=1e-30)
    else:
        # In units of both spreads; off the diagonal, half a step of the rounding.
        within = {"float16": 2**-11, "int8": 0.5 / 127, "factor": 2**-10}[packing]
        spread = sent.scatter.diagonal().sqrt()
        allowed = (within + 1e-6) * spread * spread[:, None] + 1e-30
        assert bool(((found.scatter - sent.scatter).abs() <= allowed).all())


def test_the_variances_are_the_diagonal_of_the_scatter() -> None:
    for data in EDGES.values():
        sums = sums_by_hand(data, CLASSES)
        for packing in PACKINGS:
            tensors = sums.tensors(packing)
            width = sums.sums.shape[1]
            expected = unpacked(tensors, width).diagonal()
            torch.testing.assert_close(variances(tensors, width), expected, rtol=1e-12, atol=0)


@looped("width", [1, 2, 511, 512, 513, 1_030])
def test_a_factor_is_squared_block_by_block(width: int) -> None:
    """In one block, several whole ones, and ones that are not whole."""
    draws = torch.Generator().manual_seed(width)
    factor = torch.randn(width, width, generator=draws, dtype=torch.float64).triu()
    found = squared(factor)
    torch.testing.assert_close(found, factor.T @ factor, rtol=1e-10, atol=1e-10)
    assert torch.equal(found, found.T)


@pytest.mark.parametrize("packing", PACKINGS)
def test_edges_survive_a_message(packing: Packing) -> None:
    for edge, data in EDGES.items():
        with case(edge):
            assert_survives(data, packing)


@settings(max_examples=50, deadline=None)
@given(seed=seeds, rows=st.integers(1, 20), width=widths, power=st.integers(-8, 8))
@pytest.mark.parametrize("packing", PACKINGS)
def test_any_sums_survive_a_message(
    packing: Packing, seed: int, rows: int, width: int, power: int
) -> None:
    features, labels = made_up(seed, rows, width, CLASSES)
    draws = numpy_generator(seed, "spoilt")
    features[:, draws.uniform(size=width) < 0.2] = 0.1  # some do not change
    features[draws.uniform(size=rows) < 0.3] = features[0]  # some images are the same
    assert_survives(Data(10.0**power * features, labels), packing)


def test_an_int8_correlation_is_a_whole_number_of_steps() -> None:
    # The second feature is 0.6 of the first and 0.8 of what has nothing to do with it: the
    # correlation is 0.6, 76.2 steps of 127.
    first, unrelated = np.array([1.0, 1.0, -1.0, -1.0]), np.array([1.0, -1.0, 1.0, -1.0])
    features = np.stack([first, 5 * (0.6 * first + 0.8 * unrelated)], axis=1)
    tensors = sums_by_hand(Data(features, np.zeros(4, dtype=np.int64)), 1).tensors("int8")
    assert tensors["scatter"].tolist() == [127, 76, 127]
    assert tensors["scatter_spread"].tolist() == pytest.approx([2, 10])
    expected = [[4, 20 * 76 / 127], [20 * 76 / 127, 100]]
    torch.testing.assert_close(Sums.of(tensors).scatter, torch.tensor(expected).double())


def test_a_factor_is_that_of_cholesky() -> None:
    # The same two features: C = [[1, 0.6], [0.6, 1]] = RᵀR for R = [[1, 0.6], [0, 0.8]].
    first, unrelated = np.array([1.0, 1.0, -1.0, -1.0]), np.array([1.0, -1.0, 1.0, -1.0])
    features = np.stack([first, 5 * (0.6 * first + 0.8 * unrelated)], axis=1)
    tensors = sums_by_hand(Data(features, np.zeros(4, dtype=np.int64)), 1).tensors("factor")
    assert tensors["scatter_factor"].dtype == torch.float16
    assert tensors["scatter_factor"].tolist() == pytest.approx([1, 0.6, 0.8], abs=5e-4)
    expected = torch.tensor([[4.0, 12.0], [12.0, 100.0]]).double()
    torch.testing.assert_close(Sums.of(tensors).scatter, expected, rtol=1e-3, atol=0)


def test_numbers_that_are_not_finite_reach_the_server_which_refuses_them() -> None:
    for wrong in (float("nan"), float("inf")):
        scatter = torch.eye(3, dtype=torch.float64)
        scatter[0, 1] = scatter[1, 0] = wrong
        assert not packed(scatter, "factor")["scatter_factor"].isfinite().all()


def test_only_a_factor_keeps_the_small_directions_of_correlated_features() -> None:
    # Correlations that fall slowly with the distance have eigenvalues from 0.01 to 100.
    apart = torch.arange(400).double()
    correlations = 0.98 ** (apart - apart[:, None]).abs()
    sent = Sums(torch.tensor([1000]), torch.zeros(1, 400).double(), 1000 * correlations)
    lengths, axes = torch.linalg.eigh(sent.scatter)
    worst = {}
    for packing in PACKINGS:
        found = axes.T @ Sums.of(sent.tensors(packing)).scatter @ axes
        scaled = found / lengths.sqrt() / lengths.sqrt()[:, None]
        worst[packing] = float(torch.linalg.eigvalsh(scaled - torch.eye(400)).abs().max())
    assert worst["float32"] < 1e-3
    assert worst["factor"] < 0.05
    assert worst["float16"] > 5 * worst["factor"]
    assert worst["int8"] > 1


@settings(max_examples=30, deadline=None)
@given(seed=seeds, rows=st.integers(1, 30), width=st.integers(2, 40))
def test_a_factor_never_gives_a_negative_direction(seed: int, rows: int, width: int) -> None:
    sent = sums_by_hand(made_up(seed, rows, width, CLASSES), CLASSES)
    found = correlations(Sums.of(sent.tensors("factor")).scatter)
    assert float(torch.linalg.eigvalsh(found)[0]) > -1e-7  # 1 + 1e-7 in the float32 spreads


def test_the_upper_triangle_travels_row_by_row() -> None:
    found = sums_by_hand(made_up(0, 9, 3, CLASSES), CLASSES)
    S = found.scatter
    expected = [S[0, 0], S[0, 1], S[0, 2], S[1, 1], S[1, 2], S[2, 2]]
    assert found.tensors("float32")["scatter"].tolist() == pytest.approx(
        [float(value) for value in expected], rel=1e-6
    )


@pytest.mark.parametrize("packing", PACKINGS)
def test_a_message_is_as_expected(packing: Packing) -> None:
    for classes, width in [(1, 1), (2, 1), (3, 5), (10, 64)]:
        found = sums_by_hand(made_up(0, 20, width, classes), classes).tensors(packing)
        expected = expected_sums(classes, width, packing)
        assert found.keys() == expected.keys()
        for name, tensor in expected.items():
            assert found[name].shape == tensor.shape, (name, classes, width)
            assert found[name].dtype == tensor.dtype, (name, classes, width)


@pytest.mark.parametrize("packing", PACKINGS)
def test_nobody_survives_a_message(packing: Packing) -> None:
    tensors = Sums.none(CLASSES, 4).tensors(packing)
    check_sums(tensors, "nobody")
    assert_same_sums(Sums.of(tensors), Sums.none(CLASSES, 4), within=0)


@pytest.mark.parametrize("packing", PACKINGS)
def test_real_images_survive_a_message(packing: Packing) -> None:
    sent = sums_by_hand(pixels(300), 10)
    assert not sent.scatter.diagonal().all()  # some pixels never change
    tensors = sent.tensors(packing)
    check_sums(tensors, "digits")
    found = Sums.of(tensors)
    within = {"float32": 1e-6, "float16": 1e-3, "int8": 1 / 127, "factor": 2**-10}[packing]
    assert furthest(correlations(found.scatter), correlations(sent.scatter)) <= within
    assert not found.scatter[sent.scatter == 0].any()


@pytest.mark.parametrize("packing", PACKINGS)
def test_a_scatter_summed_in_float32_is_accepted(packing: Packing) -> None:
    # As a client does it: product in float32, features that hardly change beside others.
    features, labels = pixels(200)
    x = torch.from_numpy(np.hstack([features, 1e-5 * features[:, ::-1], 3 + 1e-6 * features]))
    x = x.float()
    centred = x - x.double().mean(dim=0).float()
    honest = Sums(
        torch.bincount(torch.from_numpy(labels), minlength=10),
        torch.zeros(10, x.shape[1], dtype=torch.float64).index_add_(
            0, torch.from_numpy(labels), x.double()
        ),
        (centred.T @ centred).double(),
    )
    check_sums(honest.tensors(packing), "digits")


# --- what no images could have given -----------------------------------------------------------


def honest(packing: Packing) -> dict[str, Tensor]:
    labels = np.array([0, 0, 1, 1, 1, 0], dtype=np.int64)  # nothing of class 2
    return sums_by_hand(Data(made_up(0, 6, 3, 1).features, labels), CLASSES).tensors(packing)


@pytest.mark.parametrize("packing", PACKINGS)
def test_sums_of_a_class_without_images_are_refused(packing: Packing) -> None:
    tensors = honest(packing)
    check_sums(tensors, "client 7")
    tensors["feature_sums"][2, 1] = 1e-3
    with pytest.raises(AccordError, match="client 7: it sums features of a class"):
        check_sums(tensors, "client 7")


def test_a_scatter_below_zero_is_refused() -> None:
    tensors = honest("float32")
    tensors["scatter"][0] = -tensors["scatter"][0]
    with pytest.raises(AccordError, match=r"client 7: .* below 0"):
        check_sums(tensors, "client 7")


@looped("sign", [-1, 1])
@looped("packing", ["float32", "float16"])
def test_a_correlation_beyond_one_is_refused(packing: Packing, sign: int) -> None:
    tensors = honest(packing)
    S = Sums.of(tensors).scatter
    bound = float((S[0, 0] * S[1, 1]).sqrt()) if packing == "float32" else 1.0
    tensors["scatter"][1] = sign * 1.05 * bound
    with pytest.raises(AccordError, match=r"client 7: .* correlated by more than 1"):
        check_sums(tensors, "client 7")


def test_a_feature_that_never_changes_cannot_change_with_another() -> None:
    tensors = sums_by_hand(EDGES["a feature that never changes"], CLASSES).tensors("float32")
    check_sums(tensors, "client 7")
    tensors["scatter"][1] = 1e-3
    with pytest.raises(AccordError, match="correlated by more than 1"):
        check_sums(tensors, "client 7")


# --- sums that look right one by one ------------------------------------------------------------


def test_classes_further_apart_than_the_scatter_are_refused() -> None:
    tensors = honest("float32")
    tensors["scatter"] = tensors["scatter"] * 0.0
    with pytest.raises(AccordError, match="client 7: its classes lie further apart"):
        check_sums(tensors, "client 7")
    tensors = honest("float32")
    tensors["feature_sums"][0] += 1e30
    with pytest.raises(AccordError, match="client 7: its classes lie further apart"):
        check_sums(tensors, "client 7")


@pytest.mark.parametrize("packing", ["float32", "float16"])
def test_three_features_that_all_contradict_each_other_are_refused(packing: Packing) -> None:
    # Each pair may be anticorrelated; three cannot all be.
    tensors = honest(packing)
    spread = Sums.of(tensors).scatter.diagonal().sqrt()
    width = len(spread)
    against = 2 * torch.eye(width).double() - 1
    if packing == "float32":
        against = against * spread * spread[:, None]
    upper = torch.triu_indices(width, width)
    tensors["scatter"] = against[upper[0], upper[1]].to(tensors["scatter"].dtype)
    with pytest.raises(AccordError, match="client 7: some mix of features has a scatter below 0"):
        check_sums(tensors, "client 7")


@pytest.mark.parametrize("packing", PACKINGS)
def test_honest_sums_of_few_images_pass(packing: Packing) -> None:
    for rows in (1, 2, 7, 40):
        check_sums(sums_by_hand(pixels(rows), 10).tensors(packing), f"{rows} digits")
        for seed in range(5):
            made = sums_by_hand(made_up(seed, rows, 60, CLASSES), CLASSES)
            check_sums(made.tensors(packing), f"{rows} images of seed {seed}")


def test_honest_sums_of_features_that_never_change_pass() -> None:
    """Rounding makes them differ a little from class to class, like many others that do differ."""
    for width, rows, value in ((300, 60, 0.3), (1_000, 124, 1.7), (1_000, 60, 300.0)):
        draws = torch.Generator().manual_seed(1)
        labels = torch.randint(0, 5, (rows,), generator=draws)
        means = 3 * torch.randn(5, width, generator=draws)
        features = (means[labels] + torch.randn(rows, width, generator=draws)).clamp(min=0)
        fixed = value * torch.tensor([1.0, 0.9, 0.7, 1.1, 1.3]).expand(rows, 5)
        found = sums_of(torch.cat([fixed, features], dim=1), labels, 5)
        check_sums(found.tensors("float32"), f"{width} {rows} {value}")
