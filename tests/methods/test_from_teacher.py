"""Rounds that start at the server's teacher."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from accord.core.errors import AccordError
from accord.core.randomness import torch_generator
from accord.messages import (
    NET,
    PUBLIC,
    TEACHER,
    Briefing,
    NetHeader,
    TeacherHeader,
    prefixed,
    unprefixed,
)
from accord.methods.from_teacher import FromTeacher, known_images
from accord.nets.inference import predicted_labels
from accord.nets.net import fresh_net, loaded_net
from methods.scenes import scene_of
from tests_support import brief_for, same


def opening(recipe: str = "ce-ensemble", backbone: str = "conv4") -> Briefing:
    plain = brief_for(recipe)
    net = NetHeader(backbone=backbone, norm="batch", head="linear")
    taught = fresh_net(net, 1, 10, torch_generator(5, "net"))
    teacher = TeacherHeader(net=net, mean=(0.1,), std=(0.2,))
    header = plain.header.model_copy(update={"teacher": teacher})
    return Briefing(header, {**plain.tensors, **prefixed(TEACHER, taught.state_dict())})


def test_the_first_round_has_the_teachers_weights_and_normalisation() -> None:
    first = opening()
    told = FromTeacher(merge={"use": "average"}).start(first).briefing()
    assert same(unprefixed(NET, told.tensors), unprefixed(TEACHER, first.tensors))
    assert (told.header.mean, told.header.std) == ((0.1,), (0.2,))
    assert told.header.teacher is None
    assert not any(name.startswith(TEACHER) for name in told.tensors)


def test_clients_that_distil_receive_the_teacher_as_well() -> None:
    told = FromTeacher(merge={"use": "average"}).start(opening("kd")).briefing()
    assert told.header.teacher is not None
    assert same(unprefixed(NET, told.tensors), unprefixed(TEACHER, told.tensors))


def test_a_teacher_with_another_net_is_refused() -> None:
    with pytest.raises(AccordError, match="expected a teacher with the clients' net, conv4"):
        FromTeacher(merge={"use": "average"}).start(opening(backbone="resnet10-narrow"))


def test_labels_can_only_be_changed_if_clients_use_them() -> None:
    with pytest.raises(AccordError, match=r"method\.relabel: there are no labels to change"):
        FromTeacher(merge={"use": "average"}, relabel=True).start(opening())


def test_it_labels_the_images_that_clients_have_anew(tmp_path: Path) -> None:
    """Also if the server itself has no images at hand, as with files."""
    plain = brief_for("public-rounds", batch=16, epochs=1)
    teacher = TeacherHeader(net=plain.header.net, mean=(0.3,), std=(0.35,))
    header = plain.header.model_copy(update={"teacher": teacher})
    taught = prefixed(TEACHER, unprefixed(NET, plain.tensors))
    method = FromTeacher(merge={"use": "average"}, relabel=True)
    state = method.start(Briefing(header, {**plain.tensors, **taught}))
    scene = scene_of(method.brief(state), tmp_path)
    assert len(scene.public) == 0
    following = method.advance(state, scene)
    images = known_images(state, scene)
    net = loaded_net(header.net, 1, 10, unprefixed(NET, following.tensors))
    expected = predicted_labels(net, images, following.header.briefing, torch.device("cpu"))
    labels = following.tensors[PUBLIC + "labels"]
    assert torch.equal(labels, expected)
    assert not torch.equal(labels, state.tensors[PUBLIC + "labels"])
    assert torch.equal(following.tensors[PUBLIC + "images"], state.tensors[PUBLIC + "images"])
