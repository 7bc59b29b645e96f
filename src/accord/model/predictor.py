"""A predictor is a thing a user keeps: nets, the rule they answer by, and what an image must be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from accord.core.errors import AccordError
from accord.data.images import Bytes
from accord.data.imageset import ImageSet
from accord.data.views import normalise
from accord.fusion.base import Combiner, Outputs, combiners
from accord.messages.saved_model import COMBINER, ModelHeader, SavedModel, net_file, save_model
from accord.nets.folding import folded
from accord.nets.inference import EVAL_BATCH
from accord.nets.net import Net, loaded_net


@dataclass(frozen=True)
class Predictor:
    """Images in, scores out; softmax(scores) are the confidences.

    `weights(k)` gives the k-th net's: they are loaded one at a time, so memory does not grow with
    the number of clients.
    """

    header: ModelHeader
    combiner: Combiner
    weights: Callable[[int], dict[str, Tensor]]

    def nets(self) -> Iterator[Net]:
        header = self.header
        for index in range(header.nets):
            net = loaded_net(header.net, header.channels, len(header.classes), self.weights(index))
            yield folded(net).to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def scores(self, images: ImageSet | Bytes) -> Tensor:
        """(N, C), in eval mode: what is said of an image never depends on the others.

        `images`: uint8 (N, H, W, channels), of the size the model expects.
        """
        if not isinstance(images, ImageSet):
            images = self._as_set(images)
        total: Tensor | None = None
        for index, net in enumerate(self.nets()):
            vote = torch.cat([self.combiner.vote(index, o) for o in self._outputs(net, images)])
            total = vote if total is None else total + vote
        if total is None:
            raise ValueError("a predictor has at least one net")
        return self.combiner.decide(total)

    def _as_set(self, pixels: Bytes) -> ImageSet:
        header = self.header
        expected = (header.height, header.width, header.channels)
        if pixels.dtype != np.uint8 or pixels.shape[1:] != expected:
            raise AccordError(
                f"expected uint8 images of shape (N, {', '.join(map(str, expected))}); found "
                f"{pixels.dtype} {pixels.shape}."
            )
        return ImageSet(pixels, np.arange(len(pixels)), np.zeros(len(pixels), dtype=np.int64))

    def _outputs(self, net: Net, images: ImageSet) -> Iterator[Outputs]:
        for positions in torch.split(torch.arange(len(images)), EVAL_BATCH):
            with torch.inference_mode():
                seen = normalise(images.batch(positions), self.header.mean, self.header.std)
                yield Outputs(*net(seen))

    # --- on disk -------------------------------------------------------------------------------

    def save(self, folder: Path) -> None:
        """Writes the folder whole; an older model there, and nothing else, is replaced."""
        nets = (self.weights(index) for index in range(self.header.nets))
        save_model(folder, self.header, nets, self.combiner.state_dict())

    @classmethod
    def load(cls, folder: Path | str) -> Predictor:
        """The model in `folder`, checked before use."""
        saved = SavedModel.load(Path(folder))
        found = cls(saved.header, _combiner(saved), saved.weights)
        for _ in _checked(found, saved):
            pass
        return found


def _combiner(saved: SavedModel) -> Combiner:
    kind, tensors = combiners.get(saved.header.combiner), saved.combiner()
    missing = sorted(kind.tensors() ^ tensors.keys())
    if missing:
        raise AccordError(
            f"{saved.folder / COMBINER} does not hold what the rule {saved.header.combiner!r} "
            f"knows: {missing[0]!r} is missing or one too many. Save the model again."
        )
    return kind(**tensors)


def _checked(predictor: Predictor, saved: SavedModel) -> Iterator[Net]:
    """The nets, or an error that names the file that does not fit."""
    nets = predictor.nets()
    for index in range(predictor.header.nets):
        try:
            yield next(nets)
        except RuntimeError as error:
            why = str(error).strip().splitlines()[-1].strip()
            raise AccordError(
                f"{saved.folder / net_file(index)} does not fit model.json: {why} Save the model "
                "again."
            ) from None
