"""Which images a client's steps see."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from accord.client.batches import KINDS, balanced, class_shares, shuffled
from accord.client.training import Training
from accord.core.randomness import torch_generator
from tests_support import brief_for, images_of

counts = st.lists(st.integers(0, 30), min_size=1, max_size=5).filter(any)


def labels_of(counts: list[int]) -> torch.Tensor:
    return torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))


@given(counts=counts, steps=st.integers(1, 6))
def test_shuffled_batches_hold_every_image_once(counts: list[int], steps: int) -> None:
    batches = shuffled(labels_of(counts), steps, torch_generator(0, "batches"))
    assert sorted(torch.cat(batches).tolist()) == list(range(sum(counts)))
    assert len(batches) == steps


@given(counts=counts, steps=st.integers(1, 6))
def test_balanced_batches_hold_every_class_equally_often(counts: list[int], steps: int) -> None:
    labels = labels_of(counts)
    batches = balanced(labels, steps, torch_generator(0, "batches"))
    assert len(batches) == steps
    assert sum(map(len, batches)) == len(labels)
    held = torch.unique(labels)
    for batch in batches:
        seen = [(labels[batch] == label).sum().item() for label in held]
        assert max(seen) - min(seen) <= 1


@given(counts=counts)
def test_no_image_comes_again_before_all_of_its_class_have_come(counts: list[int]) -> None:
    (order,) = balanced(labels_of(counts), 1, torch_generator(0, "batches"))
    for label in torch.unique(labels_of(counts)):
        own = [p for p in order.tolist() if labels_of(counts)[p] == label]
        seen = torch.bincount(torch.tensor(own), minlength=sum(counts))
        there = seen[labels_of(counts) == label]
        assert there.max() - there.min() <= 1


def test_a_recipe_chooses_and_epochs_differ() -> None:
    data = images_of([0] * 20 + [1] * 4)
    training = Training(data, brief_for("balanced-contrast", batch=8), "0")
    first = training._batches()
    assert [int((training.inputs.labels[batch] == 1).sum()) for batch in first] == [4, 4, 4]
    training.run_epoch()
    assert not torch.equal(torch.cat(first), torch.cat(training._batches()))


# --- how much of each class ----------------------------------------------------------------------


def test_shares_by_hand() -> None:
    assert class_shares("shuffled", torch.tensor([6, 0, 2])).tolist() == [0.75, 0, 0.25]
    assert class_shares("balanced", torch.tensor([6, 0, 2])).tolist() == [0.5, 0, 0.5]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=40, deadline=None)
@given(counts=counts, steps=st.integers(1, 6))
def test_shares_are_those_of_an_epoch(kind: str, counts: list[int], steps: int) -> None:
    labels = labels_of(counts)
    epoch = torch.cat(KINDS[kind](labels, steps, torch_generator(0, "batches")))
    seen = torch.bincount(labels[epoch], minlength=len(counts))
    shares = class_shares(kind, torch.tensor(counts))
    assert shares.sum().item() == pytest.approx(1)
    # Balanced, the images of an epoch need not be a multiple of the classes.
    odd = 0 if kind == "shuffled" else 1
    assert (seen - shares * len(labels)).abs().max() < odd + 1e-4
    assert ((shares > 0) == (torch.tensor(counts) > 0)).all()
