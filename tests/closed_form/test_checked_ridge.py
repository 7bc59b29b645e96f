"""`ridge-checked` drops clients whose sums are wrong, and nobody else."""

from __future__ import annotations

from functools import reduce
from operator import add

import numpy as np
import torch

from accord.closed_form.leaving import Checked
from accord.closed_form.sums import Sums
from accord.core.parts import make_part
from accord.fusion import checked_ridge, fusions
from accord.fusion.base import Scene
from accord.fusion.checked_ridge import CheckedRidge
from accord.messages import Upload, UploadHeader
from closed_forms import dealt, pixels, sums_by_hand
from core.cases import case
from held import Held
from tests_support import brief_for, images_of

BRIEFING = brief_for("fafi")  # the features of images are given below
DATA = pixels(700)
HELD = DATA.take(np.arange(500, 700))
CHECKED = Checked(torch.from_numpy(HELD.features), torch.from_numpy(HELD.labels))


def dropped(sums: list[Sums], **settings: float) -> set[str]:
    """The names of the clients that the rule drops."""
    sent = Held(BRIEFING)
    for index, one in enumerate(sums):
        header = UploadHeader(client=str(index), epoch=1, samples=one.total, briefing="")
        sent.append(Upload(header, one.tensors("float32")))
    total = reduce(add, (Sums.of(upload.tensors) for upload in sent))
    rule = make_part(fusions, {"use": "ridge-checked", **settings}, "fusion")
    assert isinstance(rule, CheckedRidge)
    usual, checked_ridge.checked_images = checked_ridge.checked_images, lambda *_: CHECKED
    try:
        found, told = rule.kept(Scene(sent, BRIEFING, images_of([]), total=total))
    finally:
        checked_ridge.checked_images = usual
    names = {key.removeprefix("dropped ") for key in told}
    stayed = [one for index, one in enumerate(sums) if str(index) not in names]
    assert found.counts.tolist() == reduce(add, stayed).counts.tolist()
    return names


def honest() -> list[Sums]:
    return [sums_by_hand(one, 10) for one in dealt(DATA.take(np.arange(500)), 8, 0)]


def flipped(sums: Sums) -> Sums:
    return Sums(sums.counts.flip(0), sums.sums.flip(0), sums.scatter)


def test_honest_clients_stay_and_hostile_ones_go() -> None:
    plain = honest()
    assert dropped(plain) == set()
    heavy = Sums(50 * plain[3].counts, 50 * plain[3].sums, 50 * plain[3].scatter)
    for sums, expected in (
        ([*plain[:3], flipped(heavy), *plain[4:]], {"3"}),
        ([flipped(heavy), *plain[1:3], flipped(heavy), *plain[4:]], {"0", "3"}),
    ):
        with case(expected):
            assert dropped(sums) == expected
            assert dropped(sums, gain=0.99) == set()


def test_fewer_than_half_are_dropped() -> None:
    plain = honest()[:3]
    heavy = flipped(Sums(50 * plain[0].counts, 50 * plain[0].sums, 50 * plain[0].scatter))
    assert len(dropped([heavy, heavy, plain[2]])) <= 1
    assert dropped([heavy, plain[1]]) == set()
