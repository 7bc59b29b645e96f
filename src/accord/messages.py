"""Briefing and Upload: named tensors plus a small JSON header, as safetensors.

The same bytes stand in the local engine's record, in a network message and in a file on a USB
stick. Nothing here is ever unpickled, and what arrives is checked before it is used.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import torch
from pydantic import Field, field_validator
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from accord.config import Config, parse
from accord.errors import AccordError
from accord.files import write_atomic
from accord.sums import check_sums, expected_sums


class NetHeader(Config):
    """Which net to build: the study's backbone and norm, the recipe's head; or its map."""

    backbone: str
    norm: Literal["batch", "group"]
    head: str
    map: dict[str, Any] | None = None  # of fixed features, in the encoder's place


class BriefingHeader(Config):
    """Everything a client needs besides its own data and the tensors."""

    round: int = Field(1, ge=1)
    seed: int
    height: int = Field(gt=0)
    width: int = Field(gt=0)
    channels: int = Field(gt=0)
    classes: tuple[str, ...] = Field(min_length=2)
    mean: tuple[float, ...]
    std: tuple[float, ...]
    augment: str
    net: NetHeader
    training: dict[str, Any]  # the recipe's parts that act at a client
    budget: dict[str, Any]


class UploadHeader(Config):
    """What the server learns of a client besides the tensors."""

    client: str
    epoch: int = Field(ge=0)
    samples: int = Field(ge=1, le=10**12)
    train_accuracy: float | None = Field(None, ge=0, le=1)  # None: nobody has measured it
    briefing: str  # digest of the briefing it answers
    telemetry: tuple[dict[str, Any], ...] = ()

    @field_validator("telemetry")
    @classmethod
    def _numbers(cls, value: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
        for event in value:
            odd = [key for key, v in event.items() if not isinstance(v, int | float | None)]
            if odd or not {"epoch", "seconds"} <= event.keys():
                raise ValueError(f"telemetry is numbers, with epoch and seconds; found {event}")
        return value


class StateHeader(Config):
    """Where an interrupted client stands: an upload-to-be, never sent."""

    client: str
    epoch: int = Field(ge=0)
    briefing: str
    telemetry: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True)
class Message:
    """Tensors and a header; the subclasses say which header."""

    header: Config
    tensors: dict[str, Tensor] = field(repr=False)
    kind: ClassVar[str]
    header_type: ClassVar[type[Config]]

    def to_bytes(self) -> bytes:
        # One key: safetensors writes several in an order that changes from process to process.
        content = {"kind": self.kind, "header": self.header.model_dump(mode="json")}
        about = {"accord": json.dumps(content, ensure_ascii=False)}
        return save_tensors(_separate(self.tensors), about)

    @classmethod
    def from_bytes(cls, content: bytes, where: str) -> Self:
        """The message in `content`; anything but a whole one is an AccordError naming `where`."""
        try:
            about = _metadata(content)
            tensors = load_tensors(content)
        except (SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise AccordError(
                f"{where} is not a whole {cls.kind}: {error}. Delete it and make or fetch it again."
            ) from None
        if about.get("kind") != cls.kind:
            found = about.get("kind", "no Accord message")
            raise AccordError(f"{where}: expected one {cls.kind}, found {found}.")
        return cls(parse(cls.header_type, about.get("header"), where), tensors)

    def save(self, path: Path) -> int:
        """Writes the message whole; returns its size in bytes."""
        content = self.to_bytes()
        write_atomic(path, content)
        return len(content)

    @classmethod
    def load(cls, path: Path) -> Self:
        try:
            content = path.read_bytes()
        except (FileNotFoundError, IsADirectoryError):
            raise AccordError(f"{path}: expected one {cls.kind}, found no such file.") from None
        return cls.from_bytes(content, str(path))


def _separate(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """On the CPU, contiguous, and none sharing memory with another, as the format demands."""
    separate: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in tensors.items():
        plain = tensor.detach().cpu().contiguous()
        storage = plain.untyped_storage().data_ptr()
        separate[name] = plain.clone() if storage in seen else plain
        seen.add(storage)
    return separate


def _metadata(content: bytes) -> dict[str, Any]:
    """What Accord wrote at the start of a safetensors file: 8 bytes of length, then JSON."""
    length = int.from_bytes(content[:8], "little")
    if len(content) < 8 or length > len(content) - 8:
        raise ValueError(f"it ends after {len(content)} bytes")
    header = json.loads(content[8 : 8 + length])
    metadata = header.get("__metadata__", {}) if isinstance(header, dict) else {}
    about = json.loads(metadata.get("accord", "{}")) if isinstance(metadata, dict) else {}
    return about if isinstance(about, dict) else {}


@dataclass(frozen=True)
class Briefing(Message):
    """Server → client: initial weights, anchors, bank; recipe, net, budget and data constants."""

    header: BriefingHeader
    kind: ClassVar[str] = "briefing"
    header_type: ClassVar[type[Config]] = BriefingHeader

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(self.to_bytes()).hexdigest()


@dataclass(frozen=True)
class Upload(Message):
    """Client → server: weights and moments, or sums of fixed features; counts, telemetry."""

    header: UploadHeader
    kind: ClassVar[str] = "upload"
    header_type: ClassVar[type[Config]] = UploadHeader

    def check(self, briefing: Briefing, where: str) -> None:
        """Refuses an upload that does not answer `briefing` or holds unusable tensors."""
        if self.header.briefing != briefing.digest:
            raise AccordError(
                f"{where} answers another briefing ({self.header.briefing[:12]}…, expected "
                f"{briefing.digest[:12]}…): have this client make it again with this briefing."
            )
        expected = expected_upload(briefing)
        for name in sorted(expected.keys() | self.tensors.keys()):
            wanted, found = _shape(expected.get(name)), _shape(self.tensors.get(name))
            if wanted != found:
                raise AccordError(
                    f"{where}: tensor {name!r} should be {wanted}, found {found}. It is not an "
                    "answer to this briefing."
                )
        counts = self.tensors["label_counts"]
        samples = self.header.samples
        whole = bool(((counts >= 0) & (counts <= samples)).all()) and int(counts.sum()) == samples
        if not whole:
            raise AccordError(
                f"{where}: label_counts should be 0 or more and add up to the client's "
                f"{samples} samples; found {counts.tolist()}."
            )
        for name, tensor in self.tensors.items():
            if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
                raise AccordError(f"{where}: tensor {name!r} holds NaN or infinity.")
            if name.endswith(NEVER_NEGATIVE) and bool((tensor < 0).any()):
                raise AccordError(f"{where}: tensor {name!r} holds values below 0.")
        if briefing.header.net.map is not None:
            check_sums(self.tensors, where)
        elif not any(bool(self.tensors[name].any()) for name in expected if _learnt(name)):
            raise AccordError(
                f"{where}: every weight of its net is 0, so it says nothing. Train this client "
                "again, or leave it out (accord fuse RUN --without NAME)."
            )


def _learnt(name: str) -> bool:
    """A weight of the net, not a statistic that its batch norms counted."""
    return name.startswith(NET) and not name.endswith(COUNTED)


def expected_upload(briefing: Briefing) -> dict[str, Tensor]:
    """Name → a tensor of the right shape and type, for everything an upload must hold."""
    classes, width = briefing.tensors[NET + "head.prototypes"].shape
    if briefing.header.net.map is not None:
        return expected_sums(classes, width, briefing.header.training["packing"])
    net = {name: t for name, t in briefing.tensors.items() if name.startswith(NET)}
    return {
        **net,
        "label_counts": torch.empty(classes, dtype=torch.int64, device="meta"),
        "feature_mean": torch.empty(width, device="meta"),
        "feature_var": torch.empty(width, device="meta"),
        "class_means": torch.empty(classes, width, device="meta"),
        "score_mean": torch.empty(classes, device="meta"),
        "score_std": torch.empty(classes, device="meta"),
        "score_own": torch.empty(classes, device="meta"),
        "score_rotated": torch.empty(classes, device="meta"),
        "noise_feature": torch.empty(width, device="meta"),
    }


def _shape(tensor: Tensor | None) -> str:
    if tensor is None:
        return "absent"
    return f"{tuple(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"


class FeaturesHeader(Config):
    """Where encoded images come from."""

    briefing: str  # digest of the briefing whose answers encoded them


@dataclass(frozen=True)
class Features(Message):
    """Public images as the server's teacher sees them: unit features and labels."""

    header: FeaturesHeader
    kind: ClassVar[str] = "features"
    header_type: ClassVar[type[Config]] = FeaturesHeader


class MapHeader(Config):
    """Whose values they are."""

    map: dict[str, Any]


@dataclass(frozen=True)
class MapValues(Message):
    """The values of a map of fixed features, drawn by the server."""

    header: MapHeader
    kind: ClassVar[str] = "map"
    header_type: ClassVar[type[Config]] = MapHeader


@dataclass(frozen=True)
class State(Message):
    """A client's training between two epochs, to go on from after an interruption."""

    header: StateHeader
    kind: ClassVar[str] = "state"
    header_type: ClassVar[type[Config]] = StateHeader


NEVER_NEGATIVE = ("running_var", "feature_var", "score_std", "scatter_spread")
COUNTED = ("running_mean", "running_var", "num_batches_tracked")
NET = "net."  # prefix of the net's own tensors in a message
MAP = NET + "encoder."  # of the encoder's, or of the map's in its place
BANK = "bank."  # of public features and their labels


def prefixed(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {prefix + name: tensor for name, tensor in tensors.items()}


def unprefixed(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }
