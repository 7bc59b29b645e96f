"""A predictor: nets, the rule that combines their outputs, and the expected image format."""

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
    """A map from images to scores; softmax(scores) are the confidences.

    `weights(k)` returns the weights of the k-th net. Nets are loaded one at a time, so that the
    memory does not grow with the number of clients.
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
        """(N, C): the scores in eval mode. The scores of an image never depend on other images.

        `images` are uint8 (N, H, W, channels), in the size that the model expects.
        """
        if not isinstance(images, ImageSet):
            images = self._as_set(images)
        total: Tensor | None = None
        for index, net in enumerate(self.nets()):
            vote = torch.cat([self.combiner.vote(index, o) for o in self._outputs(net, images)])
            total = vote if total is None else total + vote
        if total is None:
            raise ValueError("a predictor needs at least one net; found none")
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
        """Writes the folder at once. It replaces an older model there, but no other files."""
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
            f"{saved.folder / COMBINER} does not hold the tensors of the rule "
            f"{saved.header.combiner!r}: {missing[0]!r} is missing or should not be there. Save "
            "the model again."
        )
    return kind(**tensors)


def _checked(predictor: Predictor, saved: SavedModel) -> Iterator[Net]:
    """The nets. A net that does not fit raises an error that names its file."""
    nets = predictor.nets()
    for index in range(predictor.header.nets):
        try:
            yield next(nets)
        except (AccordError, RuntimeError) as error:
            why = str(error).strip().splitlines()[-1].strip()
            if str(saved.folder) in why:
                raise
            raise AccordError(
                f"{saved.folder / net_file(index)} does not fit model.json: {why} Save the model "
                "again."
            ) from None
