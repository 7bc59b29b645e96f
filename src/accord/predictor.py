"""A predictor is a thing a user keeps: nets, the rule they answer by, and what an image must be.

model/model.json              class names, image size, normalisation, net, fusion, where it is from
model/combiner.safetensors    what the rule knows
model/net-0.safetensors, …    the nets it asks: one, or one for each client
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import Field
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from accord.config import Config, parse
from accord.data.images import Bytes
from accord.data.imageset import ImageSet
from accord.data.views import normalise
from accord.errors import AccordError
from accord.files import read_json, write_atomic, write_json
from accord.fusion.base import Combiner, Outputs, combiners
from accord.messages import BriefingHeader, NetHeader
from accord.moments import EVAL_BATCH
from accord.nets.folding import folded
from accord.nets.prototypes import Net, loaded_net


class ModelHeader(Config):
    """What stands in model.json."""

    format: int = Field(1, ge=1, le=1)
    classes: tuple[str, ...] = Field(min_length=2)
    height: int = Field(gt=0)
    width: int = Field(gt=0)
    channels: int = Field(gt=0)
    mean: tuple[float, ...]
    std: tuple[Annotated[float, Field(gt=0)], ...]
    net: NetHeader
    nets: int = Field(ge=1)
    combiner: str
    fusion: dict[str, Any]
    origin: dict[str, Any] = Field({}, description="run, trial, epoch, clients")

    @classmethod
    def of(
        cls, briefing: BriefingHeader, nets: int, combiner: str, fusion: Any, origin: Any
    ) -> ModelHeader:
        shared = {key: getattr(briefing, key) for key in SHARED}
        return cls(**shared, nets=nets, combiner=combiner, fusion=fusion, origin=origin)


SHARED = ("classes", "height", "width", "channels", "mean", "std", "net")


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
        refuse_to_save(folder)
        partial = folder.with_name(folder.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        for index in range(self.header.nets):
            write_atomic(partial / _net_file(index), save_tensors(_plain(self.weights(index))))
        write_atomic(partial / COMBINER, save_tensors(_plain(self.combiner.state_dict())))
        write_json(partial / "model.json", self.header.model_dump(mode="json"))
        if folder.exists():
            shutil.rmtree(folder)
        partial.replace(folder)

    @classmethod
    def load(cls, folder: Path | str) -> Predictor:
        """The model in `folder`, checked before use."""
        folder = Path(folder)
        path = folder / "model.json"
        if not path.is_file():
            raise AccordError(
                f"{folder} is no saved model: expected a model.json there. Save one with "
                "`accord fuse RUN --fusion NAME --save MODEL`."
            )
        header = parse(ModelHeader, read_json(path), str(path))
        combiner = _combiner(header.combiner, folder / COMBINER)

        def weights(index: int) -> dict[str, Tensor]:
            return _read(folder / _net_file(index))

        found = cls(header, combiner, weights)
        for index, net in enumerate(_checked(found, folder)):
            _require_finite(net.state_dict().values(), folder / _net_file(index))
        return found


COMBINER = "combiner.safetensors"
OURS = re.compile(r"model\.json|combiner\.safetensors|net-\d+\.safetensors")


def refuse_to_save(folder: Path) -> None:
    """Raises AccordError unless `folder` can be made, is empty, or holds a model of ours alone."""
    first = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not first.is_dir():
        raise AccordError(f"--save {folder}: {first} is a file. Choose another folder.")
    inside = [path.name for path in folder.iterdir()] if folder.exists() else []
    strange = [name for name in inside if not OURS.fullmatch(name)]
    if inside and not strange:
        try:
            parse(ModelHeader, read_json(folder / "model.json"), str(folder))
        except (AccordError, OSError, ValueError):
            strange = ["model.json"]
    if strange:
        raise AccordError(
            f"--save {folder} holds {strange[0]!r}, which is no part of a saved model and would be "
            "lost. Choose another folder."
        )


def _combiner(name: str, path: Path) -> Combiner:
    kind, tensors = combiners.get(name), _read(path)
    missing = sorted(kind.tensors() ^ tensors.keys())
    if missing:
        raise AccordError(
            f"{path} does not hold what the rule {name!r} knows: {missing[0]!r} is missing or one "
            "too many. Save the model again."
        )
    _require_finite(tensors.values(), path)
    return kind(**tensors)


def _checked(predictor: Predictor, folder: Path) -> Iterator[Net]:
    """The nets, or an error that names the file that does not fit."""
    nets = predictor.nets()
    for index in range(predictor.header.nets):
        try:
            yield next(nets)
        except RuntimeError as error:
            why = str(error).strip().splitlines()[-1].strip()
            raise AccordError(
                f"{folder / _net_file(index)} does not fit model.json: {why} Save the model again."
            ) from None


def _read(path: Path) -> dict[str, Tensor]:
    try:
        return load_tensors(path.read_bytes())
    except (SafetensorError, OSError) as error:
        raise AccordError(f"{path} is missing or damaged: {error}. Save the model again.") from None


def _require_finite(tensors: Iterable[Tensor], path: Path) -> None:
    if not all(bool(torch.isfinite(tensor).all()) for tensor in tensors):
        raise AccordError(f"{path} holds NaN or infinity. Save the model again.")


def _net_file(index: int) -> str:
    return f"net-{index}.safetensors"


def _plain(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
