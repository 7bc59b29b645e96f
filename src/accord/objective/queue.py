"""A first-in, first-out queue of a client's own past features."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from accord.objective.negatives import Rows


class Queue(nn.Module):
    """The last `size` unit features with their labels. The queue is part of a client's state."""

    features: Tensor
    labels: Tensor
    filled: Tensor

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.register_buffer("features", torch.zeros(size, width))
        self.register_buffer("labels", torch.zeros(size, dtype=torch.long))
        self.register_buffer("filled", torch.zeros((), dtype=torch.long))

    def rows(self) -> Rows:
        """The current rows, with the newest at the end."""
        start = len(self.labels) - int(self.filled)
        return Rows(self.features[start:], self.labels[start:])

    def push(self, features: Tensor, labels: Tensor) -> None:
        """Adds rows at the end and removes the oldest rows if there are more than `size`."""
        size = len(self.labels)
        if not size:
            return
        self.features = torch.cat([self.features, features.detach()])[-size:]
        self.labels = torch.cat([self.labels, labels])[-size:]
        self.filled = (self.filled + len(labels)).clamp(max=size)
