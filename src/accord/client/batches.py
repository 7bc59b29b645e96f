"""The batches of a client's epoch. Their sizes differ by at most one image."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def shuffled(labels: Tensor, steps: int, draws: torch.Generator) -> list[Tensor]:
    """Every image once, in random order."""
    return list(torch.tensor_split(torch.randperm(len(labels), generator=draws), steps))


def balanced(labels: Tensor, steps: int, draws: torch.Generator) -> list[Tensor]:
    """Batches in which every class that the client holds is equally frequent (±1).

    An epoch has as many images as the client holds. Images of small classes are used several times
    per epoch, and only a part of the images of large classes is used. No image is used again before
    all images of its class have been used.
    """
    held = torch.unique(labels)
    slots = torch.arange(len(labels)) % len(held)  # the class of each position in the epoch
    order = torch.empty(len(labels), dtype=torch.long)
    for index, label in enumerate(held):
        own = torch.nonzero(labels == label).flatten()
        turns = int((slots == index).sum())
        rounds = math.ceil(turns / len(own))
        picks = [own[torch.randperm(len(own), generator=draws)] for _ in range(rounds)]
        order[slots == index] = torch.cat(picks)[:turns] if picks else own[:0]
    return list(torch.tensor_split(order, steps))


def class_shares(kind: str, counts: Tensor) -> Tensor:
    """The share of each class in batches of a `kind`, at a client with n_kc images of class c."""
    seen = counts.float() if kind == "shuffled" else (counts > 0).float()
    return seen / seen.sum()


KINDS = {"shuffled": shuffled, "balanced": balanced}
