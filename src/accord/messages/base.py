"""A message: named tensors plus a small JSON header, stored as safetensors.

A message has the same bytes in the local engine's record, on a network and in a file on a USB
stick. Nothing is ever unpickled, and a message is checked before it is used.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from accord.core.config import Config, parse
from accord.core.errors import AccordError
from accord.core.files import write_atomic
from accord.core.reading import json_of, open_plain, read_plain
from accord.core.text import one_line

LONGEST_HEADER = 100_000_000  # bytes; the limit of the safetensors format

NET = "net."  # prefix of the net's own tensors in a message
MAP = NET + "encoder."  # prefix of the tensors of the encoder, or of the map that replaces it
BANK = "bank."  # prefix of public features and their labels
PUBLIC = "public."  # prefix of public images and their labels, which clients train on as well
GIVEN_LABELS = "given_labels"  # labels of the server's own images, from an earlier trial
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
        tensors = _separate(self.tensors)
        sealed = {**content, "seal": seal(content, tensors)}
        return save_tensors(tensors, {"accord": json.dumps(sealed, ensure_ascii=False)})

    @classmethod
    def from_bytes(cls, content: bytes, where: str) -> Self:
        """The message in `content`. Raises AccordError, with `where`, if it is incomplete."""
        try:
            about = _metadata(content)
            tensors = tensors_of(content)
        except ValueError as error:
            raise _not_whole(cls.kind, where, error) from None
        if about.get("kind") != cls.kind:
            found = str(about.get("kind", "no Accord message"))[:80]
            raise AccordError(f"{where}: expected one {cls.kind}, found {found}.")
        try:
            header = parse(cls.header_type, about.get("header"), where)
        except AccordError as error:
            raise AccordError(f"{error} Make or fetch it again.") from None
        said = {key: about.get(key) for key in ("kind", "header")}
        if about.get("seal") != seal(said, tensors):
            raise _not_whole(cls.kind, where, "its content does not fit its checksum")
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
        return cls.from_bytes(read_plain(path), str(path))


def kind_of(path: Path) -> str | None:
    """The kind of the message in a file, read from its header alone; None if it holds none."""
    if not path.is_file():
        return None
    try:
        with open_plain(path) as file:
            start = file.read(8)
            length = int.from_bytes(start, "little")
            if length > LONGEST_HEADER:
                return None
            kind = _metadata(start + file.read(length)).get("kind")
    except (AccordError, OSError, ValueError):
        return None
    return kind if isinstance(kind, str) else None


def is_whole(path: Path, kind: type[Message]) -> bool:
    """Whether a file holds a whole message of this kind."""
    try:
        kind.load(path)
    except (AccordError, OSError):
        return False
    return True


def tensors_of(content: bytes) -> dict[str, Tensor]:
    """The tensors of a safetensors file. Raises ValueError with the reason if it is damaged."""
    try:
        return load_tensors(content)
    except (SafetensorError, KeyError, TypeError, RuntimeError, OverflowError) as error:
        raise ValueError(one_line(str(error)) or type(error).__name__) from None


def seal(content: Any, tensors: dict[str, Tensor]) -> str:
    """A checksum over JSON and tensors: it changes when a name, a shape or a value changes."""
    digest = hashlib.sha256(json.dumps(content, ensure_ascii=False).encode())
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"\n{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _not_whole(kind: str, where: str, why: object) -> AccordError:
    return AccordError(
        f"{where} is not a whole {kind}: {why}. Delete it, and make or fetch it again."
    )


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
    header = json_of(content[8 : 8 + length])
    metadata = header.get("__metadata__") if isinstance(header, dict) else None
    text = metadata.get("accord") if isinstance(metadata, dict) else None
    about = json_of(text) if isinstance(text, str) else {}
    return about if isinstance(about, dict) else {}
