"""An allocation: which images of a dataset each client holds, and which are for evaluation.

It combines a decoded dataset, a split and a partition. On disk it is a small JSON file beside the
saved partition. A worker process opens the same images from it without a copy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from accord.attacks.settings import NO_ATTACK, AttackConfig
from accord.core.errors import AccordError
from accord.core.files import write_json
from accord.core.names import shown
from accord.data import partition as partitions
from accord.data.allocation_file import AllocationFile
from accord.data.allocation_keys import allocation_key
from accord.data.datasets import open_cached
from accord.data.elsewhere import no_images
from accord.data.hostile import announced, hostile_clients
from accord.data.images import Dataset, Images, Indices, Labels
from accord.data.imageset import ImageSet
from accord.data.partition import Partition, make_partition
from accord.data.schemes import Scheme
from accord.data.schemes.sites import Sites
from accord.data.settings import ELSEWHERE, NO_SHIFT, DataConfig, ShiftConfig
from accord.data.shifted import known_labels, seen
from accord.data.split import Split
from accord.data.splitting import split_of
from accord.data.taking_part import hold_out, pool, without

PartName = Literal["test", "validation", "public", "own"]


@dataclass(frozen=True, eq=False)
class Allocation:
    """The images of every client and of every other part."""

    dataset: Dataset
    data: DataConfig
    scheme: Scheme
    seed: int
    split: Split
    partition: Partition
    shift: ShiftConfig = NO_SHIFT
    attack: AttackConfig = NO_ATTACK

    @property
    def classes(self) -> tuple[str, ...]:
        return self.split.classes

    @property
    def site_names(self) -> tuple[str, ...]:
        """All clients of the scheme, in order; also one that is left out."""
        return self.partition.sites

    @cached_property
    def hostile(self) -> dict[str, str]:
        """Hostile client → the client whose images it uses."""
        return hostile_clients(self.attack, self.seed, self.partition.names)

    def client(self, index: int) -> ImageSet:
        """The images of a client as it sees them, with the labels that it knows.

        A hostile client that copies another one has the images of that client.
        """
        names = self.partition.names
        index = names.index(self.hostile.get(names[index], names[index]))
        held = self._set(self.dataset.train, self.held(index))
        told = replace(held, labels=self.labels_at(index))
        return seen(told, self.shift, self.seed, self.origins(index), len(self.site_names))

    def held(self, index: int) -> Indices:
        """The images of a client, as rows of the dataset's training part."""
        return self.split.train[self.partition.indices[index]]

    def labels_at(self, index: int) -> Labels:
        """The labels of a client's images as the client knows them."""
        true = self._set(self.dataset.train, self.held(index)).labels
        sites, classes = len(self.site_names), len(self.classes)
        return known_labels(true, classes, self.shift, self.seed, self.origins(index), sites)

    def origins(self, index: int) -> Indices:
        """The site of each image of a client, as an index of `site_names`; −1: unknown.

        A client of pooled images holds images of several sites.
        """
        return self.partition.origin(index)

    def part(self, name: PartName) -> ImageSet:
        """The images of a part; "own" are those that the clients hold out, in order of clients.

        Clients see their own images in their own way. The images of other parts are not changed,
        and neither are the labels of any part.
        """
        return self._own if name == "own" else self._set(self._source(name), self.rows(name))

    @cached_property
    def _own(self) -> ImageSet:
        held = self._set(self.dataset.train, self.rows("own"))
        return seen(held, self.shift, self.seed, self.owners("own"), len(self.site_names))

    def rows(self, name: PartName) -> Indices:
        """The images of a part, as rows of the part of the dataset that they come from."""
        if name == "own":
            return np.concatenate([np.zeros(0, np.int64), *self.partition.own])
        found: Indices = getattr(self.split, name)
        return found

    def _source(self, name: PartName) -> Images:
        return self.split.test_part(self.dataset) if name == "test" else self.dataset.train

    def owners(self, name: PartName) -> Indices:
        """The site of each image of a part, as an index of `site_names`; −1 if it is unknown."""
        if name == "own":
            sizes = [len(part) for part in self.partition.own]
            return np.repeat(np.arange(len(sizes)), sizes)
        source, rows, column = self._source(name), self.rows(name), self.scheme.named_by
        if column is None or column not in source.columns:
            return np.full(len(rows), -1, np.int64)
        places = {name: place for place, name in enumerate(self.site_names)}
        values, position = np.unique(source.columns[column][rows], return_inverse=True)
        return np.array([places.get(name, -1) for name in values.tolist()], np.int64)[position]

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
            scheme=self.scheme,
            seed=self.seed,
            shift=self.shift,
            attack=self.attack,
            partition=target.name,
            key=allocation_key(
                self.dataset, self.data, self.scheme, self.seed, self.shift, self.attack
            ),
        )
        write_json(path, content.model_dump(mode="json"))


def allocate(
    dataset: Dataset,
    data: DataConfig,
    scheme: Scheme,
    seed: int,
    shift: ShiftConfig = NO_SHIFT,
    attack: AttackConfig = NO_ATTACK,
) -> Allocation:
    """Splits `dataset` and distributes its training images to clients, who see them shifted.

    The label counts of the partition are those that the clients announce. Clients with wrong labels
    do not know better, and hostile ones (`attack`) say what serves them.
    """
    chosen = split_of(dataset, data, scheme, seed)
    if isinstance(scheme, Sites):
        partition = partitions.of_sites(scheme.names, len(chosen.classes))
        return Allocation(dataset, data, scheme, seed, chosen, partition)
    if data.name == ELSEWHERE:
        raise AccordError(
            f"the study has no images to distribute with the partition scheme {scheme.name!r}. "
            "Name a dataset with data.name; or, if the clients hold their own images, set "
            "partition.scheme to sites and partition.names to their names."
        )
    make = _pooled if scheme.pooled else _separate
    partition = make(dataset, data, scheme, seed, chosen)
    made = Allocation(dataset, data, scheme, seed, chosen, partition, shift, attack)
    _refuse_unmeasured(made)
    if shift.labels:
        made = replace(made, partition=_known_counts(made))
    return replace(made, partition=announced(made.partition, attack, made.hostile))


def _known_counts(made: Allocation) -> Partition:
    """The partition with the numbers of the labels as its clients know them."""
    classes, clients = len(made.classes), range(len(made.partition.names))
    counts = np.stack([np.bincount(made.labels_at(k), minlength=classes) for k in clients])
    return replace(made.partition, label_counts=counts)


def _separate(
    dataset: Dataset, data: DataConfig, scheme: Scheme, seed: int, chosen: Split
) -> Partition:
    """The partition of clients that each hold their own images."""
    labels = chosen.renumber(np.asarray(dataset.train.labels)[chosen.train])
    columns = {name: column[chosen.train] for name, column in dataset.train.columns.items()}
    partition = make_partition(labels, len(chosen.classes), scheme, seed, columns)
    if data.dealt != "train" and (data.test_per_client or scheme.leave_out):
        raise AccordError(
            f"'data.dealt': expected train, because data.test_per_client and partition.leave_out "
            f"are for clients that hold the training images; found {data.dealt}."
        )
    if scheme.named_by:
        values = dataset.train.columns[scheme.named_by]
        _refuse_emptied_client(values, partition, chosen, data)
        held = values[chosen.own]
        own = tuple(chosen.own[held == site] for site in partition.sites)
        partition = replace(partition, own=own)
    elif data.test_per_client:
        partition, positions = hold_out(partition, labels, data.test_per_client, seed)
        partition = replace(partition, own=tuple(chosen.train[part] for part in positions))
        _refuse_small(partition, scheme, data)
    return without(partition, scheme.leave_out) if scheme.leave_out else partition


def _pooled(
    dataset: Dataset, data: DataConfig, scheme: Scheme, seed: int, chosen: Split
) -> Partition:
    """The partition of clients that each hold all images that the clients of the scheme hold.

    `data.dealt` adds the public images, or replaces the clients' images by them.
    """
    dealt = data.model_copy(update={"dealt": "train"})
    base = allocate(dataset, dealt, scheme.model_copy(update={"pooled": 0}), seed)
    rows, origins = [chosen.train[:0]], [chosen.train[:0]]
    if data.dealt != "public":
        for client in range(len(base.partition.names)):
            rows.append(base.held(client))
            origins.append(base.origins(client))
    if data.dealt != "train":
        rows.append(base.rows("public"))
        origins.append(base.owners("public"))
    positions = np.searchsorted(chosen.train, np.concatenate(rows))
    labels = chosen.renumber(np.asarray(dataset.train.labels)[chosen.train])
    return pool(base.partition, scheme.pooled, positions, np.concatenate(origins), labels)


def _refuse_emptied_client(
    values: NDArray[np.str_], partition: Partition, chosen: Split, data: DataConfig
) -> None:
    """Refuses images to distribute that are none of some site, which would disappear."""
    known = np.concatenate([chosen.train, chosen.public, chosen.validation, chosen.own])
    gone = sorted(set(values[known].tolist()) - set(partition.sites))
    if gone:
        raise AccordError(
            f"'data.dealt': {data.dealt} leaves client {gone[0]!r} no image to train on. Use a "
            "larger data.public, or data.dealt: train."
        )


def _refuse_small(partition: Partition, scheme: Scheme, data: DataConfig) -> None:
    """Refuses held-out images that leave a client fewer images than `min_samples`."""
    sizes = partition.label_counts.sum(axis=1)
    smallest = shown(partition.names[int(sizes.argmin())])
    if sizes.min() < scheme.min_samples:
        raise AccordError(
            f"'data.test_per_client': {data.test_per_client} leaves client {smallest} "
            f"{sizes.min():,} images to train on; expected at least {scheme.min_samples:,} "
            "(partition.min_samples). Use a smaller fraction, or a smaller min_samples."
        )


def _refuse_unmeasured(made: Allocation) -> None:
    """Refuses to leave out a client on whose images nothing would be measured."""
    left_out = made.scheme.leave_out
    if left_out is None:
        return
    site = made.site_names.index(left_out)
    if not any((made.owners(part) == site).any() for part in ("test", "own")):
        raise AccordError(
            f"'partition.leave_out': expected held-out images of client {left_out!r}, on which the "
            "model could be measured; found none. Set data.test_per_client, for example to 0.2, or "
            "use a dataset whose test part names the client of each image."
        )


def open_allocation(path: Path) -> Allocation:
    """The allocation that `save` wrote, for a worker process."""
    content = AllocationFile.read(path)
    here = content.data.name != ELSEWHERE
    dataset = open_cached(Path(content.folder)) if here else no_images(content.data)
    partition = partitions.load(path.with_name(content.partition))
    made_from = (dataset, content.data, content.scheme, content.seed)
    if allocation_key(*made_from, content.shift, content.attack) != content.key:
        raise AccordError(f"{path} is damaged: its settings do not fit its key. Delete it.")
    chosen = split_of(*made_from)
    return Allocation(
        dataset,
        content.data,
        content.scheme,
        content.seed,
        chosen,
        partition,
        content.shift,
        content.attack,
    )
