"""What a client measures of itself, against plain NumPy on the outputs of a real net."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from accord.client.statistics import measure_client
from accord.core.budget import Budget
from accord.core.randomness import numpy_generator, torch_generator
from accord.data.imageset import ImageSet
from accord.messages import BriefingHeader, NetHeader, TrainingSpec
from accord.nets import inference
from accord.nets.inference import forward_all
from accord.nets.net import Net, fresh_net

CPU = torch.device("cpu")
HEADER = BriefingHeader(
    seed=0,
    height=8,
    width=8,
    channels=3,
    classes=("a", "b", "c", "d"),
    mean=(0.4, 0.5, 0.6),
    std=(0.2, 0.25, 0.3),
    augment="none",
    net=NetHeader(backbone="conv4", norm="batch", head="prototypes"),
    training=TrainingSpec(),
    budget=Budget(),
)
LABELS = [0] * 6 + [1] + [3] * 4  # uneven, and no image of class 2


def data_of(labels: list[int]) -> ImageSet:
    """Every second row of a larger array, as a client of a partition holds it."""
    draws = numpy_generator(0, "images")
    pixels = draws.integers(0, 256, (2 * len(labels) + 1, 8, 8, 3), dtype=np.uint8)
    return ImageSet(pixels, 1 + 2 * np.arange(len(labels)), np.array(labels, dtype=np.int64))


def net_of(head: str = "prototypes") -> Net:
    """A net whose batch norm statistics are not the initial ones."""
    header = NetHeader(backbone="conv4", norm="batch", head=head)
    net = fresh_net(header, 3, 4, torch_generator(0, "net"))
    with torch.no_grad():
        net.train()(torch.randn(16, 3, 8, 8, generator=torch_generator(0, "statistics")))
    return net


def outputs(net: Net, data: ImageSet) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Features and logits, image by image."""
    found = []
    for row in data.rows:
        pixels = data.images[row] / 255
        image = ((pixels - HEADER.mean) / HEADER.std).transpose(2, 0, 1)[None]
        with torch.no_grad():
            found.append(net.eval()(torch.tensor(image, dtype=torch.float32)))
    features, logits = (torch.cat(parts).double().numpy() for parts in zip(*found, strict=True))
    return features, logits


def assert_close(found: Tensor, expected: NDArray[np.float64]) -> None:
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4, atol=1e-5)


def test_feature_statistics_are_of_all_images() -> None:
    net, data = net_of(), data_of(LABELS)
    _, found = measure_client(net, data, HEADER, CPU)
    features, _ = outputs(net, data)
    assert_close(found["feature_mean"], features.mean(axis=0))
    assert_close(found["feature_var"], features.var(axis=0))
    assert features.var(axis=0).max() > 1e-3


def test_class_means_are_per_class_and_zero_where_none_is_held() -> None:
    net, data = net_of(), data_of(LABELS)
    _, found = measure_client(net, data, HEADER, CPU)
    features, _ = outputs(net, data)
    for c in (0, 1, 3):
        assert_close(found["class_means"][c], features[data.labels == c].mean(axis=0))
    assert torch.equal(found["class_means"][2], torch.zeros(64))


def test_score_statistics_weigh_held_classes_equally() -> None:
    net, data = net_of(), data_of(LABELS)
    _, found = measure_client(net, data, HEADER, CPU)
    features, _ = outputs(net, data)
    P = net.head.prototypes.detach().double().numpy()
    cosines = features @ P.T / np.linalg.norm(features, axis=1)[:, None]
    cosines /= np.linalg.norm(P, axis=1)
    weights = (1 / 3) / np.bincount(data.labels)[data.labels]
    mean = weights @ cosines
    assert_close(found["score_mean"], mean)
    assert_close(found["score_std"], np.sqrt(weights @ (cosines - mean) ** 2))
    assert np.abs(mean - cosines.mean(axis=0)).max() > 1e-4  # it differs from the plain mean


@pytest.mark.parametrize("head", ["prototypes", "linear"])
def test_train_accuracy_is_the_share_of_right_logits(head: str) -> None:
    net, data = net_of(head), data_of(LABELS)
    _, logits = outputs(net, data)
    labels = logits.argmax(axis=1)
    labels[:3] = (labels[:3] + 1) % 4
    wrong = ImageSet(data.images, data.rows, labels)
    accuracy, _ = measure_client(net, wrong, HEADER, CPU)
    assert accuracy == 8 / 11


@pytest.mark.parametrize("batch", [1, 2, 4, 11])
def test_the_batch_size_does_not_matter(batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    net, data = net_of(), data_of(LABELS)
    expected_accuracy, expected = measure_client(net, data, HEADER, CPU)
    monkeypatch.setattr(inference, "EVAL_BATCH", batch)
    accuracy, found = measure_client(net, data, HEADER, CPU)
    assert accuracy == expected_accuracy
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_every_image_comes_once_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inference, "EVAL_BATCH", 4)
    net, data = net_of(), data_of(LABELS)
    features, logits, labels = zip(*forward_all(net, data, HEADER, CPU), strict=True)
    expected_features, expected_logits = outputs(net, data)
    assert_close(torch.cat(features), expected_features)
    assert_close(torch.cat(logits), expected_logits)
    assert torch.cat(labels).tolist() == LABELS


def test_the_net_is_left_in_eval_mode_and_otherwise_untouched() -> None:
    net, data = net_of().train(), data_of(LABELS)
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    measure_client(net, data, HEADER, CPU)
    assert not any(part.training for part in net.modules())
    torch.testing.assert_close(dict(net.state_dict()), before, rtol=0, atol=0)


def test_nothing_carries_a_gradient_and_gradients_are_on_afterwards() -> None:
    net = net_of()
    _, found = measure_client(net, data_of(LABELS), HEADER, CPU)
    assert not any(tensor.requires_grad or tensor.is_inference() for tensor in found.values())
    assert all(parameter.grad is None for parameter in net.parameters())
    assert torch.is_grad_enabled()
    assert not torch.is_inference_mode_enabled()


def test_whoever_looks_at_a_batch_keeps_gradients_on() -> None:
    for _ in forward_all(net_of(), data_of(LABELS), HEADER, CPU):
        assert not torch.is_inference_mode_enabled()


def test_a_single_image_gives_finite_statistics() -> None:
    accuracy, found = measure_client(net_of(), data_of([2]), HEADER, CPU)
    assert accuracy in (0, 1)
    assert all(bool(torch.isfinite(tensor).all()) for tensor in found.values())
    assert torch.equal(found["feature_var"], torch.zeros(64))
    assert_close(found["score_std"], np.zeros(4))


def test_features_of_zero_give_finite_statistics() -> None:
    net = net_of()
    for part in net.encoder.modules():
        if isinstance(part, nn.BatchNorm2d):
            nn.init.zeros_(part.weight)
            nn.init.zeros_(part.bias)
    _, found = measure_client(net, data_of(LABELS), HEADER, CPU)
    assert all(bool(torch.isfinite(tensor).all()) for tensor in found.values())


def test_statistics_are_float32_of_the_documented_shapes() -> None:
    _, found = measure_client(net_of(), data_of(LABELS), HEADER, CPU)
    shapes = {name: tuple(tensor.shape) for name, tensor in found.items()}
    assert shapes == {
        "feature_mean": (64,),
        "feature_var": (64,),
        "class_means": (4, 64),
        "score_mean": (4,),
        "score_std": (4,),
        "score_own": (4,),
        "score_rotated": (4,),
        "noise_feature": (64,),
    }
    assert {tensor.dtype for tensor in found.values()} == {torch.float32}


def cosines_of(net: Net, images: Tensor) -> NDArray[np.float64]:
    """cos(f, P[c]) of normalised images (N, C, H, W), by NumPy."""
    with torch.no_grad():
        f = net.eval().encoder(images).double().numpy()
    P = net.head.prototypes.detach().double().numpy()
    lengths = np.linalg.norm(f, axis=1)[:, None] * np.linalg.norm(P, axis=1)
    found: NDArray[np.float64] = f @ P.T / lengths
    return found


def test_own_scores_are_of_a_sample_of_each_class_upright_and_rotated() -> None:
    """Of 40, 7 and 3 images: the first 6, 1 and 1, as they are and turned by 90°."""
    labels = [0, 1, 3] * 3 + [0, 1] * 4 + [0] * 33
    net, data = net_of(), data_of(labels)
    _, found = measure_client(net, data, HEADER, CPU)
    members = {c: np.flatnonzero(data.labels == c)[:k] for c, k in ((0, 6), (1, 1), (3, 1))}
    for name, turns in (("score_own", 0), ("score_rotated", 1)):
        for c, rows in members.items():
            pixels = np.rot90(data.images[data.rows[rows]] / 255, turns, axes=(1, 2))
            seen = ((pixels - HEADER.mean) / HEADER.std).transpose(0, 3, 1, 2)
            scores = cosines_of(net, torch.tensor(seen.copy(), dtype=torch.float32))
            assert_close(found[name][c], scores[:, c].mean())
        assert found[name][2] == 0  # the client holds no image of this class
    assert not torch.equal(found["score_own"], found["score_rotated"])


def test_the_noise_feature_is_the_mean_over_noise_that_is_the_same_everywhere() -> None:
    net = net_of()
    for labels, count in (([0, 1] * 50, 5), ([0, 1, 3], 4), ([0] * 2000, 64)):
        _, found = measure_client(net, data_of(labels), HEADER, CPU)
        noise = torch.randn((count, 3, 8, 8), generator=torch_generator(0, "noise"))
        with torch.no_grad():
            expected = net.eval().encoder(noise).mean(dim=0).double().numpy()
        assert_close(found["noise_feature"], expected)


@pytest.mark.parametrize("images", [200, 1024, 3000])
def test_all_of_it_takes_at_most_a_fifth_more_than_one_pass(images: int) -> None:
    net, data = net_of(), data_of([0, 1, 2, 3] * (images // 4))
    passed = 0

    def count(_: nn.Module, given: tuple[Tensor]) -> None:
        nonlocal passed
        passed += len(given[0])

    net.encoder.register_forward_pre_hook(count)
    measure_client(net, data, HEADER, CPU)
    assert images < passed <= 1.2 * images
