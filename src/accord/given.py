"""What a briefing gives a client's loss terms to look at, the same at every step."""

from __future__ import annotations

from typing import TypedDict

import torch
from torch import Tensor

from accord.messages import BANK
from accord.nets.prototypes import Net
from accord.objective.negatives import Rows
from accord.objective.reference import Reference


class Given(TypedDict):
    """The fields of a `Batch` that never change."""

    held: Tensor
    anchors: Tensor | None
    first_prototypes: Tensor
    bank: Rows | None
    reference: Reference | None


def given(tensors: dict[str, Tensor], shares: Tensor, net: Net, device: torch.device) -> Given:
    """From a briefing's tensors, the shares of classes in a client's batches, and its first net."""
    shares = shares.to(device)
    anchors, bank = tensors.get("anchors"), None
    if BANK + "labels" in tensors:
        bank = Rows(tensors[BANK + "features"].to(device), tensors[BANK + "labels"].to(device))
    return {
        "held": shares > 0,
        "anchors": None if anchors is None else anchors.to(device),
        "first_prototypes": net.head.prototypes.detach().clone(),
        "bank": bank,
        "reference": None if bank is None else Reference(bank, shares),
    }
