"""One round of FedAvg: the weighted mean of all weights, BN buffers included."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from accord.fusion.base import Merge, Uploads, Weights, client_weights, fusions
from accord.messages import NET, Upload


@fusions.register("average")
class Average(Merge):
    """W = Σ_k w_k W_k, also for BN's running mean and variance (never the first client's)."""

    weights: Weights = Field("count", description="w_k: count (n_k), sqrt (√n_k) or equal")

    def merge(self, uploads: Uploads) -> Upload:
        summaries = uploads.summaries()
        weights = client_weights(summaries, self.weights)
        totals: dict[str, Tensor] = {}
        types: dict[str, torch.dtype] = {}
        for index in range(len(uploads)):
            for name, tensor in uploads.load(index).tensors.items():
                if name.startswith(NET):
                    share = weights[index] * tensor.double()
                    totals[name] = totals[name] + share if name in totals else share
                    types[name] = tensor.dtype
        merged = {name: _cast(total, types[name]) for name, total in totals.items()}
        counts = torch.stack([summary.label_counts for summary in summaries]).sum(dim=0)
        header = summaries[0].header.model_copy(
            update={
                "client": "average",
                "samples": sum(summary.header.samples for summary in summaries),
                "train_accuracy": 0.0,  # nobody has measured it on all clients' images
                "telemetry": (),
            }
        )
        return Upload(header, {**merged, "label_counts": counts})


def _cast(total: Tensor, dtype: torch.dtype) -> Tensor:
    """Counts such as BN's num_batches_tracked are rounded, not cut off."""
    return total.to(dtype) if dtype.is_floating_point else total.round().to(dtype)
