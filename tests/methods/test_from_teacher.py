"""Rounds that start at the server's teacher."""

from __future__ import annotations

import pytest

from accord.core.errors import AccordError
from accord.core.randomness import torch_generator
from accord.messages import NET, TEACHER, Briefing, NetHeader, TeacherHeader, prefixed, unprefixed
from accord.methods.from_teacher import FromTeacher
from accord.nets.net import fresh_net
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
