"""Merging of the prototypes of all clients into one prototype per class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from accord.fusion.base import Summary

Source = Literal["head", "means"]
Merging = Literal["mean", "count", "reliability", "confidence"]
SOURCE = "P_k: the client's learnt prototypes (head), or its mean features of each class (means)"
MERGING = (
    "P[c] = Σ_k v_kc P_k[c], where v_kc is equal (mean), n_kc (count), n_kc × train accuracy "
    "(reliability), or n_kc × the standardised score of class c at the client (confidence)"
)


def prototypes_of(clients: Sequence[Summary], source: Source) -> Tensor:
    """P_k of every client, (K, C, d)."""
    if source == "means":
        return torch.stack([client.class_means for client in clients])
    return torch.stack([client.prototypes for client in clients])


def merge_prototypes(
    each: Tensor, clients: Sequence[Summary], source: Source, merging: Merging
) -> Tensor:
    """Σ_k v_kc P_k[c] with Σ_k v_kc = 1; the plain mean for a class whose weights are all 0."""
    votes = _votes(clients, merging)
    if merging == "mean" and source == "means":
        votes = _counts(clients).clamp(
            max=1
        )  # a client has no mean of a class that it does not hold
    votes[:, votes.sum(dim=0) == 0] = 1
    return torch.einsum("kc,kcd->cd", (votes / votes.sum(dim=0)).float(), each)


def _votes(clients: Sequence[Summary], merging: Merging) -> Tensor:
    counts = _counts(clients)
    if merging == "mean":
        return torch.ones_like(counts)
    if merging == "count":
        return counts
    if merging == "reliability":
        accuracy = torch.tensor([client.header.train_accuracy or 0.0 for client in clients])
        return counts * accuracy.double()[:, None]
    return counts * torch.stack([_distinctness(client) for client in clients])


def _distinctness(client: Summary) -> Tensor:
    """By how many standard deviations images of class c score above the client's mean score."""
    own, mean, spread = (
        client.tensors[name].double() for name in ("score_own", "score_mean", "score_std")
    )
    return ((own - mean) / spread.clamp(min=1e-2)).clamp(min=0)


def _counts(clients: Sequence[Summary]) -> Tensor:
    return torch.stack([client.label_counts for client in clients]).double()
