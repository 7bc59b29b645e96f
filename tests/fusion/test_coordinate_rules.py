"""Coordinate-wise rules: by hand, against SciPy, and their promises about hostile clients."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from accord.core.parts import make_part
from accord.core.randomness import torch_generator
from accord.data.imageset import ImageSet
from accord.fusion import fusions
from accord.fusion.base import Merge, Scene
from accord.fusion.coordinates import by_coordinate
from accord.fusion.median import middle
from accord.fusion.trimmed import TrimmedMean
from accord.messages import NET, Upload, UploadHeader
from core.cases import case
from fusion.clients import BRIEFING
from held import Held

NO_IMAGES = ImageSet(np.zeros((0, 8, 8, 3), np.uint8), np.zeros(0, np.int64), np.zeros(0, np.int64))
RULES = ("median", "trimmed-mean")


def uploads_of(values: Tensor, samples: int = 1) -> Held:
    """Clients whose nets hold the rows of `values`, in three tensors of different shapes."""
    found = Held(BRIEFING)
    for index, row in enumerate(values):
        first, rest = row[:4].reshape(2, 2), row[4:]
        tensors = {NET + "b": first, NET + "a": rest, NET + "steps": torch.tensor(index)}
        header = UploadHeader(client=str(index), epoch=1, samples=samples, briefing="")
        found.append(Upload(header, {**tensors, "label_counts": torch.tensor([samples])}))
    return found


def merged(name: str, clients: Held) -> Tensor:
    rule = make_part(fusions, name, "fusion")
    assert isinstance(rule, Merge)
    (found,) = rule.merge(Scene(clients, BRIEFING, NO_IMAGES))
    t = found.tensors
    return torch.cat([t[NET + "b"].flatten(), t[NET + "a"]])


def draws(clients: int, numbers: int = 11) -> Tensor:
    return torch.randn(clients, numbers, generator=torch_generator(0, "coordinates", clients))


def test_values_by_hand() -> None:
    values = torch.tensor([[1.0, 7.0], [100.0, 3.0], [2.0, 5.0], [4.0, -9.0]])
    assert middle(values).tolist() == [3.0, 4.0]  # the mean of 2 and 4, and of 3 and 5
    assert middle(values[:3]).tolist() == [2.0, 5.0]
    assert TrimmedMean(share=0.25).summarise(values).tolist() == [3.0, 4.0]
    assert TrimmedMean(share=0.2).summarise(values).tolist() == [26.75, 1.5]  # nothing is trimmed


def test_against_scipy() -> None:
    for clients, share in product((1, 2, 3, 5, 10, 11), (0.1, 0.2, 0.3, 0.4, 0.49)):
        with case(clients, share):
            values = draws(clients).double()
            found = TrimmedMean(share=share).summarise(values)
            # SciPy cuts share·K off to an integer as well, but 0.3·10 is exactly 3 here.
            ends = int(share * clients + 1e-9)
            expected = stats.trim_mean(values.numpy(), ends / clients + 1e-12, axis=0)
            np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12)
            np.testing.assert_allclose(middle(values).numpy(), np.median(values.numpy(), axis=0))


def test_a_net_is_merged_number_by_number_whatever_fits_into_memory() -> None:
    values = draws(5)
    for most in (1, 7, 10, 23, 10**6):
        with case(most):
            net = by_coordinate(uploads_of(values), middle, most)
            assert list(net) == ["b", "a", "steps"]
            found = torch.cat([net["b"].flatten(), net["a"]])
            torch.testing.assert_close(found, values.double().median(dim=0).values.float())
            assert net["steps"].dtype == torch.int64
            assert net["steps"].item() == 2


def test_the_order_and_the_counts_of_clients_do_not_matter() -> None:
    values = draws(6)
    for name in RULES:
        plain = merged(name, uploads_of(values))
        turned = merged(name, uploads_of(values[[3, 0, 5, 1, 4, 2]]))
        claimed = uploads_of(values)
        header = claimed[2].header.model_copy(update={"samples": 10_000})
        claimed[2] = Upload(header, {**claimed[2].tensors, "label_counts": torch.tensor([10_000])})
        assert torch.allclose(plain, turned, atol=1e-6), name
        assert torch.equal(plain, merged(name, claimed)), name


@pytest.mark.parametrize("name", RULES)
def test_a_minority_cannot_leave_the_range_of_the_honest(name: str) -> None:
    """The median holds with n > 2f, the trimmed mean (20 %) with f ≤ ⌊n/5⌋."""
    for clients in (3, 5, 10, 11):
        most = (clients - 1) // 2 if name == "median" else clients // 5
        for hostile, size in product(range(1, most + 1), (1e6, -1e6, 1e30)):
            with case(clients, hostile, size):
                values = draws(clients)
                values[:hostile] = size
                honest = values[hostile:]
                found = merged(name, uploads_of(values))
                low, high = honest.min(dim=0).values, honest.max(dim=0).values
                assert bool(((found >= low - 1e-6) & (found <= high + 1e-6)).all())


def test_one_more_hostile_client_breaks_them() -> None:
    """The promise is exact: with half of the clients hostile, the median follows them."""
    values = draws(4)
    values[:2] = 1e6
    assert merged("median", uploads_of(values)).min() > 1e5
