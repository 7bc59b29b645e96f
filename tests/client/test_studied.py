"""Clients that train on the public images as well."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from accord.checks import check_upload
from accord.checks.course import check_course
from accord.client.training import Training
from accord.core.errors import AccordError
from accord.data.imageset import ImageSet
from accord.messages import NET, PUBLIC, Briefing, unprefixed
from core.cases import looped
from tests_support import brief_for, images_of, same, train

OWN = [0] * 20 + [1] * 13


def with_public() -> Briefing:
    return brief_for("public-rounds", batch=16)


def test_it_trains_as_one_client_that_holds_all_these_images() -> None:
    briefing, own = with_public(), images_of(OWN)
    public = briefing.tensors[PUBLIC + "images"], briefing.tensors[PUBLIC + "labels"]
    everything = ImageSet(
        np.concatenate([own.images[own.rows], public[0].numpy()]),
        np.arange(53),
        np.concatenate([own.labels, public[1].numpy()]),
    )
    plain = briefing.header.training.model_copy(update={"with_public": False})
    told = briefing.header.model_copy(update={"training": plain})
    alone = Briefing(told, {n: t for n, t in briefing.tensors.items() if not n.startswith(PUBLIC)})
    one, two = train(own, briefing, "0"), train(everything, alone, "0")
    assert same(unprefixed(NET, one.tensors), unprefixed(NET, two.tensors))
    # It says nothing of the public images: its counts and statistics are those of its own images.
    assert one.header.samples == 33
    assert one.tensors["label_counts"].tolist()[:3] == [20, 13, 0]
    assert not one.tensors["class_means"][2:].any()


def test_its_steps_are_those_of_all_images_and_the_server_counts_them() -> None:
    briefing, own = with_public(), images_of(OWN)
    assert Training(own, briefing, "0").steps_per_epoch == 4  # 53 images, 16 in a batch
    upload = train(own, briefing, "0")
    check_upload(upload, briefing, "it")
    counts = [t for name, t in upload.tensors.items() if name.endswith("num_batches_tracked")]
    assert {int(count) for count in counts} == {8}
    fewer = Briefing(
        briefing.header, {**briefing.tensors, PUBLIC + "labels": torch.zeros(9).long()}
    )
    with pytest.raises(AccordError, match="6 steps of up to 16 of 42 images"):
        check_course(upload, fewer, "it")


@looped(
    ("name", "tensor"),
    [
        ("labels", None),
        ("images", None),
        ("labels", torch.full((20,), 10)),
        ("labels", torch.full((20,), -1)),
        ("labels", torch.zeros(20)),
        ("labels", torch.zeros(19, dtype=torch.int64)),
        ("images", torch.zeros(20, 8, 8, 1)),
        ("images", torch.zeros(20, 8, 9, 1, dtype=torch.uint8)),
    ],
)
def test_damaged_public_images_are_refused(name: str, tensor: Tensor | None) -> None:
    briefing = with_public()
    tensors = {n: t for n, t in briefing.tensors.items() if n != PUBLIC + name}
    if tensor is not None:
        tensors[PUBLIC + name] = tensor
    with pytest.raises(AccordError, match="expected public images of the study's size"):
        Training(images_of(OWN), Briefing(briefing.header, tensors), "0")
