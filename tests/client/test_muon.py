"""Muon for kernels, against singular values computed one by one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from torch import Tensor, nn

from accord.client.muon import MOMENTUM, MuonGroup, orthogonal
from accord.client.optimiser import Optimiser
from accord.core.budget import Budget
from accord.core.randomness import torch_generator


def by_singular_values(matrix: np.ndarray) -> np.ndarray:
    """The iteration on each singular value: σ ← 3.4445σ − 4.775σ³ + 2.0315σ⁵, three times."""
    U, sigma, Vt = np.linalg.svd(matrix, full_matrices=False)
    sigma = sigma / np.linalg.norm(matrix)
    for _ in range(3):
        sigma = 3.4445 * sigma - 4.775 * sigma**3 + 2.0315 * sigma**5
    found: np.ndarray = (U * sigma) @ Vt
    return found


def stepped(kernel: np.ndarray, gradients: list[np.ndarray], lr: float) -> np.ndarray:
    """W after a step with each gradient, in numpy."""
    rows, moving = len(kernel), np.zeros_like(kernel)
    for gradient in gradients:
        moving = MOMENTUM * moving + gradient
        turned = by_singular_values((gradient + MOMENTUM * moving).reshape(rows, -1))
        kernel = kernel * rows**0.5 / np.linalg.norm(kernel) - lr * turned.reshape(kernel.shape)
    return kernel


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(1, 30))
def test_all_directions_get_about_the_same_length(seed: int, rows: int, columns: int) -> None:
    matrix = torch.randn((rows, columns), generator=torch_generator(seed, "muon")).double()
    found = orthogonal(matrix)
    np.testing.assert_allclose(found.numpy(), by_singular_values(matrix.numpy()), atol=1e-9)
    before, after = torch.linalg.svdvals(matrix), torch.linalg.svdvals(found)
    clear = before > 0.1 * before.norm()
    assert bool(((after[: len(before)] > 0.6) & (after < 1.3))[clear].all())


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 4), st.sampled_from([1, 3]))
def test_steps_are_those_of_the_formula(seed: int, outputs: int, inputs: int, side: int) -> None:
    draws = torch_generator(seed, "muon")
    shape = (outputs, inputs, side, side)
    values = [torch.randn(shape, generator=draws).double() for _ in range(4)]
    kernel = nn.Parameter(values[0].clone())
    group = MuonGroup([kernel], base_lr=0.1, lr=0.1)
    for gradient in values[1:]:
        kernel.grad = gradient.clone()
        group.step()
    expected = stepped(values[0].numpy(), [v.numpy() for v in values[1:]], 0.1)
    np.testing.assert_allclose(kernel.detach().numpy(), expected, atol=1e-9)


def parameters(seed: int) -> list[nn.Parameter]:
    draws = torch_generator(seed, "parameters")
    shapes = ((4, 3, 3, 3), (4,), (5, 4))
    return [nn.Parameter(torch.randn(shape, generator=draws)) for shape in shapes]


def give_gradients(some: list[nn.Parameter], draws: torch.Generator) -> list[Tensor]:
    for parameter in some:
        parameter.grad = torch.randn(parameter.shape, generator=draws)
    return [parameter.grad.clone() for parameter in some if parameter.grad is not None]


def test_only_kernels_are_stepped_by_muon_and_both_lrs_follow_the_schedule() -> None:
    ours, theirs = parameters(1), parameters(1)[1:]
    budget = Budget(lr=0.2, weight_decay=0.01, clip=None, muon=0.1, schedule="linear")
    optimiser = Optimiser(ours, [], budget)
    reference = torch.optim.SGD(theirs, lr=0.2, momentum=0.9, weight_decay=0.01)
    draws, kernel = torch_generator(1, "gradients"), ours[0].detach().double().numpy()
    moving = np.zeros_like(kernel)
    for progress in (0.0, 0.25, 0.5):
        optimiser.begin(progress)
        first, *others = give_gradients(ours, draws)
        for parameter, gradient in zip(theirs, others, strict=True):
            parameter.grad = gradient
        optimiser.finish()
        reference.param_groups[0]["lr"] = optimiser.lr
        reference.step()
        assert optimiser.lr == pytest.approx(0.2 * (1 - progress))
        assert all(torch.equal(a, b) for a, b in zip(ours[1:], theirs, strict=True))
        g = first.double().numpy()
        moving = MOMENTUM * moving + g
        turned = by_singular_values((g + MOMENTUM * moving).reshape(4, -1)).reshape(kernel.shape)
        kernel = kernel * 2 / np.linalg.norm(kernel) - 0.1 * (1 - progress) * turned
        np.testing.assert_allclose(ours[0].detach().numpy(), kernel, atol=1e-5)


def test_momentum_of_kernels_is_kept_and_given_back() -> None:
    """Six steps without a stop end at the same bits as three, a stop, and three."""
    budget = Budget(clip=None, muon=0.1)

    def walked(stop: bool) -> list[nn.Parameter]:
        some, draws = parameters(2), torch_generator(2, "gradients")
        optimiser = Optimiser(some, [], budget)
        for step in range(6):
            if stop and step == 3:
                kept = {name: buffer.clone() for name, buffer in optimiser.momentum().items()}
                assert len(kept) == len(some)
                optimiser = Optimiser(some, [], budget)
                optimiser.restore(kept)
            optimiser.begin(0.0)
            give_gradients(some, draws)
            optimiser.finish()
        return some

    assert all(torch.equal(a, b) for a, b in zip(walked(True), walked(False), strict=True))


def test_a_kernel_without_a_gradient_stays_and_one_of_zeros_is_only_brought_to_its_length() -> None:
    kernels = [nn.Parameter(torch.ones(4, 1, 1, 1)), nn.Parameter(3 * torch.ones(4, 1, 1, 1))]
    kernels[1].grad = torch.zeros(4, 1, 1, 1)
    MuonGroup(kernels, base_lr=0.5, lr=0.5).step()
    assert torch.equal(kernels[0], torch.ones(4, 1, 1, 1))
    assert torch.allclose(kernels[1], torch.ones(4, 1, 1, 1))


@pytest.mark.parametrize("value", [0, -0.1, 1.5, "fast"])
def test_a_learning_rate_that_is_none_is_refused(value: object) -> None:
    with pytest.raises(ValidationError):
        Budget.model_validate({"muon": value})
