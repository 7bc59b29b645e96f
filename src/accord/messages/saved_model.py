"""A saved model on disk: its nets, the rule that combines them, and the image format.

model/model.json              class names, image size, normalisation, net, fusion, origin
model/combiner.safetensors    the tensors of the rule
model/net-0.safetensors, …    the nets of the model: one, or one for each client
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self

import torch
from pydantic import Field, model_validator
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from accord.core.config import Config, parse
from accord.core.errors import AccordError
from accord.core.files import read_json, write_atomic, write_json
from accord.core.replacing import new_version, recover
from accord.core.targets import found_at, refuse_folder, settled
from accord.messages.briefing import BriefingHeader, NetHeader

COMBINER = "combiner.safetensors"


class ModelHeader(Config):
    """The content of model.json."""

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
    origin: dict[str, Any] = Field(
        {}, description="run, trial, epoch and clients that the model comes from"
    )

    @model_validator(mode="after")
    def _one_constant_per_channel(self) -> Self:
        if not len(self.mean) == len(self.std) == self.channels:
            raise ValueError(
                f"expected {self.channels} values in mean and std, one per channel; found "
                f"{len(self.mean)} and {len(self.std)}"
            )
        return self

    @classmethod
    def of(
        cls, briefing: BriefingHeader, nets: int, combiner: str, fusion: Any, origin: Any
    ) -> ModelHeader:
        shared = {key: getattr(briefing, key) for key in SHARED}
        return cls(**shared, nets=nets, combiner=combiner, fusion=fusion, origin=origin)


SHARED = ("classes", "height", "width", "channels", "mean", "std", "net")


@dataclass(frozen=True)
class SavedModel:
    """The files of a model; the nets are read one at a time."""

    folder: Path
    header: ModelHeader

    @classmethod
    def load(cls, folder: Path) -> SavedModel:
        recover(settled(folder))
        path = folder / "model.json"
        if not path.is_file():
            raise AccordError(
                f"{folder} is no saved model: it holds no model.json. Save a model with "
                "`accord fuse RUN --fusion NAME --save MODEL` or `accord teacher`."
            )
        return cls(folder, parse(ModelHeader, read_json(path), str(path)))

    def weights(self, index: int) -> dict[str, Tensor]:
        """The weights of one net; all of them are finite."""
        return _read(self.folder / net_file(index))

    def combiner(self) -> dict[str, Tensor]:
        return _read(self.folder / COMBINER)


def save_model(
    folder: Path,
    header: ModelHeader,
    nets: Iterable[dict[str, Tensor]],
    combiner: dict[str, Tensor],
) -> None:
    """Writes a model to `folder`. It replaces an older model there, but no other files."""
    refuse_to_save(folder)
    with new_version(folder) as partial:
        for index, net in enumerate(nets):
            write_atomic(partial / net_file(index), save_tensors(_plain(net)))
        write_atomic(partial / COMBINER, save_tensors(_plain(combiner)))
        write_json(partial / "model.json", header.model_dump(mode="json"))


def refuse_to_save(folder: Path) -> None:
    """Raises AccordError if `folder` cannot be made, or holds anything but a saved model."""
    recover(settled(folder))
    refuse_folder(folder, "--save", "saved model", _stranger)


def _stranger(folder: Path) -> str | None:
    """The name of something in a folder that is no part of a saved model; None if there is none."""
    inside = {path.name: path for path in folder.iterdir()}
    if not inside:
        return None
    try:
        header = parse(ModelHeader, read_json(folder / "model.json"), str(folder))
    except (AccordError, OSError, ValueError):
        return "model.json" if "model.json" in inside else next(iter(inside))
    ours = {"model.json", COMBINER, *map(net_file, range(min(header.nets, len(inside))))}
    strange = (name for name, path in inside.items() if name not in ours or not _is_plain(path))
    return next(strange, None)


def _is_plain(path: Path) -> bool:
    return found_at(path) == "a file"


def refuse_to_train(folder: Path, record: Path) -> None:
    """Raises AccordError if a net that is trained in `record` could not be saved to `folder`."""
    refuse_to_save(folder)
    target = folder.resolve()
    if target in (record.resolve(), *record.resolve().parents):
        raise AccordError(
            f"--save {folder}: the record of the training is written to {record}. Choose another "
            "folder."
        )


def digest_of(weights: dict[str, Tensor]) -> str:
    """A short hash of tensors, which changes when a name or a value changes."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        digest.update(name.encode())
        digest.update(weights[name].contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


def net_file(index: int) -> str:
    return f"net-{index}.safetensors"


def _read(path: Path) -> dict[str, Tensor]:
    try:
        tensors = load_tensors(path.read_bytes())
    except (SafetensorError, OSError) as error:
        raise AccordError(f"{path} is missing or damaged: {error}. Save the model again.") from None
    if not all(bool(torch.isfinite(tensor).all()) for tensor in tensors.values()):
        raise AccordError(f"{path} holds NaN or infinity. Save the model again.")
    return tensors


def _plain(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
