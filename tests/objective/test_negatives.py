"""Rows from outside the batch: chunk by chunk, but as if all similarities were there at once."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from accord.core.randomness import torch_generator
from accord.objective import negatives
from accord.objective.negatives import Pull, Rows, hardest, hardness_of, outside
from core.cases import case, looped

CLASSES = 4
CHUNKS = [1, 3, 7, 4096]


def noise(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch_generator(seed, "negatives"), dtype=torch.float64)


def rows_of(seed: int, count: int, classes: int = CLASSES) -> Rows:
    labels = torch.randint(classes, (count,), generator=torch_generator(seed, "labels"))
    return Rows(F.normalize(noise(seed, count, 5), dim=1), labels)


def anchors_of(seed: int, count: int = 6) -> tuple[Tensor, Tensor]:
    found = rows_of(seed + 1000, count)
    return found.features.requires_grad_(), found.labels


def whole_matrix(z: Tensor, y: Tensor, rows: Rows, pull: Pull) -> Tensor:
    """The definition, with every similarity and every weight in plain sight of autograd."""
    cosine = z @ rows.features.T
    weight = pull.bias[rows.labels].exp() * (pull.hardness * cosine.detach()).exp()
    if not rows.own_class:
        weight = weight * (y[:, None] != rows.labels[None, :])
    return (weight * (cosine / pull.temperature).exp()).sum(dim=1).log()


# --- outside -----------------------------------------------------------------------------------


def test_outside_by_hand() -> None:
    # Cosines 0.6, 0.8 and 1; the last is of the anchor's own class. τ = 0.5, class 1 weighs twice.
    features = torch.tensor([[0.6, 0.8], [0.8, 0.6], [1.0, 0.0]], dtype=torch.float64)
    z, y = torch.tensor([[1.0, 0.0]], dtype=torch.float64), torch.tensor([0])
    rows = Rows(features, torch.tensor([1, 2, 0]))
    bias = torch.tensor([1.0, 2.0, 1.0], dtype=torch.float64).log()
    found = outside(z, y, rows, Pull(0.5, 0.0, bias=bias))
    assert found.exp().item() == pytest.approx(2 * 3.320116922736547 + 4.953032424395115)


@looped("chunk", CHUNKS)
def test_outside_is_what_the_whole_matrix_gives_in_value_and_gradient(
    monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(negatives, "CHUNK", chunk)
    for own_class, hardness, temperature in product((True, False), (0.0, 2.0), (0.07, 0.5)):
        with case(own_class, hardness, temperature):
            assert_whole_matrix(own_class, hardness, temperature)


def assert_whole_matrix(own_class: bool, hardness: float, temperature: float) -> None:
    (z, y), rows = anchors_of(0), replace(rows_of(1, 20), own_class=own_class)
    pull = Pull(temperature, hardness, bias=noise(2, CLASSES))
    found, expected = outside(z, y, rows, pull), whole_matrix(z, y, rows, pull)
    upstream = noise(3, len(z))
    (gradient,) = torch.autograd.grad(found, z, upstream)
    (expected_gradient,) = torch.autograd.grad(expected, z, upstream)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-9, atol=1e-12)


def test_the_gradient_of_outside_is_its_slope() -> None:
    (z, y), rows = anchors_of(4), replace(rows_of(5, 9), own_class=True)
    pull = Pull(0.3, 0.0, bias=noise(6, CLASSES))
    assert torch.autograd.gradcheck(lambda moved: outside(moved, y, rows, pull), z)


@looped("chunk", CHUNKS)
def test_an_anchor_with_nothing_outside_its_class_has_no_sum_and_no_gradient(
    monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(negatives, "CHUNK", chunk)
    z = F.normalize(noise(0, 2, 5), dim=1).requires_grad_()
    rows = Rows(rows_of(1, 8).features, torch.ones(8, dtype=torch.long))
    found = outside(z, torch.tensor([0, 1]), rows, Pull(0.07, 2.0, bias=torch.zeros(2)))
    assert found.isfinite().tolist() == [True, False]
    assert found[1].item() == -torch.inf
    (gradient,) = torch.autograd.grad(found, z, torch.ones(2, dtype=torch.float64))
    assert bool((gradient[0] != 0).all())
    assert torch.equal(gradient[1], torch.zeros(5, dtype=torch.float64))


def test_outside_of_no_rows_at_all_is_minus_infinity() -> None:
    z, y = anchors_of(0)
    nothing = Rows(torch.zeros(0, 5, dtype=torch.float64), torch.zeros(0, dtype=torch.long))
    found = outside(z, y, nothing, Pull(0.07, 0.0, bias=torch.zeros(CLASSES)))
    (gradient,) = torch.autograd.grad(found.sum(), z)
    assert bool((found == -torch.inf).all())
    assert torch.equal(gradient, torch.zeros_like(gradient))


def test_outside_does_not_overflow_at_the_coldest_temperature() -> None:
    # exp(1/τ) = exp(1000) is no float; its logarithm is.
    z = torch.tensor([[1.0, 0.0]], requires_grad=True)
    rows = Rows(torch.tensor([[1.0, 0.0]]), torch.tensor([1]))
    found = outside(z, torch.tensor([0]), rows, Pull(1e-3, 0.0, bias=torch.zeros(2)))
    (gradient,) = torch.autograd.grad(found, z)
    assert found.item() == pytest.approx(1000)
    assert gradient[0].tolist() == pytest.approx([1000, 0])


# --- hardness ----------------------------------------------------------------------------------


@looped("chunk", CHUNKS)
def test_hardness_is_a_sum_and_a_count_over_rows_of_other_classes(
    monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(negatives, "CHUNK", chunk)
    (z, y), rows = anchors_of(0), rows_of(1, 20)
    totals, counts = hardness_of(z, y, rows, 2.0)
    assert not totals.requires_grad
    for anchor, label, total, count in zip(z, y, totals.tolist(), counts.tolist(), strict=True):
        kept = rows.features[rows.labels != label]
        assert count == len(kept)
        assert total == pytest.approx((2 * kept @ anchor).logsumexp(dim=0).item(), rel=1e-12)


# --- hardest -----------------------------------------------------------------------------------


def slow_hardest(anchor: Tensor, label: Tensor, sources: list[Rows], count: int) -> Tensor:
    others = torch.cat([source.features[source.labels != label] for source in sources])
    order = sorted(range(len(others)), key=lambda row: -float(others[row] @ anchor))[:count]
    missing = torch.zeros(count - len(order), anchor.shape[0], dtype=anchor.dtype)
    return torch.cat([others[order], missing])


@looped("chunk", CHUNKS)
@looped("count", [1, 4, 11, 60])
def test_hardest_is_the_head_of_a_sorted_list(
    monkeypatch: pytest.MonkeyPatch, chunk: int, count: int
) -> None:
    monkeypatch.setattr(negatives, "CHUNK", chunk)
    (z, y), sources = anchors_of(0), [rows_of(1, 12), rows_of(2, 17)]
    found = hardest(z, y, sources, count)
    assert not found.requires_grad
    expected = [slow_hardest(a, b, sources, count) for a, b in zip(z.detach(), y, strict=True)]
    assert torch.equal(found, torch.stack(expected))


def test_hardest_of_one_class_alone_is_zero_rows() -> None:
    z, own = anchors_of(0)[0], torch.zeros(6, dtype=torch.long)
    assert torch.equal(hardest(z, own, [rows_of(1, 9, classes=1)], 3), z.new_zeros(6, 3, 5))


# --- memory ------------------------------------------------------------------------------------

LARGE = """
import torch
from pathlib import Path
from accord.objective import Batch
from accord.objective.contrast import Contrast
from accord.objective.negatives import Rows

def peak():
    line = next(s for s in Path("/proc/self/status").open() if s.startswith("VmHWM"))
    return 1024 * int(line.split()[1])

torch.set_num_threads(1)
features, labels = torch.randn(1024, 512, requires_grad=True), torch.randint(10, (1024,))
bank = Rows(torch.randn(65536, 512).div_(512**0.5), torch.randint(10, (65536,)))
P = torch.randn(10, 512)
batch = Batch(features, features @ P.T, labels, P, torch.ones(10, dtype=torch.long), bank=bank)
before = peak()
Contrast(bank="others")(batch).backward()
print(peak() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads Linux's peak of memory")
def test_a_bank_of_65536_rows_needs_less_than_one_copy_of_its_similarities() -> None:
    # The peak that getrusage tells would start at that of the parent process.
    command = [sys.executable, "-c", LARGE]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ)
    assert int(done.stdout) < 1024 * 65536 * 4
