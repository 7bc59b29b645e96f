"""Datasets by name: where their files are looked for, what comes back, and what errors say."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_array_equal
from PIL import Image
from scipy.io import savemat

import imagefiles as make
from accord.core.errors import AccordError
from accord.data.datasets import load, open_cached
from accord.data.images import Dataset
from accord.data.inventory import Availability, inventory
from accord.data.known import DATASETS
from accord.data.locate import locate

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
needs_shared = pytest.mark.skipif(
    not (SHARED / "svhn-test.parquet").is_file(), reason=f"no real images in {SHARED}"
)


def silent(_: str) -> None:
    pass


def get(name: str, root: Path | None = None, **wishes: int) -> Dataset:
    return load(name, root=root, tell=silent, **wishes)  # type: ignore[arg-type]


def listed(root: Path | None = None) -> dict[str, Availability]:
    return {item.name: item for item in inventory(root)}


# Built in ----------------------------------------------------------------------------------------


def test_digits() -> None:
    from sklearn.datasets import load_digits

    digits = get("digits")
    raw = load_digits()
    assert digits.train.images.shape == (1797, 8, 8, 1)
    assert digits.test is None
    assert digits.classes == tuple("0123456789")
    assert digits.augment == "digits"
    assert_array_equal(digits.train.images[..., 0], np.round(raw.images * 255 / 16))
    assert_array_equal(digits.train.labels, raw.target)
    scaled = digits.train.images / 255
    assert scaled.mean() == pytest.approx(digits.mean[0], abs=1e-4)
    assert scaled.std() == pytest.approx(digits.std[0], abs=1e-4)


def test_digits_converted() -> None:
    digits = get("digits", size=16, channels=3)
    assert digits.train.images.shape == (1797, 16, 16, 3)
    assert digits.remarks == ("images converted from 8×8×1 to 16×16×3",)
    assert digits.mean == (0.3053,) * 3
    again = open_cached(digits.folder)
    assert_array_equal(again.train.images, digits.train.images)
    assert again.remarks == digits.remarks


# Named datasets ----------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", [".", "mnist", "MNIST/raw"])
def test_mnist_in_every_place(tmp_path: Path, folder: str) -> None:
    arrays = make.write_idx_pair(tmp_path / folder)
    mnist = get("mnist", tmp_path)
    assert_array_equal(mnist.train.images, arrays[0])
    assert mnist.test is not None
    assert_array_equal(mnist.test.labels, arrays[3])
    assert (mnist.mean, mnist.std) == ((0.1307,), (0.3081,))
    assert listed(tmp_path)["mnist"].where == str(tmp_path / folder)


def test_mnist_is_not_taken_for_fashion_mnist(tmp_path: Path) -> None:
    labels = np.array([5, 0, 4, 1, 9, 2, 1, 3, 1, 4, 3])
    make.write_idx_pair(tmp_path)
    make.write_idx(tmp_path, "train", make.pixels(11, 5, 4, 1), labels)
    assert get("mnist", tmp_path).train.labels.tolist() == labels.tolist()
    with pytest.raises(AccordError, match="no files of 'fashion-mnist'"):
        get("fashion-mnist", tmp_path)


def test_fashion_mnist_of_the_operating_system(tmp_path: Path) -> None:
    fashion = DATASETS.get("fashion-mnist")
    assert fashion.system == Path("/usr/share/datasets/fashion-mnist")
    make.write_idx_pair(tmp_path)
    assert locate(replace(fashion, system=tmp_path), None, None).where == tmp_path


@pytest.mark.parametrize("folder", [".", "cifar10"])
@pytest.mark.parametrize("packed", [True, False])
def test_cifar10_official_files(tmp_path: Path, folder: str, packed: bool) -> None:
    batches, images, labels = make.cifar10_batches()
    place = tmp_path / folder
    if packed:
        make.write_tar(place / "cifar-10-python.tar.gz", "cifar-10-batches-py", batches)
    else:
        make.write_files(place / "cifar-10-batches-py", batches)
    cifar = get("cifar10", tmp_path)
    assert_array_equal(cifar.train.images, images[:10])
    assert_array_equal(cifar.train.labels, labels[:10])
    assert cifar.classes[9] == "truck"
    assert cifar.augment == "reference"
    assert len(cifar.mean) == len(cifar.std) == 3


def test_svhn_official_files_as_grey(tmp_path: Path) -> None:
    images = make.pixels(3, 32, 32, 3)
    for part in ("train", "test"):
        content = {"X": images.transpose(1, 2, 3, 0), "y": [[1], [10], [3]]}
        savemat(tmp_path / f"{part}_32x32.mat", content)
    svhn = get("svhn", tmp_path, channels=1)
    assert svhn.train.images.shape == (3, 32, 32, 1)
    assert svhn.train.labels.tolist() == [1, 0, 3]
    assert svhn.mean == pytest.approx([(0.4377 + 0.4438 + 0.4728) / 3])
    assert svhn.augment == "upright"


@pytest.mark.parametrize("layout", ["pair", "pair in a folder", "hub"])
def test_named_parquet(tmp_path: Path, layout: str) -> None:
    for i, part in enumerate(("train", "test")):
        path = {
            "pair": f"cifar10-{part}.parquet",
            "pair in a folder": f"cifar10/cifar10-{part}.parquet",
            "hub": f"cifar10/plain_text/{part}-00000-of-00001.parquet",
        }[layout]
        images = make.pixels(2, 32, 32, 3, i)
        make.write_parquet(tmp_path / path, images, [3, 9], kind="WEBP", image="img")
    cifar = get("cifar10", tmp_path)
    assert cifar.test is not None
    assert_array_equal(cifar.test.images, make.pixels(2, 32, 32, 3, 1))
    assert cifar.classes[3] == "cat"


def test_a_path_is_the_root_of_a_named_dataset(tmp_path: Path) -> None:
    make.write_parquet(tmp_path / "train-0.parquet", make.pixels(2, 4, 4, 3), [0, 9])
    cifar = load("cifar10", path=tmp_path, tell=silent)
    assert cifar.train.labels.tolist() == [0, 9]
    with pytest.raises(AccordError, match="no files of 'cifar10'"):
        get("cifar10", tmp_path)  # a root is shared by all, so a bare train.parquet is nobody's


def test_another_dataset_under_the_name(tmp_path: Path) -> None:
    for part in ("train", "test"):
        path = tmp_path / f"cifar10-{part}.parquet"
        make.write_parquet(path, make.pixels(1, 4, 4, 3), [0], classes="a,b,c")
    with pytest.raises(AccordError, match="'cifar10' has 10 classes; these files have 3"):
        get("cifar10", tmp_path)


def test_every_known_dataset_is_complete() -> None:
    counts = {"cifar100": 100, "tiny-imagenet": None, "folder": None, "npz": None, "parquet": None}
    for name in DATASETS.names():
        known = DATASETS.get(name)
        assert known.name == name
        assert len(known.mean) == len(known.std)
        assert known.augment in ("reference", "digits", "upright")
        expected = counts.get(name, 10)
        assert (known.classes and len(set(known.classes))) == expected


# Where it looks ----------------------------------------------------------------------------------


def test_roots_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AccordError, match="no files of 'mnist' in data, "):
        get("mnist")
    places = [Path.home() / ".cache/accord/data", Path.cwd() / "data", tmp_path / "chosen"]
    for place in places:
        make.write_idx_pair(place)
        if place == places[2]:
            monkeypatch.setenv("ACCORD_DATA", str(place))
        assert Path(listed()["mnist"].where).resolve() == place
        get("mnist")


@pytest.mark.parametrize("name", ["mnist", "digits"])
def test_an_explicit_root_must_exist(tmp_path: Path, name: str) -> None:
    with pytest.raises(AccordError, match="expected a folder that exists"):
        get(name, tmp_path / "nowhere")


def test_accord_data_must_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCORD_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(AccordError, match=r"ACCORD_DATA .*nowhere: expected a folder"):
        get("mnist")


def test_a_missing_dataset_says_what_to_put_where(tmp_path: Path) -> None:
    with pytest.raises(AccordError) as caught:
        get("cifar10", tmp_path)
    for said in (
        str(tmp_path),
        "cifar-10-python.tar.gz",
        "cifar-10-batches-py/",
        "cifar10-train.parquet",
        "`accord data --download cifar10`",
    ):
        assert said in str(caught.value)


def test_unknown_name() -> None:
    with pytest.raises(AccordError, match=r"unknown dataset 'cifar-10'; did you mean 'cifar10'"):
        get("cifar-10")


@pytest.mark.parametrize("name", ["folder", "npz", "parquet"])
def test_generic_needs_a_path(tmp_path: Path, name: str) -> None:
    with pytest.raises(AccordError, match=f"'{name}' needs `data.path`"):
        get(name)
    with pytest.raises(AccordError, match="does not exist"):
        load(name, path=tmp_path / "nowhere", tell=silent)
    with pytest.raises(AccordError, match="expected"):
        load(name, path=tmp_path, tell=silent)


def test_digits_take_no_path(tmp_path: Path) -> None:
    with pytest.raises(AccordError, match="needs no files"):
        load("digits", path=tmp_path, tell=silent)


# Generic sources ---------------------------------------------------------------------------------


def test_npz_through_the_cache(tmp_path: Path) -> None:
    images, site = make.pixels(3, 5, 5, 1), ["a", "b", "a"]
    path = make.save_npz(tmp_path / "a.npz", images=images, labels=np.array([0, 2, 0]), site=site)
    npz = load("npz", path=path, tell=silent)
    assert npz.classes == ("0", "1", "2")
    assert (npz.mean, npz.std, npz.augment) == ((0.5,), (0.25,), "upright")
    assert npz.train.columns["site"].tolist() == site


def test_folder_of_several_sizes_needs_a_size(tmp_path: Path) -> None:
    for i, size in enumerate((5, 7)):
        make.save_image(tmp_path / f"class{i}/x.png", make.pixels(1, size, size, 3)[0])
    with pytest.raises(AccordError, match=r"5×5.*7×7.*data.image"):
        load("folder", path=tmp_path, tell=silent)
    folder = load("folder", path=tmp_path, size=6, tell=silent)
    assert folder.train.images.shape == (2, 6, 6, 3)
    assert folder.remarks == ("images converted from several shapes to 6×6×3",)
    assert folder.mean == (0.5, 0.5, 0.5)


def test_a_stray_label_does_not_make_a_million_classes(tmp_path: Path) -> None:
    labels = np.array([0, 1_000_000])
    path = make.save_npz(tmp_path / "a.npz", images=make.pixels(2, 4, 4, 1), labels=labels)
    with pytest.raises(AccordError, match="labels go up to 1000000 with 2 images"):
        load("npz", path=path, tell=silent)


def test_a_folder_with_the_name_of_an_image(tmp_path: Path) -> None:
    for name in ("a", "b"):
        make.save_image(tmp_path / name / "x.png", make.pixels(1, 4, 4, 3)[0])
    (tmp_path / "a/x.png").unlink()
    (tmp_path / "a/x.png").mkdir()
    with pytest.raises(AccordError, match=r"a: expected images"):
        load("folder", path=tmp_path, tell=silent)


# Inventory ---------------------------------------------------------------------------------------


def test_inventory_opens_no_image(tmp_path: Path) -> None:
    (tmp_path / "svhn-train.parquet").write_bytes(b"damaged")
    (tmp_path / "svhn-test.parquet").write_bytes(b"damaged")
    (tmp_path / "mnist-train.parquet").write_bytes(b"alone")
    items = listed(tmp_path)
    assert items["svhn"] == Availability("svhn", True, str(tmp_path), "parquet")
    assert not items["mnist"].found
    assert "mnist-test.parquet is not" in items["mnist"].note
    assert items["digits"].found
    assert not items["cifar100"].found
    assert "cifar-100-python.tar.gz" in items["cifar100"].where
    assert "data.path" in items["folder"].where


# Real images -------------------------------------------------------------------------------------


@needs_shared
def test_real_svhn(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    svhn = load("parquet", path=SHARED / "svhn-test.parquet", tell=told.append)
    assert svhn.train.images.shape == (5000, 32, 32, 3)
    assert svhn.classes == tuple("0123456789")
    table = pq.read_table(SHARED / "svhn-test.parquet")
    assert svhn.train.labels.tolist() == table["label"].to_pylist()
    for row in (0, 4999):
        picture = Image.open(io.BytesIO(table["image"][row]["bytes"].as_py()))
        assert_array_equal(svhn.train.images[row], np.asarray(picture))
    # The second time needs no decoding.
    monkeypatch.setattr("accord.data.parquet_reader.decode_all", None)
    again = load("parquet", path=SHARED / "svhn-test.parquet", tell=silent)
    assert again.folder == svhn.folder


@needs_shared
def test_real_images_in_one_folder_are_not_mixed_up() -> None:
    with pytest.raises(AccordError, match="different class names"):
        load("parquet", path=SHARED, tell=silent)
    assert listed(SHARED)["cifar10"].found
