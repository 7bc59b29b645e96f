"""FedAvg and FedProx: values by hand, and against Flower's own aggregation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg, FedProx
from flwr.supercore.task_identity import TaskIdentity

from accord.client.training import Training
from accord.core.parts import make_part
from accord.core.randomness import torch_generator
from accord.messages import NET, Upload, unprefixed
from accord.methods import Method, methods
from accord.objective.base import Batch
from accord.objective.proximal import Proximal
from methods.scenes import CLIENTS, images, scene_of
from tests_support import brief_for


def fedavg() -> Method:
    made = make_part(methods, "averaging", "method")
    return made.filled({"use": "average"}, "recipe")


def uploads_of(folder: Path) -> list[Upload]:
    return [Upload.load(folder / f"client-{name}.safetensors") for name in CLIENTS]


def test_the_next_round_starts_at_the_weighted_mean(tmp_path: Path) -> None:
    """Σ n_k W_k / Σ n_k of every tensor, by NumPy; 12, 18 and 10 images."""
    method = fedavg()
    state = method.start(brief_for("ce-ensemble", epochs=1, batch=8))
    following = method.advance(state, scene_of(method.brief(state), tmp_path))
    nets = [unprefixed(NET, upload.tensors) for upload in uploads_of(tmp_path)]
    shares = np.array([12, 18, 10]) / 40
    for name, found in unprefixed(NET, following.tensors).items():
        each = np.stack([net[name].double().numpy() for net in nets])
        expected = np.tensordot(shares, each, axes=1)
        if not found.is_floating_point():
            assert name.endswith("num_batches_tracked")
            expected = np.rint(expected)  # steps of 2, 3 and 2 batches: 2.45 becomes 2
            assert found.dtype == torch.int64
        np.testing.assert_allclose(found.double().numpy(), expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("recipe", ["fedavg", "fedprox"])
def test_flower_aggregates_alike(
    recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TaskIdentity, "_run_id", 1)
    monkeypatch.setattr(TaskIdentity, "_node_id", 1)
    monkeypatch.setattr(TaskIdentity, "_task_id", 1)
    method = fedavg()
    state = method.start(brief_for(recipe, epochs=2, batch=8))
    following = method.advance(state, scene_of(method.brief(state), tmp_path))
    replies = [_reply(upload, node) for node, upload in enumerate(uploads_of(tmp_path), 1)]
    strategy = FedAvg() if recipe == "fedavg" else FedProx(proximal_mu=0.01)
    arrays, _ = strategy.aggregate_train(1, replies)
    assert arrays is not None
    found = unprefixed(NET, following.tensors)
    assert set(arrays.keys()) == set(found)
    for name, expected in arrays.items():
        values = expected.numpy() if found[name].is_floating_point() else np.rint(expected.numpy())
        np.testing.assert_allclose(found[name].numpy(), values, rtol=1e-5, atol=1e-6)


def _reply(upload: Upload, node: int) -> Message:
    """An upload as a client of Flower's would send it."""
    asked = Message(content=RecordDict(), dst_node_id=node, message_type="train")
    net = unprefixed(NET, upload.tensors)
    arrays = ArrayRecord({name: Array(tensor.numpy()) for name, tensor in net.items()})
    counts = MetricRecord({"num-examples": upload.header.samples})
    return Message(content=RecordDict({"arrays": arrays, "metrics": counts}), reply_to=asked)


# --- the proximal term ---------------------------------------------------------------------------


def test_the_proximal_term_by_hand() -> None:
    """w − w₀ = (1, −2) and 3 at μ = 0.5: 0.25 · (1 + 4 + 9), and μ(w − w₀) as its gradient."""
    w = torch.tensor([3.0, 1.0], requires_grad=True)
    b = torch.tensor(4.0, requires_grad=True)
    none = torch.zeros(1, 1)
    batch = Batch(
        *(none, none, torch.zeros(1, dtype=torch.long), none, torch.ones(1)),
        parameters=(w, b),
        first_parameters=(torch.tensor([2.0, 3.0]), torch.tensor(1.0)),
    )
    loss = Proximal(mu=0.5)(batch)
    assert loss.item() == pytest.approx(3.5)
    gradients = torch.autograd.grad(loss, [w, b])
    assert gradients[0].tolist() == pytest.approx([0.5, -1.0])
    assert gradients[1].item() == pytest.approx(1.5)


def test_two_plain_steps_of_fedprox_by_hand() -> None:
    """w₁ = w₀ − η g(w₀) and w₂ = w₁ − η (g(w₁) + μ(w₁ − w₀)): no pull before the first step."""
    eta, mu = 0.1, 0.7
    budget: dict[str, Any] = {"epochs": 2, "batch": 64, "lr": eta, "momentum": 0.0, "clip": None}
    change = {"objective": {"proximal": {"mu": mu}}}
    ours = Training(images("1"), brief_for("fedprox", change=change, **budget), "1")
    plain = Training(images("1"), brief_for("fedavg", **budget), "1")
    start = [p.detach().clone() for p in plain.parameters]
    ours.run_epoch()
    plain.run_epoch()
    first = [p.detach().clone() for p in plain.parameters]
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters, first, strict=True))
    draws = torch_generator(0, "1", "views", 1)
    plain.net.train()
    batch = plain.inputs.batch(plain._batches()[0], 0.5, draws, None)
    loss = torch.nn.functional.cross_entropy(batch.logits, batch.labels)
    gradients = torch.autograd.grad(loss, plain.parameters)
    event = ours.run_epoch()
    pull = sum(float((a - b).square().sum()) for a, b in zip(first, start, strict=True))
    assert event["loss_proximal"] == pytest.approx(mu / 2 * pull, rel=1e-4)
    for w2, w1, w0, g in zip(ours.parameters, first, start, gradients, strict=True):
        torch.testing.assert_close(w2.detach(), w1 - eta * (g + mu * (w1 - w0)))


def test_a_strong_pull_keeps_clients_near_the_server() -> None:
    moved = {}
    for mu in (1e-6, 1.0, 5.0):
        change = {"objective": {"proximal": {"mu": mu}}}
        briefing = brief_for("fedprox", change=change, epochs=20, lr=0.1, momentum=0.0)
        training = Training(images("1"), briefing, "1")
        start = [p.detach().clone() for p in training.parameters]
        while not training.done:
            training.run_epoch()
        pairs = zip(training.parameters, start, strict=True)
        moved[mu] = sum(float((a.detach() - b).square().sum()) for a, b in pairs)
    assert moved[1e-6] > 1.3 * moved[1.0] > 2 * moved[5.0] > 0
