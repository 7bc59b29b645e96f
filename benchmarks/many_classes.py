"""Is the closed form as sure as it is right, with a hundred classes instead of ten?

The problems with many classes are made from CIFAR-10 and SVHN, in a folder where `accord data`
finds them (ACCORD_DATA). The formula of the temperature was chosen with `twins` and with training
images of CIFAR-10 and SVHN. All other problems only measure it. "At best" is the lowest ECE of any
temperature, chosen on the test images themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from accord.client.summing import IMAGES, ROWS, sums_of
from accord.closed_form.posterior import log_probabilities
from accord.closed_form.ridge import solve
from accord.closed_form.sums import Sums
from accord.core.metrics import Tally
from accord.core.randomness import numpy_generator
from accord.data.datasets import load
from accord.data.images import Dataset, Images
from accord.data.imageset import ImageSet
from accord.data.inventory import inventory
from accord.data.views import normalise
from accord.nets.maps import Around, FeatureMap, Origins, draw_map
from accord.nets.settings import NetConfig
from accord.study.recipe import ClosedFormRecipe
from accord.study.resolve import resolve
from benchmarks.figure import Figure

RECIPE, SOURCES = "closed-form-small", ("cifar10", "svhn")
TRAIN, TEST = 250, 50  # images of each class
LACKING = "not measured: CIFAR-10 or SVHN was not found (set ACCORD_DATA)"
MOST = 0.04  # the largest ECE for a hundred classes
MIDDLE = slice(8, 24)  # columns of an image of 32 that become half of another image
FACTORS = tuple(step / 20 for step in range(8, 33))  # of ln p: the best one is sought on the tests
RAREST = 0.05  # the rarest class of an uneven problem, as a share of the most frequent one

Draws = np.random.Generator
Problem = Callable[[str, int, Draws], Images]  # (part, images of each class, draws) → images


def measure() -> list[Figure]:
    """Encodes about 190,000 images, which takes about 12 minutes on one core."""
    found = {entry.name for entry in inventory(None) if entry.found}
    if not found.issuperset(SOURCES):
        return [Figure("many classes", LACKING)]
    sources = {name: load(name, tell=lambda _: None) for name in SOURCES}
    encode = _encoder(sources["cifar10"])
    return [_figure(name, problem, encode) for name, problem in problems(sources).items()]


def problems(sources: dict[str, Dataset]) -> dict[str, Problem]:
    """The name of each problem → its images."""
    cifar10, svhn = (sources[name] for name in SOURCES)
    return {
        "twins: two halves of CIFAR-10": lambda *how: halves(cifar10, cifar10, *how),
        "twins, uneven": lambda *how: uneven(halves(cifar10, cifar10, *how), *how),
        "halves of CIFAR-10 and SVHN": lambda *how: halves(cifar10, svhn, *how),
        "two halves of SVHN": lambda *how: halves(svhn, svhn, *how),
        "turned: 20 classes × 5 ways": lambda *how: turned((cifar10, svhn), 5, *how),
        "turned, uneven": lambda *how: uneven(turned((cifar10, svhn), 5, *how), *how),
        "turned: 20 classes × 8 ways": lambda *how: turned((cifar10, svhn), 8, *how),
    }


def halves(left: Dataset, right: Dataset, part: str, each: int, draws: Draws) -> Images:
    """The middle of an image beside that of another image; 100 classes, one for each pair."""
    one, other = _part(left, part), _part(right, part)
    pairs = [(a, b) for a in range(10) for b in range(10)]
    lefts = np.concatenate([_some(one, a, each, draws) for a, _ in pairs])
    rights = np.concatenate([_some(other, b, each, draws) for _, b in pairs])
    images = (one.images[lefts][:, :, MIDDLE], other.images[rights][:, :, MIDDLE])
    return Images(np.concatenate(images, axis=2), one.labels[lefts] * 10 + other.labels[rights])


def turned(sources: tuple[Dataset, ...], ways: int, part: str, each: int, draws: Draws) -> Images:
    """Each class in several ways: turned by 0, 90, 180 or 270 degrees, and these as negatives."""
    images, labels = [], []
    for source, dataset in enumerate(sources):
        have = _part(dataset, part)
        for label in range(10):
            for way in range(ways):
                some = np.rot90(have.images[_some(have, label, each, draws)], way % 4, (1, 2))
                images.append(255 - some if way >= 4 else some)
                labels += [(source * 10 + label) * ways + way] * each
    return Images(np.concatenate(images), np.array(labels))


def uneven(images: Images, part: str, each: int, draws: Draws) -> Images:
    """For training, fewer images of each class than of the one before it; for tests, all images."""
    if part == "test":
        return images
    classes = int(images.labels.max()) + 1
    counts = (each * RAREST ** (np.arange(classes) / (classes - 1))).astype(int)
    rows = np.concatenate([_some(images, c, count, draws) for c, count in enumerate(counts)])
    return Images(images.images[rows], images.labels[rows])


def _part(dataset: Dataset, part: str) -> Images:
    found = dataset.train if part == "train" else dataset.test
    if found is None:
        raise ValueError(f"{dataset.name} has no test images")
    return found


def _some(images: Images, label: int, count: int, draws: Draws) -> NDArray[np.int64]:
    return draws.permutation(np.flatnonzero(images.labels == label))[:count]


# --- measuring ---------------------------------------------------------------------------------


def _encoder(dataset: Dataset) -> Callable[[Images], Tensor]:
    """Images → features of the recipe, whose dictionary comes from synthetic images."""
    recipe = resolve(RECIPE, Path())
    if not isinstance(recipe, ClosedFormRecipe):
        raise TypeError(f"{RECIPE} is no closed form")
    config = recipe.map.settled(Around(NetConfig(), dataset.train.images.shape[1]), flips=False)
    nothing = ImageSet(dataset.train.images, np.arange(0), dataset.train.labels[:0])
    phi = FeatureMap(config, dataset.train.images.shape[3]).eval()
    origins = Origins(0, nothing, dataset.mean, dataset.std)
    phi.load_state_dict(draw_map(config, dataset.train.images.shape[3], origins))

    def encode(images: Images) -> Tensor:
        pixels = torch.from_numpy(np.ascontiguousarray(images.images))
        with torch.inference_mode():
            some = (normalise(x, dataset.mean, dataset.std) for x in torch.split(pixels, IMAGES))
            return torch.cat([phi(x) for x in some])

    return encode


def _figure(name: str, problem: Problem, encode: Callable[[Images], Tensor]) -> Figure:
    train = problem("train", TRAIN, numpy_generator(0, "many classes", name, "train"))
    test = problem("test", TEST, numpy_generator(0, "many classes", name, "test"))
    classes = int(test.labels.max()) + 1
    sums = _sums(encode(train), torch.from_numpy(train.labels), classes)
    weights, bias = log_probabilities(solve(sums), sums.counts, "uniform")
    said = encode(test).double() @ weights.T + bias
    labels = torch.from_numpy(test.labels)
    metrics = Tally.of(said, labels, classes).metrics()
    sure = float(said.softmax(dim=1).max(dim=1).values.mean())
    best = min(Tally.of(factor * said, labels, classes).metrics().ece for factor in FACTORS)
    return Figure(
        f"{name}, C = {classes}",
        f"ECE {metrics.ece:.1%} (at best {best:.1%}), accuracy {metrics.accuracy:.1%}, "
        f"mean confidence {sure:.1%}",
        f"ECE ≤ {MOST:.0%}",
        metrics.ece <= MOST,
    )


def _sums(features: Tensor, labels: Tensor, classes: int) -> Sums:
    total = Sums.none(classes, features.shape[1])
    for rows in torch.split(torch.arange(len(labels)), ROWS):
        total = total + sums_of(features[rows], labels[rows], classes)
    return total
