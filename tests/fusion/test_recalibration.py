"""An average with BN's statistics measured anew: those of the public images, worked out by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from accord.core.errors import AccordError
from accord.fusion.average import Average
from accord.fusion.base import Scene
from accord.fusion.uploads import UploadFiles
from accord.messages import NET, unprefixed
from accord.nets import inference
from fusion.clients import BRIEFING, HOLDINGS, KNOWN, written

FIRST = "encoder.stages.stage1"  # a convolution, then a batch norm


def scene(folder: Path) -> Scene:
    return Scene(UploadFiles(written(folder, HOLDINGS["skewed"]), BRIEFING), BRIEFING, KNOWN)


def merged(there: Scene, **settings: bool) -> dict[str, Tensor]:
    (found,) = Average(**settings).merge(there)
    return unprefixed(NET, found.tensors)


def seen_by_the_first_norm(weight: Tensor) -> Tensor:
    """The first convolution of all public images, standardised by hand."""
    header = BRIEFING.header
    pixels = torch.from_numpy(np.asarray(KNOWN.images[KNOWN.rows])).permute(0, 3, 1, 2) / 255
    mean, std = (torch.tensor(values)[:, None, None] for values in (header.mean, header.std))
    return F.conv2d((pixels - mean) / std, weight, padding=1)


@pytest.mark.parametrize("at_once", [4, 12])
def test_statistics_are_the_mean_over_batches_of_public_images(
    at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inference, "EVAL_BATCH", at_once)
    there = scene(tmp_path)
    plain, found = merged(there), merged(there, recalibrate=True)
    seen = seen_by_the_first_norm(plain[f"{FIRST}.0.weight"])
    batches = [seen[start : start + at_once] for start in range(0, len(KNOWN), at_once)]
    means = torch.stack([batch.mean(dim=(0, 2, 3)) for batch in batches])
    variances = torch.stack([batch.var(dim=(0, 2, 3)) for batch in batches])
    expected = {"running_mean": means.mean(dim=0), "running_var": variances.mean(dim=0)}
    for name, values in expected.items():
        torch.testing.assert_close(found[f"{FIRST}.1.{name}"], values, rtol=1e-4, atol=1e-5)
        assert not torch.allclose(plain[f"{FIRST}.1.{name}"], values, rtol=1e-2, atol=1e-3)
    assert found[f"{FIRST}.1.num_batches_tracked"].item() == len(batches)


def test_weights_stay_those_of_the_average(tmp_path: Path) -> None:
    there = scene(tmp_path)
    plain, found = merged(there), merged(there, recalibrate=True)
    assert plain.keys() == found.keys()
    counted = ("running_mean", "running_var", "num_batches_tracked")
    for name, values in plain.items():
        if not name.endswith(counted):
            assert torch.equal(found[name], values), name


def test_public_images_are_needed_to_recalibrate_and_only_then() -> None:
    Average().require("batch", public=0)
    Average(recalibrate=True).require("batch", public=1)
    with pytest.raises(AccordError, match=r"`recalibrate` needs public images"):
        Average(recalibrate=True).require("batch", public=0)
