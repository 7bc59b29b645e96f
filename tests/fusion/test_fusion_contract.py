"""What the server relies on, for every registered fusion, with real nets and upload files."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from accord.core.metrics import Metrics, Tally
from accord.core.parts import make_part
from accord.data.imageset import ImageSet
from accord.fusion import fusions
from accord.fusion.base import Fusion, Merge, ReferenceRule, Scene, Vote
from accord.fusion.evaluate import combiner_of, measure_block, run_net
from accord.fusion.uploads import UploadFiles
from accord.messages import Upload
from accord.methods import methods
from core.cases import looped
from fusion.clients import BRIEFING, CLASSES, HOLDINGS, KNOWN, TEST, images_of, upload_of, written

FUSIONS = [name for name in fusions.names() if make_part(fusions, name, "fusion").of == "nets"]
QUICK: dict[str, dict[str, Any]] = {"distilled": {"use": "distilled", "epochs": 1}}
VOTES = [name for name in FUSIONS if issubclass(fusions.get(name), Vote)]
Files = dict[str, list[Path]]  # by title of the holdings


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """As in a worker; threads would only wait for each other on nets as small as these."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """The upload files of every holding; tests only read them."""
    folder = tmp_path_factory.mktemp("uploads")
    return {title: written(folder / title, holdings) for title, holdings in HOLDINGS.items()}


def fused(name: str, clients: UploadFiles, images: ImageSet, folder: Path) -> Metrics:
    """What `name` reaches on `images`, by the way the engine takes."""
    spec = QUICK.get(name, {"use": name})
    rule = make_part(fusions, spec, "fusion")
    votes, merged = {}, {}
    if isinstance(rule, Merge):
        paths = []
        for index, upload in enumerate(rule.merge(scene_of(clients))):
            paths.append(folder / f"merged-{index}.safetensors")
            upload.save(paths[-1])
        merged = {name: (spec, UploadFiles(paths, BRIEFING, own=True))}
    elif isinstance(rule, Vote):
        votes = {name: spec}
    found = measure_block(images, clients, votes, merged, "cpu", lambda _: None)
    if isinstance(rule, ReferenceRule):
        return rule.summarise([Tally.from_json(own).metrics() for own in found["clients"]], [])[0]
    return Tally.from_json(found["fusions"][name]).metrics()


def scene_of(clients: UploadFiles) -> Scene:
    """What a server knows after a round of federated averaging."""
    method = make_part(methods, "averaging", "method").filled({"use": "average"}, "recipe")
    before = Scene(clients, BRIEFING, KNOWN)
    return replace(before, after=method.advance(method.start(BRIEFING), before))


def scores(name: str, clients: UploadFiles, images: ImageSet) -> Tensor:
    rule = make_part(fusions, name, "fusion")
    assert isinstance(rule, Vote)
    combiner = combiner_of(rule, clients)
    votes = [combiner.vote(k, run_net(clients, k, images, "cpu")) for k in range(len(clients))]
    return combiner.decide(torch.stack(votes).sum(dim=0))


def kinds(base: type[Any]) -> set[type[Any]]:
    """All classes of fusions that can be made, wherever they stand."""
    further = {found for kind in base.__subclasses__() for found in kinds(kind)}
    return further if inspect.isabstract(base) else {base, *further}


def test_every_rule_that_can_be_made_is_registered() -> None:
    # `Fusion` itself leaves nothing open, but says nothing of how it fuses.
    assert {fusions.get(name) for name in fusions} == kinds(Fusion) - {Fusion}


def test_every_setting_says_what_it_means() -> None:
    fields = {
        (name, key): f for name in fusions for key, f in fusions.get(name).model_fields.items()
    }
    assert [place for place, field in fields.items() if not field.description] == []


@looped("name", FUSIONS)
def test_every_image_gets_a_finite_prediction(name: str, files: Files, tmp_path: Path) -> None:
    for title, paths in files.items():
        found = fused(name, UploadFiles(paths, BRIEFING), TEST, tmp_path)
        nets = len(paths) if name == "client-mean" else 1
        assert np.sum(found.confusion, axis=1).tolist() == [3 * nets] * 3, title
        assert math.isfinite(found.loss), title
        assert 0 <= found.ece <= 1, title


@looped("name", VOTES)
def test_scores_are_one_row_of_classes_per_image(name: str, files: Files) -> None:
    for title, paths in files.items():
        found = scores(name, UploadFiles(paths, BRIEFING), TEST)
        assert found.shape == (len(TEST), CLASSES), title
        assert len({tuple(row) for row in found.tolist()}) == len(TEST), title  # not all alike


# `client-best` of one image is another client than that of all.
@looped("name", sorted(set(FUSIONS) - {"client-best"}))
def test_a_prediction_does_not_depend_on_the_images_beside_it(
    name: str, files: Files, tmp_path: Path
) -> None:
    clients = UploadFiles(files["skewed"], BRIEFING)
    together = fused(name, clients, TEST, tmp_path)
    alone = [fused(name, clients, TEST.slice(i, i + 1), tmp_path) for i in range(len(TEST))]
    assert np.sum([image.confusion for image in alone], axis=0).tolist() == [
        list(row) for row in together.confusion
    ]
    assert np.mean([image.loss for image in alone]) == pytest.approx(together.loss, rel=1e-5)


@looped("name", FUSIONS)
def test_the_order_of_images_does_not_matter(name: str, files: Files, tmp_path: Path) -> None:
    clients = UploadFiles(files["skewed"], BRIEFING)
    order = np.roll(np.arange(len(TEST)), 4)
    turned = ImageSet(TEST.images, TEST.rows[order], TEST.labels[order])
    found, expected = (fused(name, clients, images, tmp_path) for images in (turned, TEST))
    assert found.confusion == expected.confusion
    assert found.loss == pytest.approx(expected.loss, rel=1e-6)


@looped("name", FUSIONS)
def test_the_order_of_clients_does_not_matter(name: str, files: Files, tmp_path: Path) -> None:
    clients = UploadFiles(files["skewed"], BRIEFING)
    permuted = UploadFiles([clients.paths[k] for k in (2, 0, 1)], BRIEFING)
    found, expected = (fused(name, uploads, TEST, tmp_path) for uploads in (permuted, clients))
    assert found.confusion == expected.confusion
    assert found.loss == pytest.approx(expected.loss, rel=1e-5)
    if name in VOTES:
        torch.testing.assert_close(
            scores(name, permuted, TEST), scores(name, clients, TEST), rtol=1e-6, atol=1e-6
        )


@looped("name", sorted(set(FUSIONS) - {"client-best"}))
def test_every_client_has_a_say(name: str, files: Files, tmp_path: Path) -> None:
    clients = UploadFiles(files["skewed"], BRIEFING)
    without_last = UploadFiles(clients.paths[:-1], BRIEFING)
    found, other = (fused(name, uploads, TEST, tmp_path) for uploads in (clients, without_last))
    assert found.loss != pytest.approx(other.loss, rel=1e-4)


@looped("name", FUSIONS)
def test_fusing_leaves_the_uploads_as_they_are(name: str, files: Files, tmp_path: Path) -> None:
    clients = UploadFiles(files["skewed"], BRIEFING)
    before = [path.read_bytes() for path in clients.paths]
    summaries = [dict(s.tensors) for s in UploadFiles(clients.paths, BRIEFING).summaries()]
    fused(name, clients, TEST, tmp_path)
    assert [path.read_bytes() for path in clients.paths] == before
    for kept, fresh in zip(clients.summaries(), summaries, strict=True):
        torch.testing.assert_close(kept.tensors, fresh, rtol=0, atol=0)


def test_clients_are_measured_alone_and_in_order(files: Files) -> None:
    clients = UploadFiles(files["skewed"], BRIEFING)
    found = measure_block(TEST, clients, {}, {}, "cpu", lambda _: None)
    expected = [
        Tally.of(run_net(clients, k, TEST, "cpu").logits, torch.from_numpy(TEST.labels), CLASSES)
        for k in range(3)
    ]
    assert found["clients"] == [tally.to_json() for tally in expected]


def test_progress_is_told_up_to_one(files: Files) -> None:
    clients = UploadFiles(files["skewed"], BRIEFING)
    shares: list[float] = []
    measure_block(TEST, clients, {"features": "features"}, {}, "cpu", shares.append)
    assert shares == pytest.approx([1 / 3, 2 / 3, 1])


def test_summaries_hold_no_scatter(tmp_path: Path) -> None:
    whole = upload_of("0", images_of([0, 1], "summed"))
    sums = {"scatter": torch.ones(3), "feature_sums": torch.ones(2, 2)}
    Upload(whole.header, {**whole.tensors, **sums}).save(tmp_path / "sums.safetensors")
    (found,) = UploadFiles([tmp_path / "sums.safetensors"], BRIEFING, own=True).summaries()
    assert "scatter" not in found.tensors
    assert "feature_sums" in found.tensors


def test_summaries_hold_no_encoder(files: Files) -> None:
    for summary in UploadFiles(files["skewed"], BRIEFING).summaries():
        assert not [name for name in summary.tensors if "encoder" in name]
        assert summary.prototypes.shape == (CLASSES, 64)
