"""The adapters of MergeNet: shapes, the identity at the start, gradients, spectral norms, pairs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.utils.parametrizations import spectral_norm

from accord.client.adam import Adam
from accord.core.errors import AccordError
from accord.core.mergenet import MergeNetConfig
from accord.core.randomness import torch_generator
from accord.messages import NetHeader
from accord.nets.adapters import Enrichment, adapters
from accord.nets.adapters.enrichment import resolve_pairs
from accord.nets.adapters.paper import Paper, SpectralLinear
from accord.nets.net import Net, fresh_net

SMALL: dict[str, Any] = {"d_attention": 8, "heads": 2, "layers": 2}
SHAPES = ((5, 7), (6, 3, 1, 1), (4, 3, 3, 3), (8, 1, 3, 3), (3, 2, 5, 5))  # linears, 1×1, k×k


def drawn(shape: tuple[int, ...], name: str) -> Tensor:
    return 0.1 * torch.randn(shape, generator=torch_generator(0, "adapters", name))


def enrichment(kind: str, student: tuple[int, ...], teacher: tuple[int, ...]) -> Enrichment:
    config = MergeNetConfig(adapter=kind, **SMALL)
    found = Enrichment((("a", "b"),), *layers(student, teacher), config)
    found.initialise(torch_generator(0, "adapter"))
    return found


def layers(
    student: tuple[int, ...], teacher: tuple[int, ...]
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    return {"a": drawn(student, "a")}, {"b": drawn(teacher, "b")}


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(["bottleneck", "paper", "direct"]),
    st.sampled_from(SHAPES),
    st.sampled_from(SHAPES),
)
def test_shapes_of_arbitrary_pairs(
    kind: str, student: tuple[int, ...], teacher: tuple[int, ...]
) -> None:
    own, other = layers(student, teacher)
    found = enrichment(kind, student, teacher)(own, other)
    assert found["a"].shape == student
    assert bool(torch.isfinite(found["a"]).all())


def test_identity_at_the_start() -> None:
    for kind in ("bottleneck", "direct"):
        for student in SHAPES:
            own, other = layers(student, (4, 6))
            assert torch.equal(enrichment(kind, student, (4, 6))(own, other)["a"], own["a"])
    own, other = layers((5, 7), (4, 6))
    assert not torch.allclose(enrichment("paper", (5, 7), (4, 6))(own, other)["a"], own["a"])


def test_every_parameter_gets_a_gradient_by_the_second_step() -> None:
    for kind in adapters:
        own, other = layers((6, 3, 3, 3), (5, 9))
        found = enrichment(kind, (6, 3, 3, 3), (5, 9)).train()
        optimiser = Adam(found.parameters(), lr=0.01)
        weights = drawn((6, 3, 3, 3), "loss")
        for _ in range(2):
            optimiser.clear()
            (found(own, other)["a"] - weights).square().sum().backward()
            gradients = {n: p.grad for n, p in found.named_parameters()}
            optimiser.step()
        for name, gradient in gradients.items():
            assert gradient is not None, f"{kind}: {name}"
            # A mathematical zero would be rounding noise of about 1e-9.
            assert float(gradient.abs().max()) > 1e-6, f"{kind}: {name}"


def test_only_the_teacher_makes_a_difference_where_it_is_used() -> None:
    for kind, differs in (("bottleneck", True), ("paper", True), ("direct", False)):
        own, other = layers((6, 5), (4, 6))
        found = enrichment(kind, (6, 5), (4, 6)).eval()
        with torch.no_grad():
            for parameter in found.parameters():  # leave the identity
                parameter.add_(0.1)
            first = found(own, other)["a"]
            second = found(own, {"b": drawn((4, 6), "another")})["a"]
        assert torch.equal(first, second) != differs


def test_the_paper_adapter_at_the_size_of_the_note() -> None:
    """160×960 ← 100×2048; the reference code has 38.6 M, with a linear layer that it never uses."""
    with torch.device("meta"):
        adapter = Paper((160, 960), (100, 2048), MergeNetConfig())
    weights = sum(p.numel() for p in adapter.parameters())
    assert weights + 960 * 961 == pytest.approx(38.6e6, rel=0.002)
    with torch.device("meta"):
        small = adapters.get("bottleneck")((160, 960), (100, 2048), MergeNetConfig())
    assert sum(p.numel() for p in small.parameters()) == pytest.approx(0.3e6, rel=0.1)


def test_spectral_norm_is_that_of_torch() -> None:
    ours = SpectralLinear(6, 9).train()
    theirs: Any = spectral_norm(torch.nn.Linear(6, 9))
    rows = drawn((4, 6), "rows")
    with torch.no_grad():
        ours.warm_up(torch_generator(0, "spectral"))
        theirs.parametrizations.weight.original.copy_(ours.weight)
        theirs.bias.copy_(ours.bias)
        norm = theirs.parametrizations.weight[0]
        norm._u.copy_(ours.u)
        norm._v.copy_(ours.v)
    for _ in range(2):
        a, b = ours(rows), theirs(rows)
        torch.testing.assert_close(a, b)
        a.square().sum().backward()
        b.square().sum().backward()
        original = theirs.parametrizations.weight.original
        torch.testing.assert_close(ours.weight.grad, original.grad)
    largest = torch.linalg.matrix_norm(ours.weight / torch.dot(ours.u, ours.weight @ ours.v), 2)
    assert float(largest.detach()) == pytest.approx(1, abs=0.05)
    before = ours.u.clone()
    ours.eval()(rows)
    assert torch.equal(ours.u, before)  # nothing changes outside of training


def test_adam_is_that_of_torch_bit_for_bit() -> None:
    values = [drawn((3, 4), "w"), drawn((5,), "b")]
    ours, theirs = ([torch.nn.Parameter(v.clone()) for v in values] for _ in range(2))
    adam = Adam(ours, lr=0.01)
    reference = torch.optim.Adam(theirs, lr=0.01, foreach=False)
    for step in range(8):
        for a, b in zip(ours, theirs, strict=True):
            a.grad = drawn(tuple(a.shape), f"gradient {step}")
            b.grad = a.grad.clone()
        adam.step()
        reference.step()
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
        if step == 4:  # a restored optimiser goes on with the same bits
            kept = {name: tensor.clone() for name, tensor in adam.state_dict().items()}
            adam = Adam(ours, lr=0.01)
            adam.load_state_dict(kept)


def net_of(backbone: str) -> Net:
    header = NetHeader(backbone=backbone, norm="batch", head="linear")
    return fresh_net(header, 3, 10, torch_generator(0, "net"))


def test_pairs_are_found_by_short_names() -> None:
    student, teacher = net_of("conv4").state_dict(), net_of("resnet10").state_dict()
    found = resolve_pairs(MergeNetConfig(), student, teacher)
    last = [name for name, t in student.items() if t.ndim == 4][-1]
    assert found == ((last, "head.prototypes"),)
    named = {last.removesuffix(".weight"): "head", "head": "encoder.stages.stem.0.weight"}
    pairs = resolve_pairs(MergeNetConfig(pairs=named), student, teacher)
    assert pairs == (found[0], ("head.prototypes", "encoder.stages.stem.0.weight"))


def test_pairs_that_do_not_fit_are_refused() -> None:
    student, teacher = net_of("conv4").state_dict(), net_of("resnet10").state_dict()
    last = [name for name, t in student.items() if t.ndim == 4][-1]
    cases = {
        "the student has no layer 'nose'": [("nose", "head")],
        "the teacher has no layer 'haed'": [("head", "haed")],
        "id you mean": [("head.protypes", "head")],
        "has the shape (10,)": [("head.bias", "head")],
        "has the shape (16,)": [("head", "encoder.stages.stem.1")],
        "is named twice": [(last, "head"), (last.removesuffix(".weight"), "head")],
    }
    for words, pairs in cases.items():
        with pytest.raises(AccordError) as error:
            resolve_pairs(MergeNetConfig(pairs=tuple(pairs)), student, teacher)
        assert words in str(error.value), str(error.value)
