"""The benchmarks' own tools work; what they measure is no test's business."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from benchmarks.estimates import CASES
from benchmarks.flops import training_flops
from benchmarks.workspace import random_images, ready_trial, workspace
from torch import nn

from accord.data.allocation import open_allocation
from accord.federation.tasks import perform
from accord.study.study import load_study


def test_a_ready_trial_can_be_trained(study: dict[str, Any]) -> None:
    with workspace() as folder:
        study["data"] = random_images(folder, train=40, test=10)
        run = ready_trial(study, folder / "record")
        opened = open_allocation(run.allocation_path)
        assert sum(len(opened.client(index)) for index in range(3)) == 40
        perform(run.ready[0].task, run.record, lambda _: None)
        assert len(run.untrained()) == 2


def test_the_studies_of_the_estimates_can_be_read(tmp_path: Path) -> None:
    for number, case in enumerate(CASES):
        folder = tmp_path / str(number)
        folder.mkdir()
        with patch("benchmarks.estimates._images", return_value=folder / "none.npz"):
            assert load_study(case.study(folder)).recipes


def test_flops_are_counted_by_layer() -> None:
    """conv 1→2, 3×3, on 4×4: 18 multiply-adds a pixel and map, twice; linear 32→5, three times."""
    net = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.Flatten(), nn.Linear(32, 5))
    conv, linear = 2 * 16 * 9, 32 * 5
    assert training_flops(net, torch.zeros(1, 1, 4, 4)) == 2 * (2 * conv + 3 * linear)
