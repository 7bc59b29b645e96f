"""The fusion `ridge`: the net that it makes is the solution of the sums, as it was asked for."""

from __future__ import annotations

from itertools import product
from typing import Any, get_args

import pytest
import torch

from accord.closed_form.posterior import Prior, log_probabilities
from accord.closed_form.ridge import solve
from accord.core.parts import make_part
from accord.fusion import fusions
from accord.fusion.base import Merge, Scene
from accord.fusion.uploads import UploadFiles
from accord.messages import Upload
from closed_forms import Data, pixels, sums_by_hand
from core.cases import case
from tests_support import brief_for, images_of

PRIORS: tuple[Prior, ...] = get_args(Prior)
BRIEFING = brief_for("fafi")  # whatever was sent: the rule looks at the sums alone
SUMS = sums_by_hand(Data(pixels(200).features, pixels(200).labels % 4), 10)  # four classes, uneven


def merged(**settings: Any) -> Upload:
    rule = make_part(fusions, {"use": "ridge", **settings}, "fusion")
    assert isinstance(rule, Merge)
    scene = Scene(UploadFiles([], BRIEFING), BRIEFING, images_of([]), total=SUMS)
    (found,) = rule.merge(scene)
    return found


def test_the_head_is_the_solution_for_this_penalty_and_prior() -> None:
    heads = []
    for penalty, prior in product((None, 0.5, 50.0), PRIORS):
        with case(penalty, prior):
            found = merged(penalty=penalty, prior=prior)
            solution = solve(SUMS, penalty)
            weights, bias = log_probabilities(solution, SUMS.counts, prior)
            head = found.tensors["net.head.prototypes"], found.tensors["net.head.bias"]
            torch.testing.assert_close(head, (weights.float(), bias.float()))
            (event,) = found.header.telemetry
            assert event["penalty"] == pytest.approx(solution.penalty)
            assert event["freedom"] == pytest.approx(solution.freedom)
            heads.append(head[1])
    assert len({tuple(bias.tolist()) for bias in heads}) == len(heads)  # each is another one


def test_it_speaks_for_all_images() -> None:
    found = merged()
    assert found.header.samples == 200
    assert found.tensors["label_counts"].tolist() == SUMS.counts.tolist()
