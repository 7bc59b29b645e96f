"""∇L_loc and ∇L_al side by side, on the parameters that both losses reach."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from accord.balance.gradients import Gradients, shared_gradients
from balance.support import gradients

vector = st.lists(st.floats(-10, 10, width=32), min_size=4, max_size=4)


class Net:
    """An encoder, prototypes that both losses reach, and a bias that L_al alone reaches."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.encoder = nn.Linear(3, 2)
        self.prototypes = nn.Parameter(torch.randn(4, 2))
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.shift = nn.Parameter(torch.tensor(0.5))
        self.inputs, self.labels = torch.randn(5, 3), torch.tensor([0, 1, 2, 3, 0])

    @property
    def parameters(self) -> list[nn.Parameter]:
        return [*self.encoder.parameters(), self.scale, self.prototypes, self.shift]

    def losses(self) -> tuple[Tensor, Tensor]:
        logits = self.scale * self.encoder(self.inputs) @ self.prototypes.T
        return F.cross_entropy(logits, self.labels), (
            self.scale * self.prototypes - self.shift
        ).square().mean()


def grads(net: Net) -> list[Tensor | None]:
    return [parameter.grad for parameter in net.parameters]


def test_both_gradients_are_autograds() -> None:
    net = Net()
    found = shared_gradients(*net.losses(), net.parameters)
    assert [id(p) for p in found.parameters] == [id(net.scale), id(net.prototypes)]
    for side, loss in zip((found.local, found.align), net.losses(), strict=True):
        expected = torch.autograd.grad(loss, [net.scale, net.prototypes])
        torch.testing.assert_close(list(side), list(expected))


def test_by_hand() -> None:
    theta = nn.Parameter(torch.tensor([1.0, 2.0]))
    found = shared_gradients(theta.square().sum(), 3 * theta[0] - 4 * theta[1], [theta])
    # ∇L_loc = (2, 4), ∇L_al = (3, −4).
    torch.testing.assert_close(found.gramian(), torch.tensor([[20.0, -10.0], [-10.0, 25.0]]))
    expected = torch.tensor([math.sqrt(20), 5.0, -10 / (5 * math.sqrt(20))])
    torch.testing.assert_close(found.summary(), expected)


def test_the_products_run_over_all_shared_parameters() -> None:
    both = [nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1, 2))]
    local = [torch.tensor([1.0]), torch.tensor([[2.0, 3.0]])]
    align = [torch.tensor([4.0]), torch.tensor([[5.0, 6.0]])]
    expected = torch.tensor([[14.0, 32.0], [32.0, 77.0]])
    torch.testing.assert_close(Gradients(both, local, align).gramian(), expected)


def test_the_backward_pass_works_afterwards_and_gives_the_same() -> None:
    net, looked = Net(), Net()
    local, align = looked.losses()
    shared_gradients(local, align, looked.parameters)
    assert grads(looked) == [None] * 5  # looking fills nothing
    (local + align).backward()  # type: ignore[no-untyped-call]
    sum(net.losses(), torch.zeros(())).backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(grads(looked), grads(net), rtol=0, atol=0)


def test_only_what_is_asked_for() -> None:
    net = Net()
    found = shared_gradients(*net.losses(), [net.prototypes, net.shift])
    assert [id(p) for p in found.parameters] == [id(net.prototypes)]


def test_losses_with_nothing_in_common() -> None:
    one, other = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    found = shared_gradients(one.sum(), other.sum(), [one, other])
    assert found.parameters == []
    assert torch.equal(found.summary(), torch.zeros(3))


def test_a_constant_loss_reaches_nothing() -> None:
    theta = nn.Parameter(torch.ones(2))
    assert shared_gradients(theta.sum(), torch.tensor(1.0), [theta]).parameters == []
    assert shared_gradients(torch.tensor(1.0), theta.sum(), [theta]).parameters == []


@pytest.mark.parametrize(
    ("local", "align"), [((0.0, 0.0), (3.0, 4.0)), ((3.0, 4.0), (0.0, 0.0)), ((0.0,), (0.0,))]
)
def test_the_cosine_with_a_zero_gradient_is_0(
    local: tuple[float, ...], align: tuple[float, ...]
) -> None:
    norms = [math.hypot(*local), math.hypot(*align)]
    assert gradients(local, align).summary().tolist() == [*norms, 0]


@settings(max_examples=100, deadline=None)
@given(local=vector, align=vector)
def test_the_summary_is_norms_and_cosine(local: list[float], align: list[float]) -> None:
    one, other = torch.tensor(local), torch.tensor(align)
    assume(min(one.norm(), other.norm()) > 1e-3)
    expected = torch.stack([one.norm(), other.norm(), F.cosine_similarity(one, other, dim=0)])
    torch.testing.assert_close(gradients(local, align).summary(), expected, rtol=1e-5, atol=1e-5)
