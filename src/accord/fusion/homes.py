"""The sites to which images and clients belong, for measurements on each site's own images."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from accord.core.metrics import Tally
from accord.data.images import Indices


@dataclass(frozen=True, eq=False)
class Homes:
    """The names of all sites, the site of each image of a block, and the site of each client.

    A site is an index in `names`; −1 means that an image or a client belongs to no known site.
    """

    names: tuple[str, ...] = ()
    images: Indices | None = None  # None: no image belongs to a site
    clients: tuple[int, ...] = ()  # fewer than there are clients: the others have no site

    def tallies(self, scores: Tensor, labels: Tensor) -> dict[str, Any]:
        """Site → the short tally of `scores` (N, C) on its images; only sites that have some."""
        return {self.names[site]: _tally(scores, labels, mine) for site, mine in self._sites()}

    def own(self, client: int, scores: Tensor, labels: Tensor) -> dict[str, Any]:
        """The same for the scores of a client's own net, on the images of its own site only."""
        home = self.clients[client] if client < len(self.clients) else -1
        return {
            self.names[site]: _tally(scores, labels, mine)
            for site, mine in self._sites()
            if site == home
        }

    def _sites(self) -> Iterator[tuple[int, Tensor]]:
        """The sites that have images in this block, with the positions of these images."""
        if self.images is None:
            return
        for site in np.unique(self.images[self.images >= 0]).tolist():
            yield site, torch.from_numpy(np.flatnonzero(self.images == site))


def _tally(scores: Tensor, labels: Tensor, mine: Tensor) -> dict[str, Any]:
    return Tally.of(scores[mine], labels[mine], scores.shape[1]).short().to_json()


NO_SITES = Homes()
