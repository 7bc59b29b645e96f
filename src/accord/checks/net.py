"""A client's net: numbers that can be computed with, and statistics that its weights can give."""

from __future__ import annotations

import torch
from torch import Tensor

from accord.checks.words import REMEDY, at_worst, refuse
from accord.client.statistics import noise_feature, noise_images
from accord.core.errors import AccordError
from accord.messages import NET, Briefing, Upload, unprefixed
from accord.nets.backbones.base import Encoder
from accord.nets.limits import largest_pixels, limiting, limits_of_batch_norms
from accord.nets.net import Net, loaded_net

LARGEST = 1e18  # the norm of a tensor: squares of it, and means of many, are finite in float32
MEANWHILE = 10.0  # weights of earlier steps may give this many times as large statistics
NOISE = 0.05  # relative error of a mean feature: other processors and GPUs round differently
CPU = torch.device("cpu")


def check_net(upload: Upload, briefing: Briefing, where: str) -> None:
    header = briefing.header
    weights = unprefixed(NET, upload.tensors)
    net = loaded_net(header.net, header.channels, len(header.classes), weights)
    encoder = net.encoder
    if not isinstance(encoder, Encoder):
        raise TypeError("clients that train nets have no map")
    _check_fixed(upload, briefing, net, where)
    answer = _answer_to_noise(upload, briefing, net, where)
    _check_sizes(upload, where)
    pixels = largest_pixels(header.mean, header.std, header.height, header.width)
    _check_running(upload, briefing, encoder, pixels, where)
    _check_features(upload, encoder, pixels, where)
    _check_noise(upload, answer, where)


def _check_fixed(upload: Upload, briefing: Briefing, net: Net, where: str) -> None:
    """A layer that is never trained, such as a whitened one, is that of the briefing."""
    for name, parameter in net.named_parameters():
        full = NET + name
        if parameter.requires_grad or full not in briefing.tensors:
            continue
        if not torch.equal(upload.tensors[full], briefing.tensors[full]):
            raise AccordError(
                f"{where}: tensor {full!r} is fixed and should be that of the briefing; found "
                f"another one. {REMEDY}"
            )


def _check_sizes(upload: Upload, where: str) -> None:
    for name, tensor in upload.tensors.items():
        if tensor.is_floating_point():
            size = float(torch.linalg.vector_norm(tensor.double()))
            if size > LARGEST:
                raise AccordError(
                    f"{where}: tensor {name!r} should have a norm of at most {LARGEST:g}, so that "
                    f"it can be added to others; found {size:.3g}. Train this client again, or "
                    "leave it out (--without NAME)."
                )


def _check_running(
    upload: Upload, briefing: Briefing, encoder: Encoder, pixels: Tensor, where: str
) -> None:
    """Running statistics are means over the batches of the steps, and over the first values."""
    header, before = briefing.header, unprefixed(NET, briefing.tensors)
    first = loaded_net(header.net, header.channels, len(header.classes), before).encoder
    if not isinstance(first, Encoder):
        raise TypeError("clients that train nets have no map")
    limits = [limits_of_batch_norms(one, pixels) for one in (encoder, first)]
    for name in limits[0]:
        most = MEANWHILE * max(float(one[name].max()) for one in limits)
        # The variance is at most the mean square; over N values it is divided by N − 1.
        for kind, limit in (("running_mean", most), ("running_var", 2 * most**2)):
            full = f"{NET}encoder.{name}.{kind}"
            found = float(upload.tensors[full].abs().max())
            limit = max(limit, float(briefing.tensors[full].abs().max()))
            if found > limit * (1 + 1e-3):
                raise AccordError(
                    f"{where}: tensor {full!r} should be at most {limit:.4g}, the most that the "
                    f"client's own weights can give; found {found:.4g}. {REMEDY}"
                )


def _check_features(upload: Upload, encoder: Encoder, pixels: Tensor, where: str) -> None:
    """No mean is larger than the largest feature that any image can have."""
    with torch.inference_mode():
        most = limiting(encoder)(pixels)[0].double() * (1 + 1e-3) + 1e-30
    for name in ("feature_mean", "class_means"):
        found = upload.tensors[name].double().abs()
        refuse(
            found > most,
            f"{where}: tensor {name!r} should be at most {at_worst(most)}, the largest feature "
            f"that the client's own weights can give; found {at_worst(found)}",
        )


def _answer_to_noise(upload: Upload, briefing: Briefing, net: Net, where: str) -> Tensor:
    """The net's mean feature of the images of noise, which the server knows."""
    count = noise_images(upload.header.samples)
    expected = noise_feature(net, count, briefing.header, CPU).double()
    if not bool(expected.isfinite().all()):
        raise AccordError(
            f"{where}: its net gives NaN or infinity for images of noise, so it cannot be used. "
            "Train this client again, or leave it out (--without NAME)."
        )
    return expected


def _check_noise(upload: Upload, expected: Tensor, where: str) -> None:
    apart = (upload.tensors["noise_feature"].double() - expected).abs()
    refuse(
        apart > NOISE * expected.abs().max() + 1e-30,
        f"{where}: tensor 'noise_feature' should be the mean feature of images of noise, which "
        f"the client's own net gives; found a difference of {at_worst(apart)} from "
        f"{at_worst(expected.abs())}",
    )
