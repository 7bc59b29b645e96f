"""Every backbone: shapes, published sizes, and weights that come from the given generator only."""

from __future__ import annotations

from typing import get_args

import pytest
import torch
from torch import nn

from accord.core.errors import AccordError
from accord.nets.backbones.base import Encoder, backbones, build_encoder
from accord.nets.backbones.layers import Norm, group_count
from accord.nets.initialise import initialise, materialise
from core.cases import looped

WIDTHS = {
    "resnet10": 128,
    "resnet18": 512,
    "resnet50": 2048,
    "mobilenetv2": 1280,
    "conv4": 64,
    "white7": 128,
    "white7-wide": 256,
}
NORMS: tuple[Norm, ...] = get_args(Norm)
BACKBONES = backbones.names()


def encoder_of(backbone: str, channels: int = 3, norm: Norm = "batch", seed: int = 0) -> Encoder:
    encoder = build_encoder(backbone, channels, norm)
    initialise(encoder, torch.Generator().manual_seed(seed))
    return encoder


def noise(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(7))


def assert_same(found: torch.Tensor, expected: torch.Tensor) -> None:
    """Equal up to the order of summation: 1e-5 of the largest feature."""
    assert (found - expected).abs().max() <= 1e-5 * expected.abs().max()


def test_the_widths_are_the_published_ones() -> None:
    for backbone, width in WIDTHS.items():
        assert build_encoder(backbone, 3, "batch").width == width, backbone


@looped("backbone", BACKBONES)
def test_features_have_the_stated_width(backbone: str) -> None:
    for norm in NORMS:
        encoder = encoder_of(backbone, norm=norm).eval()
        features = encoder(noise(2, 3, 32, 32))
        assert features.shape == (2, encoder.width), norm
        assert features.isfinite().all(), norm


@looped("backbone", BACKBONES)
def test_tiny_grey_images_train_in_batches_of_two(backbone: str) -> None:
    for norm in NORMS:
        encoder = encoder_of(backbone, channels=1, norm=norm).train()
        features = encoder(noise(2, 1, 8, 8))
        assert features.shape == (2, encoder.width), norm
        assert features.isfinite().all(), norm


@looped("backbone", BACKBONES)
def test_any_size_from_8_to_64(backbone: str) -> None:
    encoder = encoder_of(backbone).eval()
    for size in (8, 11, 28, 64):
        assert encoder(noise(1, 3, size, size)).shape == (1, encoder.width), size


# A convolution from i to o channels with kernel k has k²·i·o weights, its norm 2·o.
RESNET10 = (
    (9 * 3 * 16 + 32)
    + 2 * (9 * 16 * 16 + 32)
    + (9 * 16 * 32 + 64) + (9 * 32 * 32 + 64) + (16 * 32 + 64)
    + (9 * 32 * 64 + 128) + (9 * 64 * 64 + 128) + (32 * 64 + 128)
    + (9 * 64 * 128 + 256) + (9 * 128 * 128 + 256) + (64 * 128 + 256)
)  # fmt: skip
WHITE7 = 12 * 24 + sum(9 * i * o + 9 * o * o + 4 * o for i, o in ((24, 32), (32, 128), (128, 128)))
CONV4 = (9 * 3 * 64 + 128) + 3 * (9 * 64 * 64 + 128)
# torchvision publishes 25,557,032 for ResNet-50. Without its classifier (2048·1000 + 1000), and
# with a 3×3 stem in place of the 7×7 one:
RESNET50 = 25_557_032 - 2_049_000 - 49 * 3 * 64 + 9 * 3 * 64
# torchvision publishes 3,504,872 for MobileNetV2; without its classifier (1280·1000 + 1000):
MOBILENETV2 = 3_504_872 - 1_281_000


@looped("norm", NORMS)
@looped(
    ("backbone", "count"),
    [
        ("resnet10", RESNET10),
        ("resnet18", 11_168_832),  # the widely used CIFAR variant: 11,173,962 with 10 classes
        ("resnet50", RESNET50),
        ("mobilenetv2", MOBILENETV2),
        ("conv4", CONV4),
        ("white7", WHITE7),
    ],
)
def test_parameter_counts_are_the_published_ones(backbone: str, count: int, norm: Norm) -> None:
    encoder = build_encoder(backbone, 3, norm)
    assert sum(p.numel() for p in encoder.parameters()) == count
    assert bool(list(encoder.buffers())) == (norm == "batch")


@looped("backbone", BACKBONES)
def test_stages_are_named_and_end_in_the_features(backbone: str) -> None:
    encoder = encoder_of(backbone).eval()
    images = noise(2, 3, 16, 16)
    maps = encoder.forward_stages(images)
    assert len(maps) == len(encoder.stages)
    assert [name for name, _ in encoder.stages.named_children()][-2].startswith("stage")
    torch.testing.assert_close(maps[-1].mean(dim=(2, 3)), encoder(images), rtol=0, atol=0)


@looped("backbone", BACKBONES)
def test_the_generator_decides_every_bit(backbone: str) -> None:
    first, same, other = (encoder_of(backbone, seed=seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(first[name], same[name]) for name in first)
    weights = [name for name, tensor in first.items() if tensor.ndim == 4]
    assert not torch.equal(first[weights[-1]], other[weights[-1]])  # the first may be fixed


@looped("backbone", BACKBONES)
def test_global_random_state_is_left_alone(backbone: str) -> None:
    before = torch.get_rng_state()
    encoder_of(backbone)
    assert torch.equal(before, torch.get_rng_state())


def test_weights_do_not_depend_on_the_memory_format() -> None:
    plain = encoder_of("conv4")
    last = build_encoder("conv4", 3, "batch")
    last.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # stubs lack it
    initialise(last, torch.Generator().manual_seed(0))
    for ours, theirs in zip(plain.parameters(), last.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_initial_values_follow_the_stated_laws() -> None:
    net = materialise(
        lambda: nn.Sequential(nn.Conv2d(32, 64, 3), nn.BatchNorm2d(64), nn.Linear(400, 300))
    )
    assert all(p.isnan().all() for p in net.parameters())  # nothing passes as a value by chance
    initialise(net, torch.Generator().manual_seed(0))
    conv, norm, linear = net
    assert isinstance(conv, nn.Conv2d)
    assert isinstance(norm, nn.BatchNorm2d)
    assert isinstance(linear, nn.Linear)
    assert conv.weight.std().item() == pytest.approx((2 / (64 * 9)) ** 0.5, rel=0.02)
    assert 0.99 / 20 < linear.weight.abs().max().item() <= 1 / 20
    assert 0.9 / 20 < linear.bias.abs().max().item() <= 1 / 20
    assert linear.weight.mean().abs().item() < 1e-3
    state = norm.state_dict()
    for name, value in {"weight": 1, "bias": 0, "running_mean": 0, "running_var": 1}.items():
        assert (state[name] == value).all()
    assert state["num_batches_tracked"] == 0


def test_a_module_without_a_rule_is_refused() -> None:
    with pytest.raises(TypeError, match="Embedding"):
        initialise(materialise(lambda: nn.Embedding(3, 2)), torch.Generator())


def test_a_state_dict_fills_an_empty_encoder() -> None:
    trained = encoder_of("resnet10")
    trained.train()(noise(4, 3, 8, 8))  # moves the running statistics
    empty = build_encoder("resnet10", 3, "batch")
    empty.load_state_dict(trained.state_dict())
    images = noise(3, 3, 8, 8)
    assert torch.equal(empty.eval()(images), trained.eval()(images))


@looped("backbone", BACKBONES)
def test_in_eval_mode_an_image_alone_is_as_in_a_batch(backbone: str) -> None:
    encoder = encoder_of(backbone)
    images = noise(4, 3, 16, 16)
    encoder.train()(images)
    encoder.eval()
    together = encoder(images)
    alone = torch.cat([encoder(image[None]) for image in images])
    assert_same(together, alone)


@looped("backbone", BACKBONES)
def test_group_norm_never_looks_at_the_batch(backbone: str) -> None:
    encoder = encoder_of(backbone, norm="group").train()
    images = noise(4, 3, 16, 16)
    together = encoder(images)
    assert_same(together[:1], encoder(images[:1]))


@looped("norm", NORMS)
@looped("backbone", BACKBONES)
def test_every_parameter_gets_a_gradient(backbone: str, norm: Norm) -> None:
    encoder = encoder_of(backbone, norm=norm).train()
    features = encoder(noise(8, 3, 16, 16))
    (features * noise(*features.shape)).sum().backward()
    for name, parameter in encoder.named_parameters():
        if not parameter.requires_grad:  # a whitened layer is fixed
            continue
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().sum() > 0, name


def test_groups_divide_the_channels() -> None:
    for channels in (3, 8, 16, 24, 64, 144, 160, 320, 512, 1280):
        groups = group_count(channels)
        assert channels % groups == 0, channels
        assert groups <= 32, channels
        assert groups == 1 or channels // groups >= 8, channels


@looped("backbone", BACKBONES)
def test_channels_last_images_give_the_same_features(backbone: str) -> None:
    encoder = encoder_of(backbone).eval()
    images = noise(4, 3, 16, 16)
    last = images.contiguous(memory_format=torch.channels_last)
    assert_same(encoder(last), encoder(images))


def test_mistakes_are_explained() -> None:
    with pytest.raises(AccordError, match="did you mean 'resnet18'"):
        build_encoder("resnet-18", 3, "batch")
    with pytest.raises(AccordError, match="unknown norm 'layer'"):
        build_encoder("conv4", 3, "layer")  # type: ignore[arg-type]
    with pytest.raises(AccordError, match="at least 1 channel"):
        build_encoder("conv4", 0, "batch")
