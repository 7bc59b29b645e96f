"""Partitions: the training images of every client. They are made, checked, saved and loaded."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_bytes

from accord.core.errors import AccordError
from accord.core.files import write_atomic
from accord.core.randomness import numpy_generator
from accord.core.reading import json_of
from accord.data.images import Indices, Labels
from accord.data.schemes import Pool, Scheme
from accord.data.schemes.grouping import groups

REDRAWS = 1_000  # the number of draws of a random scheme to reach min_samples


@dataclass(frozen=True, eq=False)  # == of arrays is not one truth value; compare `hash` instead
class Partition:
    """The sorted positions of each client's images in the array of labels.

    `names` are the clients' names: the values of a column for clients that come from a column, and
    "0", "1", … for clients without names of their own. `label_counts` is (clients, classes).

    `sites` are the names of all clients of the scheme, in order; also of one that is left out.
    `own` are the images that each of them holds out, as rows of the dataset's training part.
    `origins` says from which site each image of each client comes, as an index of `sites`; None: a
    client's images are its own.
    """

    indices: tuple[Indices, ...]
    names: tuple[str, ...]
    label_counts: NDArray[np.int64]
    disjoint: bool
    sites: tuple[str, ...] = ()
    own: tuple[Indices, ...] = ()
    origins: tuple[Indices, ...] | None = None

    def origin(self, client: int) -> Indices:
        """The site of each image of a client, as an index of `sites`."""
        if self.origins is not None:
            return self.origins[client]
        site = self.sites.index(self.names[client])
        return np.full(len(self.indices[client]), site, np.int64)

    @cached_property
    def hash(self) -> str:
        """SHA-256 over the sizes and positions of all clients, and of what they hold out."""
        digest = hashlib.sha256()
        for part in (*self.indices, *(part for part in self.own if len(part))):
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part.astype("<i8").tobytes())
        return digest.hexdigest()


def make_partition(
    labels: Labels,
    classes: int,
    scheme: Scheme,
    seed: int,
    columns: Mapping[str, NDArray[np.str_]],
) -> Partition:
    """Distributes the images with these `labels` (0…classes−1) to clients by `scheme`.

    A random scheme draws again, up to 1,000 times, until every client has `min_samples` images.
    Images are never moved between clients to reach this number.
    """
    _check_arrays(labels, classes, columns)
    pool = Pool(len(labels), groups(labels), columns)
    _check_possible(pool, scheme)
    smallest = 0
    for attempt in range(REDRAWS if scheme.varies else 1):
        drawn = scheme.draw(pool, numpy_generator(seed, "partition", attempt))
        smallest = max(smallest, min(len(part) for part in drawn))
        if smallest >= scheme.min_samples:
            break
    else:
        raise _too_small(scheme, pool, len(drawn), smallest)
    _check_promises(drawn, pool, scheme)
    indices = tuple(np.sort(part).astype(np.int64) for part in drawn)
    names = _names(indices, columns[scheme.named_by] if scheme.named_by else None)
    return Partition(
        indices=indices,
        names=names,
        label_counts=count_labels(indices, labels, classes),
        disjoint=scheme.disjoint,
        sites=names,
        own=tuple(part[:0] for part in indices),
    )


def _names(indices: tuple[Indices, ...], column: NDArray[np.str_] | None) -> tuple[str, ...]:
    """The value of the column in each client's images, or else the clients' numbers."""
    if column is None:
        return tuple(str(k) for k in range(len(indices)))
    names = tuple(str(column[part[0]]) for part in indices)
    for name in names:
        if any("\ud800" <= sign <= "\udfff" for sign in name):
            raise AccordError(
                f"a client is named {name[:100]!r}, which is not valid text (it cannot be written "
                "as UTF-8). Correct this value of the column."
            )
    return names


def count_labels(indices: tuple[Indices, ...], labels: Labels, classes: int) -> NDArray[np.int64]:
    """(clients, classes): the number of images of each class of each client."""
    return np.stack([np.bincount(labels[part], minlength=classes) for part in indices])


def of_sites(names: tuple[str, ...], classes: int) -> Partition:
    """The partition of clients whose images are elsewhere: this machine does not know them."""
    return Partition(
        indices=tuple(np.zeros(0, np.int64) for _ in names),
        names=names,
        label_counts=np.zeros((len(names), classes), np.int64),
        disjoint=True,
        sites=names,
        own=tuple(np.zeros(0, np.int64) for _ in names),
    )


def _check_arrays(labels: Labels, classes: int, columns: Mapping[str, NDArray[np.str_]]) -> None:
    """Checks the arguments. A failed check is a bug of the caller and not a user's mistake."""
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(f"expected whole labels (N), found {labels.dtype} {labels.shape}")
    if len(labels) and not 0 <= labels.min() <= labels.max() < classes:
        found = f"{labels.min()}…{labels.max()}"
        raise ValueError(f"expected labels in 0…{classes - 1}, found labels in {found}")
    for name, column in columns.items():
        if column.shape != labels.shape:
            raise ValueError(
                f"expected column {name!r} to have {len(labels)} values, found {column.shape}"
            )


def _check_possible(pool: Pool, scheme: Scheme) -> None:
    """Refuses settings for which no draw can succeed."""
    if pool.size == 0:
        raise AccordError("expected images for the clients, found none.")
    clients = scheme.expected_clients
    if clients is None:
        return
    if clients > pool.size:
        raise AccordError(
            f"partition scheme {scheme.name!r}: expected at least one image per client, found "
            f"{pool.size:,} images for {clients:,} clients. Use fewer clients or more data."
        )
    if scheme.disjoint and clients * scheme.min_samples > pool.size:
        raise AccordError(
            f"partition scheme {scheme.name!r}: expected at least {scheme.min_samples:,} images "
            f"for each of {clients:,} clients, found {pool.size:,} images. "
            "Use fewer clients or a smaller min_samples."
        )


def _check_promises(drawn: list[Indices], pool: Pool, scheme: Scheme) -> None:
    """Checks that clients are disjoint and no image is lost, as the scheme declares.

    A failed check is a bug of the scheme.
    """
    total = sum(len(part) for part in drawn)
    distinct = len(np.unique(np.concatenate(drawn)))
    if scheme.disjoint and distinct < total:
        raise RuntimeError(f"scheme {scheme.name!r} gave {total - distinct} images twice")
    if scheme.disjoint and scheme.uses_all(pool) and distinct < pool.size:
        raise RuntimeError(f"scheme {scheme.name!r} lost {pool.size - distinct} images")


def _too_small(scheme: Scheme, pool: Pool, clients: int, smallest: int) -> AccordError:
    setting, remedy = scheme.milder or ("", "")
    setting = setting and f" with {setting}"
    draws = f"in {REDRAWS:,} draws " if scheme.varies else ""
    remedies = [remedy for remedy in ("fewer clients", remedy) if remedy]
    if scheme.named_by:
        remedies = [f"a column whose values are more frequent than those of {scheme.named_by!r}"]
    if scheme.reads_sites:
        remedies = ["one folder or file for several small sites"]
    if scheme.min_samples > 1:
        remedies.append("a smaller min_samples")
    return AccordError(
        f"partition scheme {scheme.name!r}{setting}: expected at least {scheme.min_samples:,} "
        f"images per client; of {pool.size:,} images over {clients:,} clients {draws}"
        f"the smallest client had at best {smallest:,}. "
        f"Use {' or '.join(filter(None, [', '.join(remedies[:-1]), remedies[-1]]))}."
    )


def save(partition: Partition, path: Path) -> None:
    """Writes `partition` as safetensors, atomically."""
    about = {"header": _header(partition), "hash": partition.hash, "seal": _seal(partition)}
    # There is only one key: safetensors writes several in an order that varies by process.
    write_atomic(path, to_bytes(_tensors(partition), {"accord": json.dumps(about)}))


def _tensors(partition: Partition) -> dict[str, NDArray[np.int64]]:
    """The arrays of a partition; those of all clients, and of all sites, one after another."""
    tensors = {
        "indices": _joined(partition.indices),
        "sizes": np.array([len(part) for part in partition.indices], np.int64),
        "label_counts": partition.label_counts,
        "own": _joined(partition.own),
        "own_sizes": np.array([len(part) for part in partition.own], np.int64),
    }
    if partition.origins is not None:
        tensors["origins"] = _joined(partition.origins)
    return tensors


def _joined(parts: tuple[Indices, ...]) -> Indices:
    return np.concatenate([np.zeros(0, np.int64), *parts])


def _parted(joined: Indices, sizes: Indices) -> tuple[Indices, ...]:
    ends = np.cumsum(sizes).tolist()
    parts = zip([0, *ends], ends, strict=False)  # from the end of the part before
    return tuple(joined[start:end] for start, end in parts)


def load(path: Path) -> Partition:
    """The partition that `save` wrote. A damaged file raises an error."""
    if not path.is_file():
        raise AccordError(f"expected a saved partition at {path}, found no file there.")
    try:
        with safe_open(path, framework="np") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            metadata = json_of((file.metadata() or {})["accord"])
        header = json_of(metadata["header"])
        sizes, origins = tensors["sizes"], tensors.get("origins")
        partition = Partition(
            indices=_parted(tensors["indices"], sizes),
            names=tuple(header["names"]),
            label_counts=tensors["label_counts"],
            disjoint=header["disjoint"],
            sites=tuple(header["sites"]),
            own=_parted(tensors["own"], tensors["own_sizes"]),
            origins=None if origins is None else _parted(origins, sizes),
        )
        whole = _seal(partition) == metadata["seal"] and partition.hash == metadata["hash"]
    except (SafetensorError, KeyError, TypeError, ValueError, AttributeError, OverflowError):
        whole = False
    if not whole:
        raise AccordError(
            f"expected a whole partition in {path}, found a damaged file. "
            "Delete it and make the partition again."
        )
    return partition


def _header(partition: Partition) -> str:
    return json.dumps(
        {"names": partition.names, "disjoint": partition.disjoint, "sites": partition.sites}
    )


def _seal(partition: Partition) -> str:
    """A checksum over all content of the file."""
    digest = hashlib.sha256(_header(partition).encode())
    for name, tensor in sorted(_tensors(partition).items()):
        digest.update(f"{name} {tensor.shape}".encode())
        digest.update(tensor.astype("<i8").tobytes())
    return digest.hexdigest()
