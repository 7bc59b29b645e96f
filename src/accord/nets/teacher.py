"""The server's teacher as a fixed net that sees images in its own normalisation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from torch import Tensor, nn

from accord.data.views import renormalising
from accord.messages import TeacherHeader
from accord.nets.net import loaded_net


class TeacherNet(nn.Module):
    """Logits of images that were normalised by `mean` and `std`; always in eval mode."""

    scale: Tensor
    shift: Tensor

    def __init__(
        self,
        header: TeacherHeader,
        classes: int,
        weights: dict[str, Tensor],
        mean: Sequence[float],
        std: Sequence[float],
    ) -> None:
        super().__init__()
        self.net = loaded_net(header.net, len(mean), classes, weights).requires_grad_(False)
        scale, shift = renormalising(mean, std, header.mean, header.std)
        self.register_buffer("scale", scale)
        self.register_buffer("shift", shift)
        self.eval()

    def train(self, mode: bool = True) -> Self:  # noqa: ARG002 - always in eval mode
        return super().train(False)

    def seen(self, images: Tensor) -> Tensor:
        """The images in the normalisation that the teacher was trained with."""
        return images * self.scale[:, None, None] + self.shift[:, None, None]

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.net(self.seen(images))[1]
        return logits
