"""Inference: features and logits of images, in eval mode, batch by batch."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from accord.data.imageset import ImageSet
from accord.data.views import normalise
from accord.messages import BriefingHeader
from accord.nets.net import Net

EVAL_BATCH = 256


def forward_all(
    net: Net, data: ImageSet, header: BriefingHeader, device: torch.device
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """(features, logits, labels) of all images, batch by batch, in eval mode, not augmented."""
    net.eval()
    for positions in torch.split(torch.arange(len(data)), EVAL_BATCH):
        with torch.inference_mode():
            images = normalise(data.batch(positions).to(device), header.mean, header.std)
            features, logits = net(images)
        labels = torch.from_numpy(data.labels[positions.numpy()])
        yield features.float().cpu(), logits.float().cpu(), labels


def predicted_labels(
    net: Net, data: ImageSet, header: BriefingHeader, device: torch.device
) -> Tensor:
    """The class with the largest logit of every image, (N) int64."""
    found = [logits.argmax(dim=1) for _, logits, _ in forward_all(net, data, header, device)]
    return torch.cat(found) if found else torch.empty(0, dtype=torch.int64)


def measure_batch_norms(
    net: Net, data: ImageSet, header: BriefingHeader, device: torch.device
) -> None:
    """Replaces the running statistics of all batch norms of `net` by those of these images."""
    norms = [module for module in net.modules() if isinstance(module, nn.BatchNorm2d)]
    for module in norms:
        module.reset_running_stats()
        module.momentum = None  # None: the plain mean over batches
    if not norms:
        return
    net.train()
    for positions in torch.tensor_split(torch.arange(len(data)), -(-len(data) // EVAL_BATCH)):
        with torch.inference_mode():
            net(normalise(data.batch(positions).to(device), header.mean, header.std))
