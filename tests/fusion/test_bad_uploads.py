"""Uploads that cannot be used are refused, and the message names the file."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from accord.core.errors import AccordError
from accord.fusion.evaluate import measure_block
from accord.fusion.uploads import UploadFiles
from accord.messages import Upload
from fusion.clients import (
    BRIEFING,
    HOLDINGS,
    TEST,
    briefing_of,
    images_of,
    upload_of,
    written,
)

WEIGHT = "net.encoder.stages.stage2.0.weight"


def good_upload() -> Upload:
    return upload_of("0", images_of([0, 1, 2], "good"))


def changed(**tensors: Tensor) -> Upload:
    good = good_upload()
    named = {name.replace("__", "."): tensor for name, tensor in tensors.items()}
    return Upload(good.header, {**good.tensors, **named})


def refused(path: Path) -> str:
    """The message that names the file."""
    with pytest.raises(AccordError) as caught:
        UploadFiles([path], BRIEFING).load(0)
    assert str(path) in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", [WEIGHT, "net.head.prototypes", "feature_mean", "score_std"])
def test_values_that_are_not_finite_are_refused(name: str, tmp_path: Path) -> None:
    for bad in (math.nan, math.inf, -math.inf):
        upload = good_upload()
        upload.tensors[name].view(-1)[-1] = bad
        upload.save(tmp_path / "bad.safetensors")
        assert f"{name!r} holds NaN or infinity" in refused(tmp_path / "bad.safetensors"), bad


@pytest.mark.parametrize(
    "tensor",
    [torch.zeros(64, 64, 3), torch.zeros(32, 64, 3, 3), torch.zeros(64, 64, 3, 3).double()],
    ids=["rank", "shape", "type"],
)
def test_weights_of_another_net_are_refused(tensor: Tensor, tmp_path: Path) -> None:
    good = good_upload()
    Upload(good.header, {**good.tensors, WEIGHT: tensor}).save(tmp_path / "bad.safetensors")
    assert f"{WEIGHT!r} should be (64, 64, 3, 3)" in refused(tmp_path / "bad.safetensors")


def test_missing_weights_are_refused(tmp_path: Path) -> None:
    good = good_upload()
    some = {name: tensor for name, tensor in good.tensors.items() if name != WEIGHT}
    Upload(good.header, some).save(tmp_path / "bad.safetensors")
    assert "found absent" in refused(tmp_path / "bad.safetensors")


def test_weights_the_net_does_not_have_are_refused(tmp_path: Path) -> None:
    changed(net__encoder__extra=torch.zeros(1)).save(tmp_path / "bad.safetensors")
    assert "net.encoder.extra" in refused(tmp_path / "bad.safetensors")


@pytest.mark.parametrize(
    "counts",
    [
        torch.tensor([1, 1]),
        torch.tensor([[1, 1, 1]]),
        torch.tensor([2, -1, 2]),
        torch.tensor([0, 0, 0]),
        torch.tensor([5, 5, 5]),
    ],
    ids=["too few", "rank", "negative", "none", "not as many as samples"],
)
def test_impossible_label_counts_are_refused(counts: Tensor, tmp_path: Path) -> None:
    changed(label_counts=counts).save(tmp_path / "bad.safetensors")
    assert "label_counts" in refused(tmp_path / "bad.safetensors")


def test_a_truncated_upload_is_refused(tmp_path: Path) -> None:
    content = good_upload().to_bytes()
    (tmp_path / "bad.safetensors").write_bytes(content[:-1])
    assert "not a whole upload" in refused(tmp_path / "bad.safetensors")


def test_an_answer_to_another_briefing_is_refused(tmp_path: Path) -> None:
    stray = upload_of("0", images_of([0, 1, 2]), briefing_of(seed=1))
    stray.save(tmp_path / "bad.safetensors")
    assert "answers another briefing" in refused(tmp_path / "bad.safetensors")


def test_another_clients_upload_in_its_place_is_refused(tmp_path: Path) -> None:
    """The upload is client 0's. In a record the name tells the client, and maybe the epoch."""
    for name in ("uploads/client-0", "uploads/client-0@3", "uploads/whatever", "sent/client-1"):
        good_upload().save(tmp_path / f"{name}.safetensors")
        UploadFiles([tmp_path / f"{name}.safetensors"], BRIEFING).load(0)
    for name in ("uploads/client-1", "uploads/client-1@3"):
        good_upload().save(tmp_path / f"{name}.safetensors")
        told = refused(tmp_path / f"{name}.safetensors")
        assert "upload of client 1, found that of client 0" in told


def test_a_briefing_is_not_an_upload(tmp_path: Path) -> None:
    BRIEFING.save(tmp_path / "bad.safetensors")
    assert "upload, found briefing" in refused(tmp_path / "bad.safetensors")


def test_numbers_too_large_to_be_added_are_refused_by_name(tmp_path: Path) -> None:
    for name in ("net.head.prototypes", WEIGHT, "feature_var"):
        large = {name: torch.full_like(good_upload().tensors[name], 3e38)}
        Upload(good_upload().header, {**good_upload().tensors, **large}).save(
            tmp_path / "bad.safetensors"
        )
        told = refused(tmp_path / "bad.safetensors")
        by_name = f"{name!r} should have a norm of at most" in told
        assert by_name or "gives NaN or infinity for images of noise" in told


def test_one_bad_upload_stops_the_measuring(tmp_path: Path) -> None:
    clients = UploadFiles(written(tmp_path, HOLDINGS["skewed"]), BRIEFING)
    clients.paths[1].write_bytes(b"")
    with pytest.raises(AccordError, match=r"1\.safetensors"):
        measure_block(TEST, clients, {"features": "features"}, {}, "cpu", lambda _: None)
