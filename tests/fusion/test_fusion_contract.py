"""What the server relies on, for every registered fusion, with real nets and upload files."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from accord.client.statistics import measure_client
from accord.core.errors import AccordError, ClientError
from accord.core.metrics import Metrics, Tally
from accord.core.parts import make_part
from accord.core.randomness import numpy_generator, torch_generator
from accord.data.imageset import ImageSet
from accord.data.views import normalise
from accord.fusion import fusions
from accord.fusion.base import Bound, Merge, Scene, Vote, rule_of
from accord.fusion.evaluate import combiner_of, measure_block, run_net
from accord.fusion.uploads import UploadFiles
from accord.messages import (
    NET,
    Briefing,
    BriefingHeader,
    NetHeader,
    Upload,
    UploadHeader,
    prefixed,
)
from accord.nets.net import fresh_net

FUSIONS = [name for name in fusions.names() if rule_of({"use": name}).of == "nets"]
QUICK: dict[str, dict[str, Any]] = {"distilled": {"use": "distilled", "epochs": 1}}
VOTES = [name for name in FUSIONS if issubclass(fusions.get(name), Vote)]
CPU = torch.device("cpu")
CLASSES = 3


def images_of(labels: Sequence[int], *name: object) -> ImageSet:
    """Noise whose brightness tells the class, 8×8 in three colours."""
    draws = numpy_generator(0, "images", *name)
    noise = draws.integers(0, 120, (len(labels), 8, 8, 3))
    pixels = (noise + 60 * np.array(labels)[:, None, None, None]).astype(np.uint8)
    return ImageSet(pixels, np.arange(len(labels)), np.array(labels, dtype=np.int64))


TEST = images_of([0, 1, 2] * 3, "test")


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """As in a worker; threads would only wait for each other on nets as small as these."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def briefing_of(seed: int = 0) -> Briefing:
    header = BriefingHeader(
        seed=seed,
        height=8,
        width=8,
        channels=3,
        classes=("dark", "grey", "bright"),
        mean=(0.5, 0.5, 0.5),
        std=(0.25, 0.25, 0.25),
        augment="none",
        net=NetHeader(backbone="conv4", norm="batch", head="prototypes"),
        training={},
        budget={},
    )
    net = fresh_net(header.net, 3, CLASSES, torch_generator(seed, "net"))
    return Briefing(header, prefixed(NET, net.state_dict()))


BRIEFING = briefing_of()
KNOWN = images_of([0, 1, 2] * 4, "known")
KNOWN_ROWS = torch.arange(len(KNOWN))


def upload_of(client: str, data: ImageSet, briefing: Briefing = BRIEFING) -> Upload:
    """As a client would make it: a net with weights, statistics and prototypes of its own."""
    header = briefing.header
    net = fresh_net(header.net, 3, CLASSES, torch_generator(0, client, "net"))
    with torch.no_grad():
        net.train()(torch.randn(16, 3, 8, 8, generator=torch_generator(0, client, "statistics")))
        features, _ = net.eval()(normalise(KNOWN.batch(KNOWN_ROWS), header.mean, header.std))
        means = features.reshape(-1, CLASSES, features.shape[1]).mean(dim=0)
        net.head.prototypes.copy_(20 * (means - means.mean(dim=0)))  # so that it knows something
    accuracy, moments = measure_client(net, data, header, CPU)
    return Upload(
        UploadHeader(
            client=client,
            epoch=1,
            samples=len(data),
            train_accuracy=accuracy,
            briefing=briefing.digest,
        ),
        {
            **prefixed(NET, net.state_dict()),
            "label_counts": data.label_counts(CLASSES),
            **moments,
        },
    )


Files = dict[str, list[Path]]  # by title of the holdings

HOLDINGS = {
    "skewed": [[0, 0, 1, 2], [1] * 6 + [0], [2, 2, 2, 1, 0, 0, 0, 0, 0]],
    "single-class clients": [[0] * 4, [1] * 5, [2, 2]],
    "single-image client": [[0, 1, 2, 1, 2], [1]],
    "class nobody holds": [[0, 0, 1], [1, 1, 0, 0]],
    "lone client": [[0, 1, 1, 2]],
    "lone client with one class": [[1, 1, 1]],
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """The upload files of every holding; tests only read them."""
    folder = tmp_path_factory.mktemp("uploads")
    return {title: written(folder / title, holdings) for title, holdings in HOLDINGS.items()}


def written(folder: Path, holdings: list[list[int]]) -> list[Path]:
    paths = [folder / f"{k}.safetensors" for k in range(len(holdings))]
    for k, (path, labels) in enumerate(zip(paths, holdings, strict=True)):
        upload_of(str(k), images_of(labels, "client", k)).save(path)
    return paths


def fused(name: str, clients: UploadFiles, images: ImageSet, folder: Path) -> Metrics:
    """What `name` reaches on `images`, by the way the engine takes."""
    spec = QUICK.get(name, {"use": name})
    rule = make_part(fusions, spec, "fusion")
    votes, merged = {}, {}
    if isinstance(rule, Merge):
        paths = []
        for index, upload in enumerate(rule.merge(Scene(clients, BRIEFING, KNOWN))):
            paths.append(folder / f"merged-{index}.safetensors")
            upload.save(paths[-1])
        merged = {name: (spec, UploadFiles(paths, BRIEFING, own=True))}
    elif isinstance(rule, Vote):
        votes = {name: spec}
    found = measure_block(images, clients, votes, merged, "cpu", lambda _: None)
    if isinstance(rule, Bound):
        return rule.summarise([Tally.from_json(own).metrics() for own in found["clients"]], [])[0]
    return Tally.from_json(found["fusions"][name]).metrics()


def scores(name: str, clients: UploadFiles, images: ImageSet) -> Tensor:
    rule = make_part(fusions, name, "fusion")
    assert isinstance(rule, Vote)
    combiner = combiner_of(rule, clients)
    votes = [combiner.vote(k, run_net(clients, k, images, "cpu")) for k in range(len(clients))]
    return combiner.decide(torch.stack(votes).sum(dim=0))


@pytest.mark.parametrize("name", FUSIONS)
@pytest.mark.parametrize("title", HOLDINGS)
def test_every_image_gets_a_finite_prediction(
    name: str, title: str, files: Files, tmp_path: Path
) -> None:
    found = fused(name, UploadFiles(files[title], BRIEFING), TEST, tmp_path)
    nets = len(files[title]) if name == "client-mean" else 1
    assert np.sum(found.confusion, axis=1).tolist() == [3 * nets] * 3
    assert math.isfinite(found.loss)
    assert 0 <= found.ece <= 1


@pytest.mark.parametrize("name", VOTES)
@pytest.mark.parametrize("title", HOLDINGS)
def test_scores_are_one_row_of_classes_per_image(name: str, title: str, files: Files) -> None:
    found = scores(name, UploadFiles(files[title], BRIEFING), TEST)
    assert found.shape == (len(TEST), CLASSES)
    assert len({tuple(row) for row in found.tolist()}) == len(TEST)  # they depend on the image


# `client-best` of one image is another client than that of all.
@pytest.mark.parametrize("name", sorted(set(FUSIONS) - {"client-best"}))
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


@pytest.mark.parametrize("name", FUSIONS)
def test_the_order_of_images_does_not_matter(name: str, files: Files, tmp_path: Path) -> None:
    clients = UploadFiles(files["skewed"], BRIEFING)
    order = np.roll(np.arange(len(TEST)), 4)
    turned = ImageSet(TEST.images, TEST.rows[order], TEST.labels[order])
    found, expected = (fused(name, clients, images, tmp_path) for images in (turned, TEST))
    assert found.confusion == expected.confusion
    assert found.loss == pytest.approx(expected.loss, rel=1e-6)


@pytest.mark.parametrize("name", FUSIONS)
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


@pytest.mark.parametrize("name", sorted(set(FUSIONS) - {"client-best"}))
def test_every_client_has_a_say(name: str, files: Files, tmp_path: Path) -> None:
    clients = UploadFiles(files["skewed"], BRIEFING)
    without_last = UploadFiles(clients.paths[:-1], BRIEFING)
    found, other = (fused(name, uploads, TEST, tmp_path) for uploads in (clients, without_last))
    assert found.loss != pytest.approx(other.loss, rel=1e-4)


@pytest.mark.parametrize("name", FUSIONS)
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


def test_summaries_hold_no_encoder(files: Files) -> None:
    for summary in UploadFiles(files["skewed"], BRIEFING).summaries():
        assert not [name for name in summary.tensors if "encoder" in name]
        assert summary.prototypes.shape == (CLASSES, 64)


# --- uploads that cannot be used -----------------------------------------------------------------

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


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", [WEIGHT, "net.head.prototypes", "feature_mean", "score_std"])
def test_values_that_are_not_finite_are_refused(name: str, bad: float, tmp_path: Path) -> None:
    upload = good_upload()
    upload.tensors[name].view(-1)[-1] = bad
    upload.save(tmp_path / "bad.safetensors")
    assert f"{name!r} holds NaN or infinity" in refused(tmp_path / "bad.safetensors")


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


def test_a_briefing_is_not_an_upload(tmp_path: Path) -> None:
    BRIEFING.save(tmp_path / "bad.safetensors")
    assert "upload, found briefing" in refused(tmp_path / "bad.safetensors")


def test_a_net_that_gives_no_finite_scores_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "bad.safetensors"
    changed(net__head__prototypes=torch.full((CLASSES, 64), 3e38)).save(path)
    with pytest.raises(ClientError, match=r"bad\.safetensors"):
        measure_block(TEST, UploadFiles([path], BRIEFING), {}, {}, "cpu", lambda _: None)


def test_one_bad_upload_stops_the_measuring(tmp_path: Path) -> None:
    clients = UploadFiles(written(tmp_path, HOLDINGS["skewed"]), BRIEFING)
    clients.paths[1].write_bytes(b"")
    with pytest.raises(AccordError, match=r"1\.safetensors"):
        measure_block(TEST, clients, {"features": "features"}, {}, "cpu", lambda _: None)
