"""Sets of images: two of them joined, against NumPy."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from accord.data.imageset import ImageSet, Joined

IMAGES = np.arange(12 * 2 * 2 * 1, dtype=np.uint8).reshape(12, 2, 2, 1)
LABELS = np.arange(12) % 3


def some(rows: list[int]) -> ImageSet:
    chosen = np.array(rows, dtype=np.int64)
    return ImageSet(IMAGES, chosen, LABELS[chosen])


@given(
    first=st.lists(st.integers(0, 11), max_size=5),
    second=st.lists(st.integers(0, 11), max_size=5),
    data=st.data(),
)
def test_joined_sets_are_one_set(first: list[int], second: list[int], data: st.DataObject) -> None:
    both, whole = Joined(some(first), some(second)), some(first + second)
    assert len(both) == len(whole)
    assert both.labels.tolist() == whole.labels.tolist()
    assert both.label_counts(4).tolist() == whole.label_counts(4).tolist()
    last = len(whole) - 1
    places = data.draw(st.lists(st.integers(0, last), max_size=9)) if last >= 0 else []
    positions = torch.tensor(places, dtype=torch.int64)
    assert torch.equal(both.batch(positions), whole.batch(positions))
