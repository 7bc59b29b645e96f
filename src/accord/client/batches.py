"""Which images a client's steps see in an epoch: even-sized batches, none a stray image."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def shuffled(labels: Tensor, steps: int, draws: torch.Generator) -> list[Tensor]:
    """Every image once, in random order."""
    return list(torch.tensor_split(torch.randperm(len(labels), generator=draws), steps))


def balanced(labels: Tensor, steps: int, draws: torch.Generator) -> list[Tensor]:
    """As many images as there are, every class the client holds equally often in every batch (±1).

    Small classes are seen several times an epoch, large ones in part; each goes through all its
    images before one comes again.
    """
    held = torch.unique(labels)
    slots = torch.arange(len(labels)) % len(held)  # whose turn it is
    order = torch.empty(len(labels), dtype=torch.long)
    for index, label in enumerate(held):
        own = torch.nonzero(labels == label).flatten()
        turns = int((slots == index).sum())
        rounds = math.ceil(turns / len(own))
        picks = [own[torch.randperm(len(own), generator=draws)] for _ in range(rounds)]
        order[slots == index] = torch.cat(picks)[:turns] if picks else own[:0]
    return list(torch.tensor_split(order, steps))


def class_shares(kind: str, counts: Tensor) -> Tensor:
    """The share of each class in such batches, of a client with n_kc images of class c."""
    seen = counts.float() if kind == "shuffled" else (counts > 0).float()
    return seen / seen.sum()


KINDS = {"shuffled": shuffled, "balanced": balanced}
