"""Which clients of a simulated federation are hostile, and what they say about their images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from accord.attacks.base import make_attack
from accord.attacks.settings import AttackConfig
from accord.core.errors import AccordError, nearest
from accord.core.names import listed
from accord.core.randomness import numpy_generator
from accord.data.partition import Partition


def hostile_clients(attack: AttackConfig, seed: int, names: Sequence[str]) -> dict[str, str]:
    """Hostile client → the client whose images it uses: itself, or an honest one that it copies.

    The clients are drawn from (seed, "attack"). Two hostile clients are the one that would be
    hostile alone, and one more.
    """
    if not attack.attacks:
        return {}
    order = [names[k] for k in numpy_generator(seed, "attack").permutation(len(names))]
    for name in attack.names:
        if name not in names:
            raise AccordError(
                f"'attack.names': there is no client {name[:100]!r}{nearest(name, names) or '.'} "
                f"The clients are {listed(names)}."
            )
    hostile = list(attack.names) or order[: attack.clients]
    honest = [name for name in order if name not in hostile]
    if not honest or attack.clients > len(names):
        key = "names" if attack.names else "clients"
        raise AccordError(
            f"'attack.{key}': expected fewer hostile clients than the {len(names)} clients of the "
            f"federation; found {len(attack.names) or attack.clients}."
        )
    if not make_attack(attack.name, attack.strength).copies:
        return {name: name for name in hostile}
    return {name: honest[place % len(honest)] for place, name in enumerate(hostile)}


def announced(partition: Partition, attack: AttackConfig, hostile: Mapping[str, str]) -> Partition:
    """The partition with the numbers of images that hostile clients say they have."""
    if not hostile:
        return partition
    made, true = make_attack(attack.name, attack.strength), partition.label_counts
    counts = true.copy()
    for name, source in hostile.items():
        row = torch.from_numpy(true[partition.names.index(source)])
        counts[partition.names.index(name)] = made.counts(row).numpy()
    return replace(partition, label_counts=counts)
