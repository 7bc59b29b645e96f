"""∇L_loc and ∇L_al on the parameters that both losses depend on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Gradients:
    """Two gradients on shared parameters, each with one tensor per parameter."""

    parameters: Sequence[nn.Parameter]
    local: Sequence[Tensor]
    align: Sequence[Tensor]

    def gramian(self) -> Tensor:
        """The 2 × 2 matrix of inner products: (local, align) × (local, align)."""
        cross = _dot(self.local, self.align)
        rows = [_dot(self.local, self.local), cross, cross, _dot(self.align, self.align)]
        return torch.stack(rows).reshape(2, 2)

    def summary(self) -> Tensor:
        """(‖∇L_loc‖, ‖∇L_al‖, their cosine); the cosine with a zero gradient is 0."""
        gram = self.gramian()
        norms = gram.diagonal().clamp(min=0).sqrt()
        product = norms.prod()
        cosine = torch.where(product > 0, gram[0, 1] / product, torch.zeros_like(product))
        return torch.stack([norms[0], norms[1], cosine])


def shared_gradients(local: Tensor, align: Tensor, parameters: Iterable[nn.Parameter]) -> Gradients:
    """Both gradients on those of `parameters` that both losses depend on.

    Only the paths between a loss and these parameters are computed, and the graph is kept for the
    backward pass. If L_al depends on prototypes alone, only the head is shared and the cost is
    very small. If it depends on the encoder, the cost is two more backward passes of the encoder.
    """
    reached = _with_gradient(align, list(parameters))
    both = _with_gradient(local, [parameter for parameter, _ in reached])
    of_align = {id(parameter): gradient for parameter, gradient in reached}
    return Gradients(
        parameters=[parameter for parameter, _ in both],
        local=[gradient for _, gradient in both],
        align=[of_align[id(parameter)] for parameter, _ in both],
    )


def _with_gradient(
    loss: Tensor, parameters: list[nn.Parameter]
) -> list[tuple[nn.Parameter, Tensor]]:
    if not parameters or not loss.requires_grad:
        return []
    found = torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True)
    return [(p, g) for p, g in zip(parameters, found, strict=True) if g is not None]


def _dot(a: Sequence[Tensor], b: Sequence[Tensor]) -> Tensor:
    if not a:
        return torch.zeros(())
    return torch.stack([(x * y).sum() for x, y in zip(a, b, strict=True)]).sum()
