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
from pydantic import Field
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from accord.config import Config, parse
from accord.errors import AccordError
from accord.files import write_atomic


class NetHeader(Config):
    """Which net to build: the study's backbone and norm, the recipe's head."""

    backbone: str
    norm: Literal["batch", "group"]
    head: str


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
    samples: int = Field(ge=1)
    train_accuracy: float = Field(ge=0, le=1)
    briefing: str  # digest of the briefing it answers
    telemetry: tuple[dict[str, Any], ...] = ()


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
        tensors = {name: t.detach().cpu().contiguous() for name, t in self.tensors.items()}
        # One key: safetensors writes several in an order that changes from process to process.
        content = {"kind": self.kind, "header": self.header.model_dump(mode="json")}
        return save_tensors(tensors, {"accord": json.dumps(content, ensure_ascii=False)})

    @classmethod
    def from_bytes(cls, content: bytes, where: str) -> Self:
        """The message in `content`; anything but a whole one is an AccordError naming `where`."""
        try:
            about = _metadata(content)
            tensors = load_tensors(content)
        except (SafetensorError, ValueError, KeyError) as error:
            raise AccordError(
                f"{where} is not a whole {cls.kind}: {error}. Fetch or make it again."
            ) from None
        if about.get("kind") != cls.kind:
            found = about.get("kind", "no Accord message")
            raise AccordError(f"{where}: expected a {cls.kind}, found {found}.")
        return cls(parse(cls.header_type, about.get("header"), where), tensors)

    def save(self, path: Path) -> int:
        """Writes the message whole; returns its size in bytes."""
        content = self.to_bytes()
        write_atomic(path, content)
        return len(content)

    @classmethod
    def load(cls, path: Path) -> Self:
        return cls.from_bytes(path.read_bytes(), str(path))


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
    """Client → server: weights, label counts, feature and score moments, telemetry."""

    header: UploadHeader
    kind: ClassVar[str] = "upload"
    header_type: ClassVar[type[Config]] = UploadHeader

    def check(self, briefing: Briefing, where: str) -> None:
        """Refuses an upload that does not answer `briefing` or holds unusable tensors."""
        if self.header.briefing != briefing.digest:
            raise AccordError(
                f"{where} answers another briefing ({self.header.briefing[:12]}…, expected "
                f"{briefing.digest[:12]}…): train this client again with this study's briefing."
            )
        for name, expected in briefing.tensors.items():
            if not name.startswith(NET):
                continue
            found = self.tensors.get(name)
            if found is None or found.shape != expected.shape or found.dtype != expected.dtype:
                shown = "nothing" if found is None else f"{tuple(found.shape)} {found.dtype}"
                raise AccordError(
                    f"{where}: tensor {name!r} should be {tuple(expected.shape)} "
                    f"{expected.dtype}, found {shown}. Its net is not the briefing's."
                )
        counts = self.tensors.get("label_counts")
        classes = len(briefing.header.classes)
        if counts is None or counts.shape != (classes,) or bool((counts < 0).any()):
            raise AccordError(f"{where}: label_counts should be {classes} counts of 0 or more.")
        for name, tensor in self.tensors.items():
            if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
                raise AccordError(f"{where}: tensor {name!r} holds NaN or infinity.")


@dataclass(frozen=True)
class State(Message):
    """A client's training between two epochs, to go on from after an interruption."""

    header: StateHeader
    kind: ClassVar[str] = "state"
    header_type: ClassVar[type[Config]] = StateHeader


NET = "net."  # prefix of the net's own tensors in a message


def prefixed(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {prefix + name: tensor for name, tensor in tensors.items()}


def unprefixed(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }
