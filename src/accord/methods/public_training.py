"""What the server trains on its public images: the adapters, and the teacher itself."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from accord.client.adam import Adam
from accord.core.mergenet import MergeNetConfig
from accord.core.randomness import torch_generator
from accord.data.augmentations import augmentations
from accord.data.views import augment
from accord.fusion.base import Scene
from accord.messages import TeacherHeader
from accord.nets.adapters import Enrichment
from accord.nets.net import Net, loaded_net
from accord.nets.teacher import TeacherNet

Tensors = dict[str, Tensor]


def train_adapters(
    enrichment: Enrichment,
    net: Net,
    source: Tensors,
    teacher: TeacherNet | None,
    scene: Scene,
    settings: MergeNetConfig,
) -> list[float]:
    """Minimises the loss of the enriched net on public images over φ. Returns every step's loss.

    `net` has the averaged weights W̄. Its paired layers are replaced by Ŵ = A_φ(W̄, Y) in every
    step, and the gradient of φ is J_φᵀ ∂L/∂Ŵ. No other value of the net is trained. With a
    `teacher`, the targets are its probabilities instead of the labels.
    """
    before = {own: net.get_parameter(own).detach().clone() for own, _ in enrichment.pairs}
    net.requires_grad_(False)
    layers = {own: net.get_parameter(own).requires_grad_() for own in before}
    optimiser = Adam(enrichment.parameters(), settings.lr)
    enrichment.train()
    losses = []
    for step, (images, labels) in enumerate(_batches(scene, settings, "adapter")):
        optimiser.clear()
        enriched = enrichment(before, source)
        with torch.no_grad():
            for own, values in enriched.items():
                layers[own].copy_(values)
        goal = labels if teacher is None else teacher(images).softmax(dim=1)
        loss = F.cross_entropy(net(images)[1], goal)
        gradients = torch.autograd.grad(loss, list(layers.values()))
        torch.autograd.backward([enriched[own] for own in layers], gradients)
        optimiser.step()
        losses.append(loss.item())
        scene.tell((step + 1) / settings.steps)
    enrichment.eval()
    return losses


def train_teacher(
    header: TeacherHeader, weights: Tensors, scene: Scene, settings: MergeNetConfig
) -> Tensors:
    """The teacher after some more steps of cross-entropy on the public images, by Adam."""
    told = scene.briefing.header
    frozen = TeacherNet(header, len(told.classes), weights, told.mean, told.std).to(scene.device)
    net = loaded_net(header.net, told.channels, len(told.classes), weights).to(scene.device).train()
    optimiser = Adam(net.parameters(), settings.lr)
    for images, labels in _batches(scene, settings, "teacher"):
        optimiser.clear()
        loss: Tensor = F.cross_entropy(net(frozen.seen(images))[1], labels)
        torch.autograd.backward(loss)
        optimiser.step()
    return {name: tensor.cpu() for name, tensor in net.state_dict().items()}


def _batches(
    scene: Scene, settings: MergeNetConfig, purpose: str
) -> Iterator[tuple[Tensor, Tensor]]:
    """Augmented public images and their labels, in batches of a new random order of all images.

    A rest that is smaller than a batch is left out, and the images are put in order anew.
    """
    header, public = scene.briefing.header, scene.public
    order = torch_generator(header.seed, "server", purpose, "batches", header.round)
    draws = torch_generator(header.seed, "server", purpose, "views", header.round)
    kind = augmentations.get(header.augment)
    left = torch.empty(0, dtype=torch.int64)
    size = min(settings.batch, len(public))
    for _ in range(settings.steps):
        if len(left) < size:
            left = torch.randperm(len(public), generator=order)
        positions, left = left[:size], left[size:]
        images = public.batch(positions).to(scene.device)
        labels = torch.from_numpy(public.labels[positions.numpy()]).to(scene.device)
        yield augment(images, kind, 1, draws, header.mean, header.std), labels
