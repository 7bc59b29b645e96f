"""A message: named tensors plus a small JSON header, stored as safetensors.

A message has the same bytes in the local engine's record, on a network and in a file on a USB
stick. Nothing is ever unpickled, and a message is checked before it is used.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from accord.core.config import Config, parse
from accord.core.errors import AccordError
from accord.core.files import write_atomic

LONGEST_HEADER = 100_000_000  # bytes; the limit of the safetensors format

NET = "net."  # prefix of the net's own tensors in a message
MAP = NET + "encoder."  # prefix of the tensors of the encoder, or of the map that replaces it
BANK = "bank."  # prefix of public features and their labels
TEACHER = "teacher."  # prefix of the weights of the teacher's net
SOURCE = "source."  # prefix of the teacher's layers that adapters read at the clients
ADAPTER = "adapter."  # prefix of the values of adapters (MergeNet)
CONTROL = "control."  # prefix of control variates (SCAFFOLD), one for each trained weight


@dataclass(frozen=True)
class Message:
    """Tensors and a header; each subclass has its own type of header."""

    header: Config
    tensors: dict[str, Tensor] = field(repr=False)
    kind: ClassVar[str]
    header_type: ClassVar[type[Config]]

    def to_bytes(self) -> bytes:
        # There is only one key: safetensors writes several in an order that varies by process.
        content = {"kind": self.kind, "header": self.header.model_dump(mode="json")}
        about = {"accord": json.dumps(content, ensure_ascii=False)}
        return save_tensors(_separate(self.tensors), about)

    @classmethod
    def from_bytes(cls, content: bytes, where: str) -> Self:
        """The message in `content`. Raises AccordError, with `where`, if it is incomplete."""
        try:
            about = _metadata(content)
            tensors = load_tensors(content)
        except (SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise AccordError(
                f"{where} is not a whole {cls.kind}: {error}. Delete it, and make or fetch it "
                "again."
            ) from None
        if about.get("kind") != cls.kind:
            found = about.get("kind", "no Accord message")
            raise AccordError(f"{where}: expected one {cls.kind}, found {found}.")
        try:
            header = parse(cls.header_type, about.get("header"), where)
        except AccordError as error:
            raise AccordError(f"{error} Make or fetch it again.") from None
        return cls(header, tensors)

    def save(self, path: Path) -> int:
        """Writes the message atomically and returns its size in bytes."""
        content = self.to_bytes()
        write_atomic(path, content)
        return len(content)

    @classmethod
    def load(cls, path: Path) -> Self:
        if not path.is_file():  # reading a pipe or a device might never end
            found = "something that is no plain file" if path.exists() else "no such file"
            raise AccordError(f"{path}: expected one {cls.kind}, found {found}.")
        content = path.read_bytes()
        return cls.from_bytes(content, str(path))


def kind_of(path: Path) -> str | None:
    """The kind of the message in a file, read from its header alone; None if it holds none."""
    if not path.is_file():
        return None
    try:
        with path.open("rb") as file:
            start = file.read(8)
            length = int.from_bytes(start, "little")
            if length > LONGEST_HEADER:
                return None
            kind = _metadata(start + file.read(length)).get("kind")
    except (OSError, ValueError, TypeError, RecursionError):
        return None
    return kind if isinstance(kind, str) else None


def is_whole(path: Path, kind: type[Message]) -> bool:
    """Whether a file holds a whole message of this kind."""
    try:
        kind.load(path)
    except (AccordError, OSError):
        return False
    return True


def prefixed(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {prefix + name: tensor for name, tensor in tensors.items()}


def unprefixed(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }


def _separate(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors on the CPU, contiguous and without shared memory, as safetensors requires."""
    separate: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in tensors.items():
        plain = tensor.detach().cpu().contiguous()
        storage = plain.untyped_storage().data_ptr()
        separate[name] = plain.clone() if storage in seen else plain
        seen.add(storage)
    return separate


def _metadata(content: bytes) -> dict[str, Any]:
    """Accord's part of the header of a safetensors file: 8 bytes of length, then JSON."""
    length = int.from_bytes(content[:8], "little")
    if len(content) < 8 or length > len(content) - 8:
        raise ValueError(f"it ends after {len(content)} bytes")
    header = json.loads(content[8 : 8 + length])
    metadata = header.get("__metadata__", {}) if isinstance(header, dict) else {}
    about = json.loads(metadata.get("accord", "{}")) if isinstance(metadata, dict) else {}
    return about if isinstance(about, dict) else {}
