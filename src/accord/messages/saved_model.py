"""A saved model on disk: its nets, the rule that combines them, and the image format.

model/model.json              class names, image size, normalisation, net, fusion, origin; checksums
model/combiner.safetensors    the tensors of the rule
model/net-0.safetensors, …    the nets of the model: one, or one for each client
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
from pydantic import Field, model_validator
from safetensors.torch import save as save_tensors
from torch import Tensor

from accord.core.config import Config, parse
from accord.core.errors import AccordError
from accord.core.files import read_json, write_atomic, write_json
from accord.core.reading import read_plain
from accord.core.replacing import new_version, recover
from accord.core.targets import found_at, refuse_folder, settled
from accord.messages.base import seal, tensors_of
from accord.messages.briefing import LARGEST, MOST_CLASSES, BriefingHeader, Mean, NetHeader, Std

COMBINER = "combiner.safetensors"
MOST_NETS = 100_000  # of a model
AGAIN = "Save the model again, or restore it from a copy."


class ModelHeader(Config):
    """The content of model.json."""

    format: int = Field(2, ge=2, le=2)
    classes: tuple[str, ...] = Field(min_length=2, max_length=MOST_CLASSES)
    height: int = Field(gt=0, le=LARGEST)
    width: int = Field(gt=0, le=LARGEST)
    channels: int = Field(gt=0, le=3)
    mean: Mean
    std: Std
    net: NetHeader
    nets: int = Field(ge=1, le=MOST_NETS)
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
    """The files of a model; the nets are read one at a time. `seals`: file → its checksum."""

    folder: Path
    header: ModelHeader
    seals: dict[str, str]

    @classmethod
    def load(cls, folder: Path) -> SavedModel:
        recover(settled(folder))
        path = folder / "model.json"
        if not path.is_file():
            raise AccordError(
                f"{folder} is no saved model: it holds no model.json. Save a model with "
                "`accord fuse RUN --fusion NAME --save MODEL` or `accord teacher`."
            )
        header, seals = _opened(path)
        return cls(folder, header, seals)

    def weights(self, index: int) -> dict[str, Tensor]:
        """The weights of one net; all of them are finite."""
        return self._read(net_file(index))

    def combiner(self) -> dict[str, Tensor]:
        return self._read(COMBINER)

    def _read(self, name: str) -> dict[str, Tensor]:
        path = self.folder / name
        try:
            content = read_plain(path)
            tensors = tensors_of(content)
        except (AccordError, ValueError) as error:
            why = str(error).rstrip(".")
            raise AccordError(f"{path} is missing or damaged: {why}. {AGAIN}") from None
        if self.seals.get(name) != hashlib.sha256(content).hexdigest():
            raise AccordError(f"{path} does not fit the checksum in model.json. {AGAIN}")
        if not all(bool(torch.isfinite(tensor).all()) for tensor in tensors.values()):
            raise AccordError(f"{path} holds NaN or infinity. {AGAIN}")
        return tensors


def _opened(path: Path) -> tuple[ModelHeader, dict[str, str]]:
    """The header in model.json, whose own checksum must fit, and the checksums of the files."""
    found = read_json(path)
    if not isinstance(found, dict):
        raise AccordError(f"{path} is damaged: expected a mapping. {AGAIN}")
    said = {key: value for key, value in found.items() if key not in ("files", "seal")}
    header = parse(ModelHeader, said, str(path))
    files = found.get("files")
    if not isinstance(files, dict) or found.get("seal") != seal([said, files], {}):
        raise AccordError(
            f"{path} does not fit its own checksum: a value was changed after the model was saved. "
            f"{AGAIN}"
        )
    return header, {name: str(digest) for name, digest in files.items()}


def save_model(
    folder: Path,
    header: ModelHeader,
    nets: Iterable[dict[str, Tensor]],
    combiner: dict[str, Tensor],
) -> None:
    """Writes a model to `folder`. It replaces an older model there, but no other files."""
    refuse_to_save(folder)
    with new_version(folder) as partial:
        files = {}
        for index, net in enumerate(nets):
            files[net_file(index)] = _write(partial / net_file(index), net)
        files[COMBINER] = _write(partial / COMBINER, combiner)
        said = header.model_dump(mode="json")
        sealed = {**said, "files": files, "seal": seal([said, files], {})}
        write_json(partial / "model.json", sealed)


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
        header = _opened(folder / "model.json")[0]
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


def _write(path: Path, tensors: dict[str, Tensor]) -> str:
    """Writes tensors and returns the checksum of the file."""
    content = save_tensors(_plain(tensors))
    write_atomic(path, content)
    return hashlib.sha256(content).hexdigest()


def _plain(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
