"""An allocation: which images of a dataset each client holds, and which are for evaluation.

It combines a decoded dataset, a split and a partition. On disk it is a small JSON file beside the
saved partition. A worker process opens the same images from it without a copy.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from accord.core.config import Config
from accord.core.errors import AccordError
from accord.core.files import read_json, write_json
from accord.data import partition as partitions
from accord.data.datasets import open_cached
from accord.data.elsewhere import no_images, no_split
from accord.data.images import Dataset, Images, Indices
from accord.data.imageset import ImageSet
from accord.data.partition import Partition, make_partition
from accord.data.schemes import Scheme
from accord.data.schemes.sites import Sites
from accord.data.settings import ELSEWHERE, DataConfig
from accord.data.split import Split, split


class AllocationFile(Config):
    """The content of an allocation's JSON file."""

    folder: str  # the folder of the decoded dataset in the cache
    data: DataConfig
    seed: int
    partition: str  # the name of the partition's file in the same folder


@dataclass(frozen=True, eq=False)
class Allocation:
    """The images of every client and of every other part."""

    dataset: Dataset
    data: DataConfig
    seed: int
    split: Split
    partition: Partition

    @property
    def classes(self) -> tuple[str, ...]:
        return self.split.classes

    def client(self, index: int) -> ImageSet:
        return self._set(self.dataset.train, self.split.train[self.partition.indices[index]])

    def part(self, name: Literal["test", "validation", "public"]) -> ImageSet:
        if name == "test":
            return self._set(self.split.test_part(self.dataset), self.split.test)
        return self._set(self.dataset.train, getattr(self.split, name))

    def _set(self, part: Images, rows: Indices) -> ImageSet:
        return ImageSet(part.images, rows, self.split.renumber(np.asarray(part.labels)[rows]))

    def save(self, path: Path) -> None:
        """Writes the allocation. If there is a saved partition, it must be the same."""
        target = path.with_suffix(".safetensors")
        if target.exists() and partitions.load(target).hash != self.partition.hash:
            raise AccordError(
                f"{target} holds another partition than the one that this study, seed and version "
                "of Accord give: the results would mix two partitions. Choose another folder for "
                "the record."
            )
        if not target.exists():
            partitions.save(self.partition, target)
        content = AllocationFile(
            folder=str(self.dataset.folder),
            data=self.data,
            seed=self.seed,
            partition=target.name,
        )
        write_json(path, content.model_dump(mode="json"))


def allocate(dataset: Dataset, data: DataConfig, scheme: Scheme, seed: int) -> Allocation:
    """Splits `dataset` and distributes its training images to clients."""
    chosen = split_of(dataset, data, seed)
    if isinstance(scheme, Sites):
        partition = partitions.of_sites(scheme.names, len(chosen.classes))
        return Allocation(dataset, data, seed, chosen, partition)
    if data.name == ELSEWHERE:
        raise AccordError(
            f"the study has no images to distribute with the partition scheme {scheme.name!r}. "
            "Name a dataset with data.name; or, if the clients hold their own images, set "
            "partition.scheme to sites and partition.names to their names."
        )
    labels = chosen.renumber(np.asarray(dataset.train.labels)[chosen.train])
    columns = {name: column[chosen.train] for name, column in dataset.train.columns.items()}
    if scheme.named_by:
        _refuse_emptied_client(dataset, chosen, scheme.named_by)
    partition = make_partition(labels, len(chosen.classes), scheme, seed, columns)
    return Allocation(dataset, data, seed, chosen, partition)


def _refuse_emptied_client(dataset: Dataset, chosen: Split, column: str) -> None:
    """Refuses a split that leaves a client without images, because the client would disappear."""
    values = dataset.train.columns.get(column)
    if values is None:
        return  # the scheme reports the missing column
    taken = np.concatenate([chosen.public, chosen.validation])
    gone = sorted(set(values[taken].tolist()) - set(values[chosen.train].tolist()))
    if gone:
        raise AccordError(
            f"'public' and 'validation' take every image of client {gone[0]!r} (column "
            f"{column!r}). Use smaller fractions, or remove that client's images from the data."
        )


def open_allocation(path: Path) -> Allocation:
    """The allocation that `save` wrote, for a worker process."""
    content = AllocationFile.model_validate(read_json(path))
    here = content.data.name != ELSEWHERE
    dataset = open_cached(Path(content.folder)) if here else no_images(content.data)
    partition = partitions.load(path.with_name(content.partition))
    chosen = split_of(dataset, content.data, content.seed)
    return Allocation(dataset, content.data, content.seed, chosen, partition)


def allocation_key(dataset: Dataset, data: DataConfig, scheme: Scheme, seed: int) -> str:
    """A name for an allocation: a hash of the source's content and of all settings that matter."""
    # The path is left out, because the name of the cache entry identifies the content.
    data_text = data.model_dump_json(exclude={"path"})
    text = f"{dataset.folder.name} {data_text} {scheme.model_dump_json()} {seed}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def public_key(allocation: Allocation) -> str:
    """A hash of the public images and their augmentation: all data that a teacher depends on."""
    digest = hashlib.sha256(allocation.split.public.astype("<i8").tobytes())
    digest.update(
        f"{allocation.dataset.folder.name} {allocation.classes} {allocation.data.augment}".encode()
    )
    return digest.hexdigest()[:16]


def split_of(dataset: Dataset, data: DataConfig, seed: int) -> Split:
    """The purpose of each image. `data.dealt` selects the images that clients hold."""
    if data.name == ELSEWHERE:
        return no_split(data)
    chosen = split(
        dataset,
        classes=data.classes,
        test_fraction=data.test_fraction,
        public=data.public,
        validation=data.validation,
        train_limit=data.train_limit,
        test_limit=data.test_limit,
        seed=seed,
    )
    if data.dealt == "train":
        return chosen
    if data.dealt == "all":
        return replace(chosen, train=np.sort(np.concatenate([chosen.train, chosen.public])))
    if not len(chosen.public):
        raise AccordError(
            "there are no public images to train on: set data.public, for example to 0.1."
        )
    return replace(chosen, train=chosen.public)
