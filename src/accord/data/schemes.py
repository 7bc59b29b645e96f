"""The ways to deal out images to clients, one function per scheme, and their settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from accord.config import Config
from accord.data.images import Indices
from accord.errors import AccordError, nearest
from accord.registry import Registry

OVERLAP = 10  # dirichlet-overlap deals every class out this many times, as FAFI's release does


class Pool(NamedTuple):
    """What there is to deal out: the positions of every class that occurs, and the columns."""

    size: int
    classes: list[Indices]
    columns: Mapping[str, NDArray[np.str_]]


Draw = Callable[[Pool, "PartitionConfig", Generator], list[Indices]]


@dataclass(frozen=True)
class Scheme:
    """`draw` returns the positions of each client, in any order.

    `keys` are the settings of its own with their defaults (None: the user must say), `disjoint`
    promises that no two clients share an image, `varies` that another draw can change the sizes.
    """

    draw: Draw
    keys: Mapping[str, float | int | None]
    disjoint: bool
    varies: bool


schemes: Registry[Scheme] = Registry("partition scheme")
OWN_KEYS = ("alpha", "labels", "column")  # keys that only some schemes understand


class PartitionConfig(Config):
    """How the training images are dealt out, the section `partition` of a study."""

    scheme: str = "dirichlet"
    alpha: float | None = Field(None, gt=0)
    clients: int = Field(5, ge=1)
    min_samples: int = Field(1, ge=1)
    labels: int | None = Field(None, ge=1)
    column: str | None = Field(None, min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _fill_defaults(cls, values: Any) -> Any:
        """The scheme's own defaults become part of the config, so that a record shows them."""
        if not isinstance(values, dict):
            return values
        scheme = values.get("scheme", "dirichlet")
        if not isinstance(scheme, str) or scheme not in schemes:
            return values
        own = schemes.get(scheme).keys
        return {**values, **{k: d for k, d in own.items() if values.get(k) is None}}

    @field_validator("scheme")
    @classmethod
    def _known_scheme(cls, value: str) -> str:
        if value not in schemes:
            hint = nearest(value, schemes) or "."
            raise ValueError(f"unknown scheme{hint} Expected one of {', '.join(schemes)}")
        return value

    @model_validator(mode="after")
    def _own_keys(self) -> PartitionConfig:
        own = schemes.get(self.scheme).keys
        for key in OWN_KEYS:
            value = getattr(self, key)
            if key in own and value is None:
                raise ValueError(f"scheme {self.scheme!r} needs {key!r}; set it")
            if key not in own and value is not None:
                raise ValueError(
                    f"scheme {self.scheme!r} has no {key!r}; found {value!r}, set it to null"
                )
        return self

    @model_serializer(mode="wrap")
    def _without_ignored_clients(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """A default that by-column ignores would read as the user's own wish once written down."""
        values: dict[str, Any] = serialise(self)
        if self.scheme == "by-column" and "clients" not in self.model_fields_set:
            values.pop("clients", None)
        return values


def _scheme(
    name: str, *, disjoint: bool = True, varies: bool = True, **keys: float | int | None
) -> Callable[[Draw], Draw]:
    def add(draw: Draw) -> Draw:
        schemes.register(name)(Scheme(draw, keys, disjoint, varies))
        return draw

    return add


@_scheme("dirichlet", alpha=0.5)
def dirichlet(pool: Pool, config: PartitionConfig, rng: Generator) -> list[Indices]:
    """Per class, proportions over clients ~ Dir(α); its shuffled images are dealt out once."""
    owner = np.empty(pool.size, dtype=np.int64)
    for members in pool.classes:
        # Cutting at rounded cumulative shares uses every image, whatever the shares are.
        cuts = np.rint(np.cumsum(_proportions(config, rng))[:-1] * len(members))
        ranks = np.arange(len(members))
        owner[rng.permutation(members)] = np.searchsorted(cuts, ranks, side="right")
    return [np.flatnonzero(owner == client) for client in range(config.clients)]


@_scheme("dirichlet-overlap", disjoint=False, alpha=0.5)
def dirichlet_overlap(pool: Pool, config: PartitionConfig, rng: Generator) -> list[Indices]:
    """Client k gets min(N_c, round(10·N_c·p_kc)) images of class c, shuffled anew per client.

    FAFI's public code draws p_c ~ Dir(α) over the *clients*, once per class, and its 10 is a plain
    constant, not the number of classes; so do we. It takes the size of class 0 for every N_c,
    which is the same for balanced data; we take each class's own. Clients share images, a client
    never holds one twice, and images that nobody draws stay unused.
    """
    hands: list[list[Indices]] = [[] for _ in range(config.clients)]
    for members in pool.classes:
        wanted = np.rint(OVERLAP * len(members) * _proportions(config, rng)).astype(np.int64)
        for hand, count in zip(hands, np.minimum(wanted, len(members)), strict=True):
            hand.append(rng.permutation(members)[:count])
    return [np.concatenate(hand) for hand in hands]


@_scheme("copies", disjoint=False, varies=False)
def copies(pool: Pool, config: PartitionConfig, rng: Generator) -> list[Indices]:  # noqa: ARG001
    """Every client holds every image: an ensemble of nets that differ in their batches."""
    return [np.arange(pool.size) for _ in range(config.clients)]


def _proportions(config: PartitionConfig, rng: Generator) -> NDArray[np.float64]:
    """p ~ Dir(α, …, α) over the clients, for any α > 0.

    A Gamma(α) variate is Gamma(α+1)·U^(1/α). Normalising its logarithm relative to the largest
    keeps a tiny α, whose variates all underflow to 0, from ending in 0/0.
    """
    alpha = config.alpha or 0.0  # the config has made sure that there is one
    log_gamma = np.log(rng.standard_gamma(alpha + 1, config.clients))
    log_uniform = np.log1p(-rng.random(config.clients))
    top = np.argmax(min(alpha, 1.0) * log_gamma + log_uniform / max(alpha, 1.0))
    with np.errstate(over="ignore"):  # a distance beyond the largest float is a weight of 0
        weights = np.exp(log_gamma - log_gamma[top] + (log_uniform - log_uniform[top]) / alpha)
    proportions: NDArray[np.float64] = weights / weights.sum()
    return proportions


@_scheme("labels", labels=2)
def labels_per_client(pool: Pool, config: PartitionConfig, rng: Generator) -> list[Indices]:
    """m labels per client; the images of a class are dealt evenly to the clients that hold it.

    Every client takes the classes with the fewest holders so far, in random order among equals:
    when clients · m reaches the number of classes, every class is held. Otherwise the classes that
    nobody holds stay unused.
    """
    count = config.labels or 0  # the config has made sure that there is one
    if count > len(pool.classes):
        raise AccordError(
            f"partition scheme 'labels': expected at most {len(pool.classes)} labels per client, "
            f"as many as the data has classes; found {count}. Use a smaller `labels`."
        )
    holders: list[list[int]] = [[] for _ in pool.classes]
    for client in range(config.clients):
        order = rng.permutation(len(holders)).tolist()
        for row in sorted(order, key=lambda row: len(holders[row]))[:count]:
            holders[row].append(client)
    hands: list[list[Indices]] = [[] for _ in range(config.clients)]
    for members, clients in zip(pool.classes, holders, strict=True):
        shuffled = rng.permutation(members)
        for place, client in enumerate(clients):
            hands[client].append(shuffled[place :: len(clients)])
    return [np.concatenate(hand) for hand in hands]


@_scheme("iid", varies=False)
def iid(pool: Pool, config: PartitionConfig, rng: Generator) -> list[Indices]:
    """All images shuffled and dealt out in equal parts."""
    return np.array_split(rng.permutation(pool.size), config.clients)


@_scheme("by-column", varies=False, column=None)
def by_column(pool: Pool, config: PartitionConfig, rng: Generator) -> list[Indices]:  # noqa: ARG001
    """A natural federation: one client per distinct value of a column, in sorted order."""
    name = config.column or ""
    if name not in pool.columns:
        known = ", ".join(sorted(pool.columns)) or "none"
        raise AccordError(
            f"the data has no column {name!r}{nearest(name, pool.columns) or '.'} "
            f"Columns found: {known}."
        )
    parts = groups(pool.columns[name])
    if "clients" in config.model_fields_set and config.clients != len(parts):
        raise AccordError(
            f"column {name!r} has {len(parts)} distinct values and so many clients; "
            f"found clients {config.clients}. Drop `clients`."
        )
    return parts


def groups(values: NDArray[Any]) -> list[Indices]:
    """The positions of every distinct value, values ascending."""
    order = np.argsort(values, kind="stable")
    starts = np.flatnonzero(values[order][1:] != values[order][:-1]) + 1
    return np.split(order, starts)
