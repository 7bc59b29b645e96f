"""Named generators: every random draw belongs to a (seed, client, purpose), never to global state.

The name is hashed. Therefore generators with different names are independent, and a result does
not depend on the order in which clients, epochs or purposes are processed.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


def _entropy(seed: int, names: tuple[object, ...]) -> int:
    key = "/".join([str(seed), *(_escaped(str(name)) for name in names)])
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "little")


def _escaped(name: str) -> str:
    """`name` without a slash: a client may be named "a/b", and ("a", "b") is another name."""
    return name.replace("%", "%25").replace("/", "%2F")


def numpy_generator(seed: int, *names: object) -> np.random.Generator:
    """A NumPy generator for (seed, names…), for example `(0, "partition")`."""
    return np.random.default_rng(_entropy(seed, names))


def torch_generator(seed: int, *names: object) -> torch.Generator:
    """A CPU torch generator for (seed, names…), for example `(0, "3", "views", epoch)`."""
    import torch  # imported here, so that commands that need no net do not wait for it

    return torch.Generator().manual_seed(_entropy(seed, names) % 2**63)
