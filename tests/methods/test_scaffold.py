"""SCAFFOLD: control variates at the client and at the server, by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from accord.client.training import Training
from accord.core.errors import AccordError
from accord.core.parts import make_part
from accord.core.randomness import torch_generator
from accord.messages import CONTROL, NET, Briefing, Memory, Upload, prefixed, unprefixed
from accord.methods import Method, methods
from methods.scenes import CLIENTS, images, scene_of
from tests_support import brief_for, same

PLAIN: dict[str, Any] = {"epochs": 2, "batch": 8, "momentum": 0.0, "clip": None, "lr": 0.1}


def scaffold(weights: str = "count", **values: Any) -> Method:
    made = make_part(methods, {"use": "scaffold", **values}, "method")
    return made.filled({"use": "average", "weights": weights}, "recipe")


def controls(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return unprefixed(CONTROL, tensors)


def with_controls(briefing: Briefing, seed: int) -> Briefing:
    """The same briefing with some control variates of the server's."""
    draws = torch_generator(seed, "controls")
    made = {
        name: 0.01 * torch.randn(value.shape, generator=draws)
        for name, value in controls(briefing.tensors).items()
    }
    return Briefing(briefing.header, {**briefing.tensors, **prefixed(CONTROL, made)})


def opening(**budget: Any) -> Briefing:
    method = scaffold()
    return method.brief(method.start(brief_for("scaffold", **{**PLAIN, **budget})))


def test_one_step_follows_the_corrected_gradient() -> None:
    """y = x − η(g − c_k + c)."""
    briefing = with_controls(opening(epochs=1, batch=64), seed=1)
    own = controls(with_controls(opening(), seed=2).tensors)
    memory = Memory(_memory_header("0", briefing), prefixed(CONTROL, own))
    training = Training(images("0"), briefing, "0", memory=memory)
    start = {n: p.detach().clone() for n, p in training.net.named_parameters()}
    plain = Training(images("0"), brief_for("fedavg", **{**PLAIN, "epochs": 1, "batch": 64}), "0")
    plain.run_epoch()
    training.run_epoch()
    stepped = dict(plain.net.named_parameters())
    c = controls(briefing.tensors)
    for name, y in training.net.named_parameters():
        gradient = (start[name] - stepped[name].detach()) / 0.1
        expected = start[name] - 0.1 * (gradient - own[name] + c[name])
        torch.testing.assert_close(y.detach(), expected, rtol=1e-4, atol=1e-6)


def _memory_header(client: str, briefing: Briefing) -> Any:
    return Memory.header_type.model_validate(
        {"client": client, "round": 1, "briefing": briefing.digest}
    )


def test_the_next_control_is_the_paper_s_option_two_for_plain_sgd() -> None:
    """c_k⁺ = c_k − c + (x − y)/(Tη), with T = 2 epochs of 3 batches."""
    briefing = with_controls(opening(), seed=3)
    own = controls(with_controls(opening(), seed=4).tensors)
    memory = Memory(_memory_header("1", briefing), prefixed(CONTROL, own))
    training = Training(images("1"), briefing, "1", memory=memory)
    start = {n: p.detach().clone() for n, p in training.net.named_parameters()}
    while not training.done:
        training.run_epoch()
    c = controls(briefing.tensors)
    kept = training.memory()
    assert kept is not None
    sent = controls(training.upload().tensors)
    for name, y in training.net.named_parameters():
        expected = own[name] - c[name] + (start[name] - y.detach()) / (6 * 0.1)
        found = controls(kept.tensors)[name]
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)
        torch.testing.assert_close(sent[name], found - own[name], rtol=1e-4, atol=1e-6)


def test_a_client_can_be_restored_between_two_epochs() -> None:
    briefing = with_controls(opening(momentum=0.9, clip=1.0), seed=5)
    whole, first = (Training(images("1"), briefing, "1") for _ in range(2))
    for _ in range(2):
        whole.run_epoch()
    first.run_epoch()
    second = Training(images("1"), briefing, "1")
    second.restore(first.state())
    second.run_epoch()
    assert same(whole.upload().tensors, second.upload().tensors)


def test_the_first_round_is_that_of_fedavg(tmp_path: Path) -> None:
    """All control variates start at 0."""
    method = scaffold()
    state = method.start(brief_for("scaffold", **PLAIN))
    following = method.advance(state, scene_of(method.brief(state), tmp_path))
    other = make_part(methods, "averaging", "method").filled({"use": "average"}, "recipe")
    plain = other.start(brief_for("fedavg", **PLAIN))
    (tmp_path / "plain").mkdir()
    expected = other.advance(plain, scene_of(other.brief(plain), tmp_path / "plain"))
    assert same(unprefixed(NET, following.tensors), unprefixed(NET, expected.tensors))
    assert any(bool(c.any()) for c in controls(following.tensors).values())


@pytest.mark.parametrize("weights", ["equal", "count", "sqrt"])
def test_the_server_keeps_the_mean_of_all_clients_controls(weights: str, tmp_path: Path) -> None:
    """Over rounds that ask all three clients, then one, then two; equal weights are the paper's."""
    method = scaffold(weights)
    state = method.start(brief_for("scaffold", **PLAIN))
    memories: dict[str, Memory] = {}
    sizes = {name: len(labels) for name, labels in CLIENTS.items()}
    power = {"equal": 0.0, "sqrt": 0.5, "count": 1.0}[weights]
    for asked in (["1"], ["0", "2"], ["0", "1", "2"]):
        state = method.advance(state, scene_of(method.brief(state), tmp_path, asked, memories))
        v = {name: sizes[name] ** power for name in memories}
        usual = sum(v.values()) / len(v)
        for name, found in controls(state.tensors).items():
            each = [v[k] * controls(m.tensors)[name].double() for k, m in memories.items()]
            expected = torch.stack(each).sum(dim=0) / (usual * len(CLIENTS))
            torch.testing.assert_close(found.double(), expected, rtol=1e-3, atol=1e-6)


def test_equal_weights_add_a_kth_of_every_change(tmp_path: Path) -> None:
    """c ← c + Σ_k (c_k⁺ − c_k)/K, also when a round asks one client of three."""
    method = scaffold("equal")
    state = method.start(brief_for("scaffold", **PLAIN))
    for asked in (["2"], ["1", "2"]):
        scene = scene_of(method.brief(state), tmp_path, asked)
        following = method.advance(state, scene)
        changes = [controls(scene.uploads.load(i).tensors) for i in range(len(asked))]
        for name, before in controls(state.tensors).items():
            added = torch.stack([change[name] for change in changes]).sum(dim=0) / 3
            torch.testing.assert_close(
                controls(following.tensors)[name], before + added, rtol=1e-4, atol=1e-7
            )
        state = following


@pytest.mark.parametrize("step", [0.5, 1.0, 1.5])
def test_the_server_steps_towards_the_mean(step: float, tmp_path: Path) -> None:
    """x + η_g(x̄ − x) for trained weights; statistics of batch norms are averaged as they are."""
    method = scaffold(server_lr=step)
    state = method.start(brief_for("scaffold", **PLAIN))
    scene = scene_of(method.brief(state), tmp_path)
    found, mean = method.advance(state, scene), scaffold().advance(state, scene)
    trained = controls(state.tensors)
    for name, x_bar in unprefixed(NET, mean.tensors).items():
        x, new = state.tensors[NET + name], found.tensors[NET + name]
        expected = x + step * (x_bar - x) if name in trained else x_bar
        torch.testing.assert_close(new, expected, rtol=1e-5, atol=1e-6)
        if step == 1.0:
            assert torch.equal(new, x_bar)


def test_controls_travel_and_are_checked(tmp_path: Path) -> None:
    briefing = opening()
    scene = scene_of(briefing, tmp_path)
    upload = scene.uploads.load(0)
    trained = sum(t.numel() for t in controls(upload.tensors).values())
    weights = sum(p.numel() for p in Training(images("0"), briefing, "0").parameters)
    assert trained == weights
    name = CONTROL + next(iter(controls(upload.tensors)))
    lacking = Upload(upload.header, {k: v for k, v in upload.tensors.items() if k != name})
    with pytest.raises(AccordError, match=f"tensor '{name}' should be .*found absent"):
        lacking.check(briefing, "here")
    broken = Upload(upload.header, {**upload.tensors, name: upload.tensors[name] * torch.nan})
    with pytest.raises(AccordError, match=f"'{name}' holds NaN"):
        broken.check(briefing, "here")
