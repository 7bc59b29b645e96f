"""A client's past features: what stays, what leaves, in which order."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from accord.objective.queue import Queue


def rows_from(start: int, count: int) -> tuple[Tensor, Tensor]:
    """Rows that carry their own number: (n, −n), labelled n."""
    numbers = torch.arange(start, start + count)
    return torch.stack([numbers, -numbers], dim=1).float(), numbers


def test_a_new_queue_is_empty_and_not_full_of_zeros() -> None:
    rows = Queue(4, 2).rows()
    assert len(rows) == 0
    assert rows.features.shape == (0, 2)


def test_the_oldest_leave_and_the_newest_are_last() -> None:
    queue = Queue(4, 2)
    queue.push(*rows_from(1, 3))
    assert queue.rows().labels.tolist() == [1, 2, 3]
    queue.push(*rows_from(4, 3))
    assert queue.rows().labels.tolist() == [3, 4, 5, 6]
    assert queue.rows().features.tolist() == [[3, -3], [4, -4], [5, -5], [6, -6]]


@given(size=st.integers(0, 9), pushes=st.lists(st.integers(0, 12), max_size=6))
def test_it_holds_the_end_of_all_that_was_pushed(size: int, pushes: list[int]) -> None:
    queue, pushed = Queue(size, 2), 0
    for count in pushes:
        queue.push(*rows_from(pushed, count))
        pushed += count
        expected = list(range(pushed))[max(0, pushed - size) :]
        assert queue.rows().labels.tolist() == expected
        assert queue.rows().features.tolist() == [[number, -number] for number in expected]


def test_rows_read_before_a_push_do_not_change() -> None:
    # The loss reads them again in its backward pass.
    queue = Queue(2, 2)
    queue.push(*rows_from(1, 2))
    rows = queue.rows()
    queue.push(*rows_from(3, 2))
    assert rows.labels.tolist() == [1, 2]
    assert rows.features.tolist() == [[1, -1], [2, -2]]


def test_no_gradient_stays_in_it() -> None:
    queue = Queue(4, 2)
    queue.push(torch.ones(2, 2, requires_grad=True) * 3, torch.tensor([0, 1]))
    assert not queue.rows().features.requires_grad


def test_a_half_filled_queue_survives_its_state() -> None:
    queue, other = Queue(5, 2), Queue(5, 2)
    queue.push(*rows_from(1, 3))
    other.load_state_dict(queue.state_dict())
    assert other.rows().labels.tolist() == [1, 2, 3]
    for each in (queue, other):
        each.push(*rows_from(4, 4))
    assert torch.equal(other.rows().features, queue.rows().features)
    assert other.rows().labels.tolist() == [3, 4, 5, 6, 7]
