"""Label skew as in FAFI's released code, in which clients share images."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from accord.data.images import Indices
from accord.data.schemes.base import Pool, register
from accord.data.schemes.dirichlet import Skewed

OVERLAP = 10  # every class is distributed this many times, as in FAFI's released code


@register("dirichlet-overlap")
class DirichletOverlap(Skewed):
    """Client k gets min(N_c, round(10·N_c·p_kc)) images of class c, shuffled for each client.

    FAFI's public code draws p_c ~ Dir(α) over the *clients*, once per class, and its 10 is a plain
    constant, not the number of classes; this scheme does the same. FAFI uses the size of class 0
    for every N_c, which is the same for balanced data; this scheme uses the size of each class.
    Clients share images. A client never holds an image twice. Images that no client draws are not
    used.
    """

    disjoint = False

    def draw(self, pool: Pool, rng: Generator) -> list[Indices]:
        hands: list[list[Indices]] = [[] for _ in range(self.clients)]
        for members in pool.classes:
            wanted = np.rint(OVERLAP * len(members) * self.proportions(rng)).astype(np.int64)
            for hand, count in zip(hands, np.minimum(wanted, len(members)), strict=True):
                hand.append(rng.permutation(members)[:count])
        return [np.concatenate(hand) for hand in hands]
