"""What a briefing gives a client's loss terms to look at, the same at every step."""

from __future__ import annotations

from typing import TypedDict

import torch
from torch import Tensor

from accord.batches import class_shares
from accord.messages import BANK, Briefing
from accord.nets.prototypes import Net
from accord.objective.negatives import Rows
from accord.objective.reference import Reference


class Given(TypedDict):
    """The fields of a `Batch` that never change."""

    label_counts: Tensor
    anchors: Tensor | None
    first_prototypes: Tensor
    bank: Rows | None
    reference: Reference | None


def given(briefing: Briefing, label_counts: Tensor, net: Net, device: torch.device) -> Given:
    """To a client with n_c images of class c, and with `net` before its first step."""
    tensors, counts = briefing.tensors, label_counts.to(device)
    shares = class_shares(briefing.header.training["batches"], counts)
    anchors, bank = tensors.get("anchors"), None
    if BANK + "labels" in tensors:
        bank = Rows(tensors[BANK + "features"].to(device), tensors[BANK + "labels"].to(device))
    return {
        "label_counts": counts,
        "anchors": None if anchors is None else anchors.to(device),
        "first_prototypes": net.head.prototypes.detach().clone(),
        "bank": bank,
        "reference": None if bank is None else Reference(bank, shares),
    }
