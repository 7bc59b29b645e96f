"""Measuring a block of images: each client alone, merged nets alone, and how far it is."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from accord.core.errors import ClientError
from accord.core.metrics import Tally
from accord.core.parts import make_part
from accord.fusion import fusions
from accord.fusion.base import Merge, Scene
from accord.fusion.evaluate import measure_block, run_net
from accord.fusion.uploads import UploadFiles
from accord.messages import Upload
from fusion.clients import BRIEFING, CLASSES, HOLDINGS, KNOWN, TEST, images_of, upload_of, written

SPLIT = {"use": "split", "blocks": 2}


@pytest.fixture
def clients(tmp_path: Path) -> UploadFiles:
    return UploadFiles(written(tmp_path, HOLDINGS["skewed"]), BRIEFING)


def personal_nets(clients: UploadFiles, folder: Path) -> UploadFiles:
    """One net for each client, which differs from its own."""
    rule, paths = make_part(fusions, SPLIT, "fusion"), []
    assert isinstance(rule, Merge)
    for index, upload in enumerate(rule.merge(Scene(clients, BRIEFING, KNOWN))):
        paths.append(folder / f"merged-{index}.safetensors")
        upload.save(paths[-1])
    return UploadFiles(paths, BRIEFING, own=True)


def test_personal_nets_are_measured_alone_as_the_clients_own_are(
    clients: UploadFiles, tmp_path: Path
) -> None:
    merged = personal_nets(clients, tmp_path)
    found = measure_block(TEST, clients, {}, {"split": (SPLIT, merged)}, "cpu", lambda _: None)
    labels = torch.from_numpy(TEST.labels)
    for name, files in (("clients", clients), ("split", merged)):
        expected = [
            Tally.of(run_net(files, k, TEST, "cpu").logits, labels, CLASSES).to_json()
            for k in range(len(files))
        ]
        assert (found["clients"] if name == "clients" else found["personal"][name]) == expected
    assert found["personal"]["split"] != found["clients"]


def test_progress_counts_the_nets_of_clients_and_of_fusions(
    clients: UploadFiles, tmp_path: Path
) -> None:
    shares: list[float] = []
    merged = personal_nets(clients, tmp_path)
    measure_block(TEST, clients, {}, {"split": (SPLIT, merged)}, "cpu", shares.append)
    assert shares == pytest.approx([k / 6 for k in range(1, 7)])


def test_a_rule_that_gives_no_finite_scores_is_named(tmp_path: Path) -> None:
    """The net itself answers; its moments are such that no feature can be standardised.

    Clients cannot send such moments: they are refused before.
    """
    good = upload_of("0", images_of([0, 1, 2], "good"))
    width = len(good.tensors["feature_mean"])
    moments = {"feature_mean": torch.full((width,), 3e38), "feature_var": torch.zeros(width)}
    path = tmp_path / "loud.safetensors"
    Upload(good.header, {**good.tensors, **moments}).save(path)
    files, votes = UploadFiles([path], BRIEFING, own=True), {"loud": {"use": "standardised"}}
    measure_block(TEST, files, {"calm": {"use": "features"}}, {}, "cpu", lambda _: None)
    with pytest.raises(ClientError, match="fusion 'loud'"):
        measure_block(TEST, files, votes, {}, "cpu", lambda _: None)
