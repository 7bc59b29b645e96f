"""Votes of all clients side by side, for rules that need more than their sum.

A combiner adds votes. If client k's vote is at place k of a longer row and 0 elsewhere, the sum is
the row of all votes. Such a row has K times as many numbers as a vote.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def placed(vote: Tensor, client: int, clients: int) -> Tensor:
    """(N, C) → (N, K·C): the vote at the place of its client, and 0 elsewhere."""
    width = vote.shape[1]
    return F.pad(vote, (client * width, (clients - 1 - client) * width))


def median_among(total: Tensor, held: Tensor, otherwise: float) -> Tensor:
    """(N, K·C) → (N, C): the median of each class over the clients k with `held[k, c]`.

    Of an even number of clients, it is the mean of the two middle values. A class without such a
    client gets `otherwise`.
    """
    votes = total.reshape(-1, *held.shape).masked_fill(~held, torch.inf)
    ordered = votes.sort(dim=1).values  # those of the others are at the end
    count = held.sum(dim=0)
    middle = torch.stack([(count - 1).clamp(min=0) // 2, count // 2])
    # shape[0] and not len: an exported model must accept any number of images.
    chosen = torch.gather(ordered, 1, middle.expand(total.shape[0], -1, -1)).mean(dim=1)
    return chosen.masked_fill(count == 0, otherwise)
