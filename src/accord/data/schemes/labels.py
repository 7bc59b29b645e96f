"""A fixed number of labels per client."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator
from pydantic import Field

from accord.core.errors import AccordError
from accord.data.images import Indices
from accord.data.schemes.base import Counted, Pool, register


@register("labels")
class Labels(Counted):
    """m labels per client; the images of a class are divided evenly among the clients that hold it.

    Every client takes the classes that the fewest clients hold so far, in random order if several
    are equal. If clients · m is at least the number of classes, every class is held. Otherwise the
    classes that no client holds are not used.
    """

    labels: int = Field(2, ge=1, description="m, the number of labels per client")

    def draw(self, pool: Pool, rng: Generator) -> list[Indices]:
        if self.labels > len(pool.classes):
            raise AccordError(
                f"partition scheme 'labels': expected at most {len(pool.classes)} labels per "
                f"client, as many as the data has classes; found {self.labels}. Use a smaller "
                "`labels`."
            )
        holders: list[list[int]] = [[] for _ in pool.classes]
        for client in range(self.clients):
            order = rng.permutation(len(holders)).tolist()
            for row in sorted(order, key=lambda row: len(holders[row]))[: self.labels]:
                holders[row].append(client)
        hands: list[list[Indices]] = [[] for _ in range(self.clients)]
        for members, clients in zip(pool.classes, holders, strict=True):
            shuffled = rng.permutation(members)
            for place, client in enumerate(clients):
                hands[client].append(shuffled[place :: len(clients)])
        return [np.concatenate(hand) for hand in hands]

    def uses_all(self, pool: Pool) -> bool:
        return self.clients * self.labels >= len(pool.classes)
