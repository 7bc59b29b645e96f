from __future__ import annotations

import json
import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import (
    accuracy_score,
    balanced_accuracy_score,
    confusion_matrix,
    log_loss,
    top_k_accuracy_score,
)

from accord.core.metrics import Tally, measure
from accord.core.randomness import torch_generator


def logits(*confidences: tuple[float, float]) -> torch.Tensor:
    """Scores whose softmax are the given confidences."""
    return torch.tensor(confidences, dtype=torch.float64).log()


def test_by_hand() -> None:
    scores = logits((0.9, 0.1), (0.8, 0.2), (0.3, 0.7), (0.6, 0.4))
    found = measure(scores, torch.tensor([0, 1, 1, 0]), 2)
    assert found.accuracy == 0.75
    assert found.balanced_accuracy == 0.75
    assert found.worst_class == 0.5
    assert found.confusion == ((2, 0), (1, 1))
    expected = -(math.log(0.9) + math.log(0.2) + math.log(0.7) + math.log(0.6)) / 4
    assert found.loss == pytest.approx(expected, abs=1e-12)
    # Four bins of one image each: |1−0.9|, |0−0.8|, |1−0.7|, |1−0.6|.
    assert found.ece == pytest.approx((0.1 + 0.8 + 0.3 + 0.4) / 4, abs=1e-12)


def test_top5_by_hand() -> None:
    scores = torch.tensor([[6.0, 5, 4, 3, 2, 1], [0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0]])
    # The sixth of six falling scores; the fifth and the sixth of equal scores.
    for labels, expected in (([5, 4, 5], 1 / 3), ([4, 4, 0], 1.0), ([5, 5, 5], 0.0)):
        assert measure(scores, torch.tensor(labels), 6).top5 == pytest.approx(expected)
    assert measure(scores[:, :5], torch.tensor([0, 1, 4]), 5).top5 == 1.0
    assert measure(scores[:, :4], torch.tensor([0, 1, 3]), 4).top5 is None


def test_images_of_one_bin_are_averaged_before_the_gap_is_taken() -> None:
    scores = logits((0.81, 0.19), (0.85, 0.15), (0.82, 0.18), (0.84, 0.16))
    found = measure(scores, torch.tensor([0, 0, 1, 0]), 2)
    assert found.ece == pytest.approx(0.83 - 0.75, abs=1e-12)


def test_certain_and_right_is_perfectly_calibrated() -> None:
    found = measure(torch.tensor([[1e4, 0.0], [0.0, 1e4]]), torch.tensor([0, 1]), 2)
    assert (found.ece, found.loss, found.worst_class) == (0.0, 0.0, 1.0)


def test_classes_that_do_not_occur_do_not_count() -> None:
    found = measure(torch.eye(3)[[0, 0, 1]], torch.tensor([0, 0, 0]), 3)
    assert found.balanced_accuracy == found.worst_class == pytest.approx(2 / 3)
    assert found.confusion == ((2, 1, 0), (0, 0, 0), (0, 0, 0))


def test_ties_go_to_the_first_class() -> None:
    assert measure(torch.zeros(4, 3), torch.tensor([0, 1, 2, 0]), 3).accuracy == 0.5


@settings(max_examples=50, deadline=None)
@given(
    n=st.integers(1, 200), classes=st.integers(2, 12), seed=st.integers(0, 9), half=st.booleans()
)
def test_agrees_with_scikit_learn(n: int, classes: int, seed: int, half: bool) -> None:
    rng = torch_generator(seed, "metrics")
    scores = 3 * torch.randn(n, classes, generator=rng)
    scores = scores.half() if half else scores
    labels = torch.randint(classes, (n,), generator=rng)
    found = measure(scores, labels, classes)
    truth, predicted = labels.numpy(), scores.double().argmax(1).numpy()
    confidences = scores.double().softmax(1).numpy()
    every = np.arange(classes)
    assert found.accuracy == pytest.approx(accuracy_score(truth, predicted))
    matrix = confusion_matrix(truth, predicted, labels=every)
    assert found.confusion == tuple(tuple(row) for row in matrix.tolist())
    assert found.loss == pytest.approx(log_loss(truth, confidences, labels=every))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn remarks on predictions that do not occur
        assert found.balanced_accuracy == pytest.approx(balanced_accuracy_score(truth, predicted))
    assert found.ece == pytest.approx(slow_ece(confidences, truth))
    if classes < 5:
        assert found.top5 is None
    elif classes > 5 and not half:  # equal scores: scikit-learn prefers the last class
        best = top_k_accuracy_score(truth, confidences, k=5, labels=every)
        assert found.top5 == pytest.approx(best)


def slow_ece(confidences: np.ndarray[tuple[int, int]], truth: np.ndarray[tuple[int]]) -> float:
    """The definition, one bin after the other."""
    highest, right = confidences.max(1), confidences.argmax(1) == truth
    total = 0.0
    for b in range(15):
        inside = (highest > b / 15) & (highest <= (b + 1) / 15)
        if inside.any():
            total += inside.mean() * abs(right[inside].mean() - highest[inside].mean())
    return float(total)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_scores_that_are_not_finite_are_refused(bad: float) -> None:
    scores = torch.zeros(3, 2)
    scores[1, 0] = bad
    with pytest.raises(ValueError, match="for 1 images"):
        measure(scores, torch.tensor([0, 1, 0]), 2)


@pytest.mark.parametrize(
    ("scores", "labels", "message"),
    [
        (torch.zeros(3, 4), torch.tensor([0, 1, 0]), r"expected scores \(N, 2\)"),
        (torch.zeros(3), torch.tensor([0, 1, 0]), r"expected scores \(N, 2\)"),
        (torch.zeros(3, 2), torch.tensor([0, 1]), r"found \(3, 2\) and \(2,\)"),
        (torch.zeros(0, 2), torch.tensor([], dtype=torch.int64), "at least one image"),
        (torch.zeros(2, 2), torch.tensor([0, 2]), r"labels in 0…1, found labels in 0…2"),
        (torch.zeros(2, 2), torch.tensor([-1, 0]), "labels in 0…1"),
    ],
)
def test_wrong_shapes_and_labels_are_refused(
    scores: torch.Tensor, labels: torch.Tensor, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        measure(scores, labels, 2)


# --- tallies -----------------------------------------------------------------------------------


def scored(seed: int, n: int, classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    rng = torch_generator(seed, "tally")
    labels = torch.randint(classes, (n,), generator=rng)
    return 3 * torch.randn(n, classes, generator=rng), labels


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 99), classes=st.integers(2, 6), data=st.data())
def test_blocks_add_up_to_the_whole(seed: int, classes: int, data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 20), min_size=1, max_size=6))
    scores, labels = scored(seed, sum(sizes), classes)
    blocks = zip(torch.split(scores, sizes), torch.split(labels, sizes), strict=True)
    found = Tally.sum(Tally.of(*block, classes) for block in blocks)
    whole = Tally.of(scores, labels, classes)
    assert torch.equal(found.confusion, whole.confusion)
    torch.testing.assert_close(found.gaps, whole.gaps, rtol=0, atol=1e-9)
    assert found.loss == pytest.approx(whole.loss, rel=1e-12)
    assert found.metrics().accuracy == measure(scores, labels, classes).accuracy


def test_a_tally_by_hand() -> None:
    found = Tally.of(logits((0.9, 0.1), (0.7, 0.3), (0.7, 0.3)), torch.tensor([0, 0, 1]), 2)
    assert found.confusion.tolist() == [[2, 0], [1, 0]]
    assert found.loss == pytest.approx(-math.log(0.9) - math.log(0.7) - math.log(0.3))
    # 0.9 falls in ((14−1)/15, 14/15], 0.7 in ((11−1)/15, 11/15]: counted from 0, 13 and 10.
    assert found.gaps.nonzero().flatten().tolist() == [10, 13]
    assert found.gaps[13].item() == pytest.approx(1 - 0.9)
    assert found.gaps[10].item() == pytest.approx((1 - 0.7) + (0 - 0.7))


def test_gaps_of_one_bin_cancel_across_blocks() -> None:
    # Half right at 0.5 + ε: calibrated together, though neither image is alone.
    scores = logits((0.51, 0.49), (0.51, 0.49))
    blocks = [Tally.of(scores[i : i + 1], torch.tensor([i]), 2) for i in range(2)]
    assert Tally.sum(blocks).metrics().ece == pytest.approx(0.01)
    assert min(block.metrics().ece for block in blocks) > 0.48


def test_reliability_by_hand() -> None:
    scores = logits((0.9, 0.1), (0.7, 0.3), (0.3, 0.7), (0.7, 0.3), (0.5, 0.5))
    blocks = [(scores[:3], torch.tensor([0, 0, 1])), (scores[3:], torch.tensor([1, 1]))]
    found = Tally.sum(Tally.of(*block, 2) for block in blocks).metrics().reliability
    assert found is not None
    # 0.9 falls in (13/15, 14/15], 0.7 in (10/15, 11/15], 0.5 in (7/15, 8/15].
    expected = {13: (1, 0.9, 1.0), 10: (3, 0.7, 2 / 3), 7: (1, 0.5, 0.0)}
    for b, one in enumerate(found):
        assert one == pytest.approx(expected.get(b, (0, 0.0, 0.0)))


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 999), n=st.integers(1, 200), classes=st.integers(2, 6))
def test_reliability_gives_the_calibration_error(seed: int, n: int, classes: int) -> None:
    found = measure(*scored(seed, n, classes), classes)
    bins = found.reliability
    assert bins is not None
    assert len(bins) == 15
    assert sum(count for count, _, _ in bins) == n
    assert sum(count * accuracy for count, _, accuracy in bins) / n == pytest.approx(found.accuracy)
    gaps = (count / n * abs(accuracy - confidence) for count, confidence, accuracy in bins)
    assert sum(gaps) == pytest.approx(found.ece, abs=1e-12)
    for b, (count, confidence, _) in enumerate(bins):
        assert not count or b / 15 - 1e-9 < confidence < (b + 1) / 15 + 1e-9


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 999), n=st.integers(1, 50), classes=st.integers(2, 6))
def test_a_tally_comes_back_from_json_exactly(seed: int, n: int, classes: int) -> None:
    tally = Tally.of(*scored(seed, n, classes), classes)
    found = Tally.from_json(json.loads(json.dumps(tally.to_json())))
    assert torch.equal(found.confusion, tally.confusion)
    assert torch.equal(found.gaps, tally.gaps)
    assert (found.confusion.dtype, found.gaps.dtype) == (tally.confusion.dtype, tally.gaps.dtype)
    assert found.loss == tally.loss
    assert found.metrics() == tally.metrics()


def test_the_highest_score_wins_by_however_little() -> None:
    assert measure(torch.tensor([[0.0, 1e-20]]), torch.tensor([1]), 2).accuracy == 1
