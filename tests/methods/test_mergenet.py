"""Federated MergeNet: its three ways to train the adapter, by hand and against autograd."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional as F

from accord.client.adam import Adam
from accord.client.base import answer
from accord.client.make import make_client
from accord.client.training import Training
from accord.core.errors import AccordError, ClientError
from accord.core.mergenet import MergeNetConfig
from accord.core.parts import make_part
from accord.core.randomness import torch_generator
from accord.data.augmentations import augmentations
from accord.data.views import augment
from accord.fusion.average import recalibrated
from accord.fusion.base import Scene
from accord.messages import (
    ADAPTER,
    NET,
    SOURCE,
    TEACHER,
    Briefing,
    NetHeader,
    ServerState,
    TeacherHeader,
    prefixed,
    unprefixed,
)
from accord.methods import methods
from accord.methods.mergenet import MergeNet
from accord.methods.public_training import _batches
from accord.nets.adapters import Enrichment
from accord.nets.net import fresh_net, loaded_net
from accord.nets.settings import TeacherConfig
from accord.nets.teacher import TeacherNet
from methods.scenes import CLIENTS, images, scene_of
from tests_support import brief_for, images_of, same

PUBLIC = [0, 1, 2, 3] * 6
HEADER = TeacherHeader(
    net=NetHeader(backbone="resnet10", norm="batch", head="linear"), mean=(0.3,), std=(0.35,)
)
LAST = "encoder.stages.stage4.0.weight"  # the student's last convolution


def mergenet(teacher: TeacherConfig | None = None, **settings: Any) -> MergeNet:
    made = make_part(methods, {"use": "mergenet", "merge": "average"}, "method")
    small = {"d_attention": 8, "heads": 2, "steps": 4, "batch": 8, "start_round": 1, **settings}
    found = made.with_settings(MergeNetConfig(**small), teacher or TeacherConfig())
    assert isinstance(found, MergeNet)
    return found.with_rounds(3)


def opening(recipe: str = "fedavg", **budget: Any) -> Briefing:
    """A briefing of three rounds with a random teacher."""
    plain = brief_for(recipe, **{"epochs": 1, "batch": 8, **budget})
    weights = fresh_net(HEADER.net, 1, 10, torch_generator(5, "teacher")).state_dict()
    header = plain.header.model_copy(update={"teacher": HEADER, "rounds": 3})
    own = {n: t for n, t in plain.tensors.items() if not n.startswith(TEACHER)}
    return Briefing(header, {**own, **prefixed(TEACHER, weights)})


def scene(state: ServerState, folder: Path, public: list[int] = PUBLIC) -> Scene:
    folder.mkdir(exist_ok=True)
    return replace(scene_of(state.briefing(), folder), public=images_of(public))


def net(state: ServerState) -> dict[str, Tensor]:
    return unprefixed(NET, state.tensors)


def test_the_table_of_rounds_with_a_fusion() -> None:
    table = {
        (1, 1): [1, 2, 3, 4, 5, 6, 7],
        (2, 1): [2, 3, 4, 5, 6, 7],
        (1, 2): [1, 3, 5, 7],
        (2, 3): [2, 5],
        (4, 2): [4, 6],
        (8, 1): [],
        (7, 9): [7],
    }
    for (start, frequency), rounds in table.items():
        settings = MergeNetConfig(start_round=start, fusion_frequency=frequency)
        assert [r for r in range(1, 8) if settings.due(r)] == rounds
        method = mergenet(start_round=start, fusion_frequency=frequency)
        assert [r for r in range(1, 8) if method.fusion_applied(r)] == rounds


def test_only_the_paired_layers_change(tmp_path: Path) -> None:
    plain = make_part(methods, "averaging", "method").filled({"use": "average"}, "recipe")
    first = opening()
    expected = net(plain.advance(plain.start(first), scene(plain.start(first), tmp_path)))
    for pairs in ((), ((LAST, "head"), ("head", "encoder.stages.stem.0"))):
        for recalibrate in (False, True):
            method = mergenet(pairs=pairs, bn_recalibrate=recalibrate, lr=0.05)
            state = method.start(first)
            found = net(method.advance(state, scene(state, tmp_path)))
            differing = {name for name in found if not torch.equal(found[name], expected[name])}
            paired = {LAST, "head.prototypes"} if pairs else {LAST}
            statistics = {n for n in found if "running" in n or "num_batches" in n}
            assert differing - statistics == paired
            assert bool(differing & statistics) == recalibrate
    # Statistics that are measured again are those of the enriched net.
    told = scene(state, tmp_path)
    assert same(found, recalibrated(found, told, 512))


def test_the_first_fusion_of_a_bottleneck_is_the_identity(tmp_path: Path) -> None:
    """Without a training step before it, φ makes no difference to any bit."""
    method = mergenet(train="pseudo", bn_recalibrate=False)
    plain = make_part(methods, "averaging", "method").filled({"use": "average"}, "recipe")
    state = method.start(opening())
    told = scene(state, tmp_path)
    assert same(net(method.advance(state, told)), net(plain.advance(state, told)))


def test_no_fusion_before_the_first_round_of_fusions(tmp_path: Path) -> None:
    plain = make_part(methods, "averaging", "method").filled({"use": "average"}, "recipe")
    for train in ("public", "pseudo"):
        method = mergenet(train=train, start_round=2, lr=0.05)
        state = method.start(opening())
        told = scene(state, tmp_path / train)
        assert same(net(method.advance(state, told)), net(plain.advance(state, told)))


def test_the_pseudo_gradient_is_the_exact_gradient_for_one_plain_step(tmp_path: Path) -> None:
    """φ₁ = φ₀ − η ∇_φ Σ_k w_k L_k(A_φ(W, Y)), by autograd through the whole net."""
    lr, rate = 0.5, 1.0
    method = mergenet(train="pseudo", bn_recalibrate=False, lr=rate, pairs=((LAST, "head"),))
    one_step: dict[str, Any] = {"batch": 64, "lr": lr, "momentum": 0.0, "clip": None}
    first = method.start(opening(**one_step))
    values = {n: t for n, t in first.tensors.items() if "adapter" in n}
    draws = torch_generator(0, "no identity")
    moved = {n: t + 0.1 * torch.randn(t.shape, generator=draws) for n, t in values.items()}
    first = ServerState(first.header, {**first.tensors, **moved})
    second = method.advance(first, scene(first, tmp_path / "1"))
    third = method.advance(second, scene(second, tmp_path / "2"))

    teacher = unprefixed(TEACHER, opening().tensors)
    before = {LAST: unprefixed("server.before.", second.tensors)[LAST]}
    config = method.asked
    enrichment = Enrichment(((LAST, "head.prototypes"),), before, teacher, config)
    enrichment.load_state_dict(unprefixed("server." + ADAPTER, second.tensors))
    briefing = second.briefing()
    header = briefing.header
    total = torch.zeros(())
    samples = sum(map(len, CLIENTS.values()))
    for name in CLIENTS:
        client = make_client(images(name), briefing, name)
        assert isinstance(client, Training)
        (positions,) = client._batches()
        views = torch_generator(header.seed, name, "views", client.epoch)
        kind = augmentations.get(header.augment)
        seen = augment(client.data.batch(positions), kind, 1, views, header.mean, header.std)
        enriched = enrichment(before, teacher)
        torch.testing.assert_close(enriched[LAST], net(second)[LAST], rtol=0, atol=0)
        _, logits = functional_call(client.net.train(), enriched, (seen,))
        loss = F.cross_entropy(logits, client.inputs.labels[positions])
        total = total + len(client.data) / samples * loss
    expected = torch.autograd.grad(total, list(enrichment.parameters()))
    for (name, value), gradient in zip(enrichment.named_parameters(), expected, strict=True):
        changed = third.tensors[f"server.{ADAPTER}{name}"]
        found = (value.detach() - changed) / rate
        # Weights of size 0.1 are rounded to about 1e-8, which is divided by lr.
        assert float((found - gradient).norm()) < 0.01 * float(gradient.norm()), name


def test_direct_fine_tuning_is_adam_on_the_layer(tmp_path: Path) -> None:
    method = mergenet(adapter="direct", bn_recalibrate=False, lr=0.01)
    state = method.start(opening())
    told = scene(state, tmp_path)
    plain = make_part(methods, "averaging", "method").filled({"use": "average"}, "recipe")
    averaged = net(plain.advance(state, told))
    header = told.briefing.header
    model = loaded_net(header.net, 1, 10, averaged).eval()
    layer = model.get_parameter(LAST)
    adam = torch.optim.Adam([layer], lr=0.01, foreach=False)
    for seen, labels in _batches(told, method.asked, "adapter"):
        adam.zero_grad()
        torch.autograd.backward(F.cross_entropy(model(seen)[1], labels))
        adam.step()
    for _ in range(2):  # every round begins with Δ = 0, whatever the state holds
        found = method.advance(state, told)
        torch.testing.assert_close(net(found)[LAST], layer.detach(), rtol=1e-4, atol=1e-6)
        state = ServerState(state.header, {**state.tensors, **_adapter(found)})


def _adapter(state: ServerState) -> dict[str, Tensor]:
    return {n: t for n, t in state.tensors.items() if n.startswith("server." + ADAPTER)}


def test_public_training_lowers_the_loss_and_repeats_its_bits(tmp_path: Path) -> None:
    for adapter in ("bottleneck", "paper"):
        for loss in ("labels", "teacher"):
            method = mergenet(adapter=adapter, loss=loss, steps=12, batch=24, lr=0.01)
            state = method.start(opening())
            told = scene(state, tmp_path)
            found = method.advance(state, told)
            news = found.header.own["told"]
            assert news["last_loss"] < news["first_loss"]
            assert news["change"] > 0
            assert same(found.tensors, method.advance(state, told).tensors)


def test_a_client_replaces_its_layer_and_trains_both(tmp_path: Path) -> None:
    """One step by hand: W ← A_φ(W, Y) − lr·g, φ ← Adam(φ, J_φᵀ g)."""
    del tmp_path
    lr, rate = 0.1, 0.01
    method = mergenet(train="client", lr=rate)
    plain: dict[str, Any] = {"batch": 64, "lr": lr, "momentum": 0.0, "clip": None}
    state = method.start(opening(**plain))
    draws = torch_generator(0, "no identity")
    moved = {
        n: t + 0.02 * torch.randn(t.shape, generator=draws)
        for n, t in state.tensors.items()
        if n.startswith(ADAPTER)
    }
    state = ServerState(state.header, {**state.tensors, **moved})
    briefing = state.briefing()
    upload = answer(make_client(images("0"), briefing, "0"))

    client = make_client(images("0"), briefing, "0")
    assert isinstance(client, Training)
    weights = {LAST: client.net.get_parameter(LAST).detach().clone()}
    source = unprefixed(SOURCE, briefing.tensors)
    config = method.asked.model_copy(update={"pairs": ((LAST, "head.prototypes"),)})
    enrichment = Enrichment(config.pairs, weights, source, config)
    enrichment.load_state_dict(unprefixed(ADAPTER, briefing.tensors))
    (positions,) = client._batches()
    views = torch_generator(briefing.header.seed, "0", "views", 0)
    kind = augmentations.get(briefing.header.augment)
    seen = augment(client.data.batch(positions), kind, 1, views, (0.3,), (0.35,))
    enriched = enrichment(weights, source)
    _, logits = functional_call(client.net.train(), enriched, (seen,))
    loss = F.cross_entropy(logits, client.inputs.labels[positions])
    adam = Adam(enrichment.parameters(), rate)
    gradient = torch.autograd.grad(loss, enriched[LAST], retain_graph=True)[0]
    torch.autograd.backward(loss)
    adam.step()
    found = unprefixed(NET, upload.tensors)[LAST]
    torch.testing.assert_close(found, enriched[LAST].detach() - lr * gradient, rtol=1e-4, atol=1e-6)
    for name, value in enrichment.state_dict().items():
        torch.testing.assert_close(upload.tensors[ADAPTER + name], value, rtol=1e-3, atol=2e-4)


def test_clients_fuse_every_f_batches_and_only_in_due_rounds() -> None:
    """The values φ after a round tell how often it was trained: not at all without a fusion."""
    labels = images("1")  # 18 images: three batches of 8 in each of two epochs
    for f, fused in ((1, [0, 1, 2, 3, 4, 5]), (2, [0, 2, 4]), (3, [0, 3]), (4, [0, 4]), (9, [0])):
        started = mergenet(train="client", f=f).start(opening(epochs=2))
        client = make_client(labels, started.briefing(), "1")
        assert isinstance(client, Training)
        assert client.enriching is not None
        seen: list[int] = []
        begin = client.enriching.begin

        def watched(step: int, begin: Any = begin, seen: list[int] = seen, c: Any = client) -> None:
            begin(step)
            if c.enriching.enriched:
                seen.append(step)

        client.enriching.begin = watched  # type: ignore[method-assign]
        answer(client)
        assert seen == fused
        assert client.enriching.optimiser.steps == len(fused)
    late = mergenet(train="client", start_round=2).start(opening()).briefing()
    upload = answer(make_client(labels, late, "1"))
    kept = unprefixed(ADAPTER, upload.tensors)
    assert same(kept, unprefixed(ADAPTER, late.tensors))


def test_an_interrupted_client_goes_on_with_the_same_adapter() -> None:
    briefing = mergenet(train="client", lr=0.01).start(opening(epochs=3)).briefing()
    whole = answer(make_client(images("1"), briefing, "1"))
    first = make_client(images("1"), briefing, "1")
    first.run_epoch()
    state = first.state()
    assert state is not None
    second = make_client(images("1"), briefing, "1")
    second.restore(state)
    assert same(answer(second).tensors, whole.tensors)


def test_pseudo_learns_only_from_a_net_that_was_fused(tmp_path: Path) -> None:
    """Fusions in rounds 1 and 3: the net of round 3 was sent without one."""
    method = mergenet(train="pseudo", fusion_frequency=2, lr=0.1, bn_recalibrate=False)
    states = [method.start(opening())]
    for number in range(1, 4):
        states.append(method.advance(states[-1], scene(states[-1], tmp_path / str(number))))
    values = [_adapter(state) for state in states]
    assert same(values[0], values[1])  # nothing had been sent before
    assert not same(values[1], values[2])
    assert same(values[2], values[3])
    assert [state.header.own["told"]["fused"] for state in states[1:]] == [True, False, True]


def test_batch_norms_are_trained_as_they_are_used(tmp_path: Path) -> None:
    """With recalibration the statistics are those of the batch, without it the averaged ones."""
    losses = []
    for recalibrate in (True, False):
        method = mergenet(bn_recalibrate=recalibrate)
        state = method.start(opening())
        told = scene(state, tmp_path)
        averaged = make_part(methods, "averaging", "method").filled({"use": "average"}, "recipe")
        weights = net(averaged.advance(state, told))
        model = loaded_net(told.briefing.header.net, 1, 10, weights).train(recalibrate)
        seen, labels = next(iter(_batches(told, method.asked, "adapter")))
        with torch.no_grad():
            expected = F.cross_entropy(model(seen)[1], labels)
        found = method.advance(state, told).header.own["told"]["first_loss"]
        assert found == pytest.approx(float(expected), rel=1e-4)
        losses.append(found)
    assert losses[0] != pytest.approx(losses[1], rel=1e-3)


def test_the_server_averages_the_adapters_of_clients(tmp_path: Path) -> None:
    method = mergenet(train="client", lr=0.01)
    state = method.start(opening())
    told = scene(state, tmp_path, public=[])
    found = method.advance(state, told)
    uploads = [told.uploads.load(k) for k in range(3)]
    for name in unprefixed(ADAPTER, found.tensors):
        each = torch.stack([u.tensors[ADAPTER + name].double() for u in uploads])
        shares = torch.tensor([12, 18, 10], dtype=torch.float64) / 40
        expected = torch.tensordot(shares, each, dims=1)
        torch.testing.assert_close(found.tensors[ADAPTER + name].double(), expected)
    assert set(unprefixed(ADAPTER, found.briefing().tensors)) == set(
        unprefixed(ADAPTER, state.tensors)
    )


def test_a_teacher_is_frozen_or_trained_on_public_images(tmp_path: Path) -> None:
    for train in ("public", "pseudo", "client"):
        for trainable in (False, True):
            method = mergenet(TeacherConfig(trainable=trainable), train=train)
            state = method.start(opening())
            found = method.advance(state, scene(state, tmp_path))
            before, after = (unprefixed("server." + TEACHER, s.tensors) for s in (state, found))
            assert same(before, after) != trainable
            if train == "client":
                sent = unprefixed(SOURCE, found.briefing().tensors)
                assert torch.equal(sent["head.prototypes"], after["head.prototypes"])


def test_clients_get_the_teacher_only_if_they_learn_from_it() -> None:
    for train in ("public", "pseudo", "client"):
        briefing = mergenet(train=train).start(opening()).briefing()
        assert not unprefixed(TEACHER, briefing.tensors)
        assert briefing.header.teacher is None
        assert bool(unprefixed(SOURCE, briefing.tensors)) == (train == "client")
        assert bool(unprefixed(ADAPTER, briefing.tensors)) == (train == "client")
    both = mergenet().start(opening("kd")).briefing()
    assert same(unprefixed(TEACHER, both.tensors), unprefixed(TEACHER, opening().tensors))


def test_distillation_by_hand() -> None:
    """½·CE + ½·τ²·KL(teacher ‖ student) in the first step of a client."""
    first = opening("kd", batch=64, clip=None)
    client = make_client(images("0"), first, "0")
    assert isinstance(client, Training)
    (positions,) = client._batches()
    draws = torch_generator(0, "0", "views", 0)
    seen = augment(
        client.data.batch(positions), augmentations.get("digits"), 1, draws, (0.3,), (0.35,)
    )
    labels = client.inputs.labels[positions]
    with torch.no_grad():
        own = client.net.train()(seen)[1]
        teacher = loaded_net(HEADER.net, 1, 10, unprefixed(TEACHER, first.tensors)).eval()(seen)[1]
    p, log_q = (teacher / 4).softmax(1), (own / 4).log_softmax(1)
    divergence = (p * (p.log() - log_q)).sum(1).mean()
    expected = 0.5 * F.cross_entropy(own, labels) + 0.5 * 16 * divergence
    fresh = make_client(images("0"), first, "0")
    event = fresh.run_epoch()
    assert event["loss"] == pytest.approx(float(expected), rel=1e-5)


def test_a_teacher_sees_images_in_its_own_normalisation() -> None:
    weights = unprefixed(TEACHER, opening().tensors)
    other = HEADER.model_copy(update={"mean": (0.1,), "std": (0.5,)})
    pixels = torch.rand(4, 1, 8, 8, generator=torch_generator(0, "pixels"))
    expected = loaded_net(HEADER.net, 1, 10, weights).eval()((pixels - 0.1) / 0.5)[1]
    teacher = TeacherNet(other, 10, weights, (0.3,), (0.35,))
    teacher.train()  # is ignored
    torch.testing.assert_close(teacher((pixels - 0.3) / 0.35), expected, rtol=1e-4, atol=1e-5)


def test_mistakes_are_explained(tmp_path: Path) -> None:
    no_public = {
        "mergenet.train: public needs at least 2 public images": mergenet(),
        "mergenet.bn_recalibrate: true needs": mergenet(train="pseudo", bn_recalibrate=True),
        "teacher.trainable: true needs at least 2 public": mergenet(
            TeacherConfig(trainable=True), train="client"
        ),
    }
    for words, method in no_public.items():
        for public in (0, 1):  # a batch norm needs two images
            with pytest.raises(AccordError, match=words):
                method.require("batch", public)
        method.require("group", 1)
        method.require("batch", 2)
    mergenet(train="pseudo").require("batch", 0)
    with pytest.raises(AccordError, match="several rounds that uses the teacher"):
        mergenet(TeacherConfig(trainable=True), adapter="direct").require("batch", 10)
    method = mergenet(train="pseudo")
    state = method.start(opening())
    bias = f"server.{ADAPTER}adapters.0.out.bias"
    state = ServerState(state.header, {**state.tensors, bias: state.tensors[bias] + torch.inf})
    with pytest.raises(ClientError, match=r"made .* NaN or infinite. Use a smaller mergenet.lr"):
        method.advance(state, scene(state, tmp_path))
