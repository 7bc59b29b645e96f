"""The datasets that Accord knows by name: how their files are found, their classes and constants.

`mean` and `std` are the commonly used values of each training set. `augment` is the default set of
augmentations, without flips if a mirrored image has another meaning, as for digits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from accord.core.registry import Registry
from accord.data.archives import find_cifar10, find_cifar100
from accord.data.folders import find_folder, find_tiny_imagenet
from accord.data.formats import find_digits, find_idx, find_svhn
from accord.data.npz import find_npz
from accord.data.parquet import find_parquet
from accord.data.raw import Source
from accord.data.site_files import find_site_files
from accord.data.site_folders import find_site_folders


@dataclass(frozen=True)
class Known:
    """A known dataset. `find` searches one folder for the files that `needs` describes.

    "named" datasets are in a data root. "generic" datasets need the user's path, which `find` gets.
    "builtin" datasets need no files. `places` are further folders below a root that are searched
    (those of torchvision). `system` is the folder of an operating system package. `find_sites`
    reads a folder with one entry per site.
    """

    name: str
    kind: Literal["named", "generic", "builtin"]
    find: Callable[[Path], Source | None]
    needs: str
    augment: str
    mean: tuple[float, ...] = (0.5,)
    std: tuple[float, ...] = (0.25,)
    classes: tuple[str, ...] | None = None
    places: tuple[str, ...] = ()
    system: Path | None = None
    find_sites: Callable[[Path], Source] | None = None


DATASETS: Registry[Known] = Registry("dataset")


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(","))


_DIGITS = tuple("0123456789")
_FASHION = _names(
    "T-shirt/top, Trouser, Pullover, Dress, Coat, Sandal, Shirt, Sneaker, Bag, Ankle boot"
)
_CIFAR10 = _names("airplane, automobile, bird, cat, deer, dog, frog, horse, ship, truck")
_CIFAR100 = _names("""
apple, aquarium_fish, baby, bear, beaver, bed, bee, beetle, bicycle, bottle, bowl, boy, bridge,
bus, butterfly, camel, can, castle, caterpillar, cattle, chair, chimpanzee, clock, cloud,
cockroach, couch, crab, crocodile, cup, dinosaur, dolphin, elephant, flatfish, forest, fox, girl,
hamster, house, kangaroo, keyboard, lamp, lawn_mower, leopard, lion, lizard, lobster, man,
maple_tree, motorcycle, mountain, mouse, mushroom, oak_tree, orange, orchid, otter, palm_tree,
pear, pickup_truck, pine_tree, plain, plate, poppy, porcupine, possum, rabbit, raccoon, ray, road,
rocket, rose, sea, seal, shark, shrew, skunk, skyscraper, snail, snake, spider, squirrel,
streetcar, sunflower, sweet_pepper, table, tank, telephone, television, tiger, tractor, train,
trout, tulip, turtle, wardrobe, whale, willow_tree, wolf, woman, worm
""")

# The first training labels distinguish MNIST from Fashion-MNIST: their file names are the same.
_MNIST_STARTS = bytes([5, 0, 4, 1, 9, 2, 1, 3, 1, 4])
_FASHION_STARTS = bytes([9, 0, 0, 3, 0, 2, 7, 2, 5, 5])
_IDX = "the four files train-images-idx3-ubyte.gz … t10k-labels-idx1-ubyte.gz (packed or not)"

for _known in (
    Known(
        name="digits",
        kind="builtin",
        find=find_digits,
        needs="nothing, it is inside scikit-learn",
        augment="digits",
        mean=(0.3053,),
        std=(0.3759,),
        classes=_DIGITS,
    ),
    Known(
        name="mnist",
        kind="named",
        find=partial(find_idx, other=_FASHION_STARTS),
        needs=_IDX,
        augment="digits",
        mean=(0.1307,),
        std=(0.3081,),
        classes=_DIGITS,
        places=("MNIST/raw",),
    ),
    Known(
        name="fashion-mnist",
        kind="named",
        find=partial(find_idx, other=_MNIST_STARTS),
        needs=_IDX,
        augment="reference",
        mean=(0.2860,),
        std=(0.3530,),
        classes=_FASHION,
        places=("FashionMNIST/raw",),
        system=Path("/usr/share/datasets/fashion-mnist"),  # Debian's dataset-fashion-mnist
    ),
    Known(
        name="cifar10",
        kind="named",
        find=find_cifar10,
        needs="cifar-10-python.tar.gz (or unpacked, cifar-10-batches-py/)",
        augment="reference",
        mean=(0.4914, 0.4822, 0.4465),
        std=(0.2470, 0.2435, 0.2616),
        classes=_CIFAR10,
    ),
    Known(
        name="cifar100",
        kind="named",
        find=find_cifar100,
        needs="cifar-100-python.tar.gz (or unpacked, cifar-100-python/)",
        augment="reference",
        mean=(0.5071, 0.4865, 0.4409),
        std=(0.2673, 0.2564, 0.2762),
        classes=_CIFAR100,
    ),
    Known(
        name="svhn",
        kind="named",
        find=find_svhn,
        needs="train_32x32.mat and test_32x32.mat",
        augment="upright",
        mean=(0.4377, 0.4438, 0.4728),
        std=(0.1980, 0.2010, 0.1970),
        classes=_DIGITS,
    ),
    Known(
        name="tiny-imagenet",
        kind="named",
        find=find_tiny_imagenet,
        needs="the unpacked folder tiny-imagenet-200/",
        augment="reference",
        mean=(0.4802, 0.4481, 0.3975),
        std=(0.2770, 0.2691, 0.2821),
    ),
    Known(
        name="folder",
        kind="generic",
        find=find_folder,
        needs="a folder of class folders, or train/ and test/ with class folders in each",
        augment="upright",
        find_sites=find_site_folders,
    ),
    Known(
        name="npz",
        kind="generic",
        find=find_npz,
        needs="an .npz file, or a folder with train.npz and test.npz",
        augment="upright",
        find_sites=partial(find_site_files, find=find_npz, suffix=".npz"),
    ),
    Known(
        name="parquet",
        kind="generic",
        find=find_parquet,
        needs="a parquet file, or a folder with train*.parquet and test*.parquet",
        augment="upright",
        find_sites=partial(find_site_files, find=find_parquet, suffix=".parquet"),
    ),
):
    DATASETS.register(_known.name)(_known)
