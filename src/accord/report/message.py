"""Explains a file: what a briefing, an upload or a model holds, and what an upload reveals."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor

from accord.core.errors import AccordError
from accord.core.reading import read_plain
from accord.core.text import printable
from accord.federation.pooled_sums import Total
from accord.messages import (
    ADAPTER,
    BANK,
    CONTROL,
    NET,
    PUBLIC,
    SOURCE,
    TEACHER,
    Briefing,
    Features,
    MapValues,
    Memory,
    Message,
    ServerState,
    State,
    SummingSpec,
    Upload,
    expected_upload,
    kind_of,
)
from accord.messages.saved_model import SavedModel
from accord.messages.server_state import SERVER
from accord.report.revealed import revealed

Facts = dict[str, Any]
PRIVATE = (ServerState, State, Memory, Features, MapValues, Total)
# Prefix of tensors → what they are. The first that fits counts.
CONTENT = {
    SERVER: "the server's own values",
    NET: "the net",
    BANK: "the bank of public features",
    PUBLIC: "public images and their labels",
    TEACHER: "the teacher's net",
    SOURCE: "the teacher's layers for adapters",
    ADAPTER: "the adapter",
    CONTROL: "control variates",
    "anchors": "anchors",
    "label_counts": "number of images of each class",
    "": "statistics",
}


def described(path: Path) -> list[str]:
    """The explanation of a file as lines of text."""
    lines: list[str] = []
    for key, value in facts_of(path).items():
        if isinstance(value, dict):
            lines.append(f"{key}:")
            wide = max((len(str(name)) for name in value), default=0)
            lines += [f"  {name:<{wide}}  {_text(one)}" for name, one in value.items()]
        elif isinstance(value, list):
            lines.append(f"{key}:")
            lines += [f"  * {_text(one)}" for one in value]
        else:
            lines.append(f"{key}: {_text(value)}")
    return [printable(line) for line in lines]


def described_json(path: Path) -> str:
    return json.dumps(facts_of(path), indent=1)  # with ASCII only: names may hold escapes


def facts_of(path: Path) -> Facts:
    """Everything that is told about a file."""
    if path.is_dir():
        return _model(path)
    readers: dict[str, tuple[type[Message], Callable[[Any], Facts]]] = {
        Briefing.kind: (Briefing, _briefing),
        Upload.kind: (Upload, _upload),
        **{kind.kind: (kind, _private) for kind in PRIVATE},
    }
    kind = kind_of(path) if path.is_file() else None
    if kind not in readers:
        found = "a file of another kind" if path.exists() else "nothing"
        raise AccordError(
            f"{path}: expected a briefing, an upload or the folder of a saved model; found {found}."
        )
    message_type, explain = readers[kind]
    message = message_type.load(path)
    content = read_plain(path)
    return {
        "file": f"{path}, {'an' if kind == Upload.kind else 'a'} {kind}",
        "bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
        **explain(message),
        "tensors": contents(message.tensors),
    }


def contents(tensors: dict[str, Tensor]) -> Facts:
    """What the tensors are, with their number and bytes."""
    groups: dict[str, list[Tensor]] = {}
    for name, tensor in tensors.items():
        about = next(text for prefix, text in CONTENT.items() if name.startswith(prefix))
        groups.setdefault(about, []).append(tensor)
    return {
        about: f"{sum(t.numel() for t in found):,} numbers, {_size(sum(map(_bytes, found)))}"
        for about, found in groups.items()
    }


def _briefing(message: Briefing) -> Facts:
    header = message.header
    asked, budget = header.training, header.budget
    told: Facts = {}
    if header.origin is not None:
        told |= {"study": header.origin.study, "recipe": header.origin.recipe}
        told["fusion"] = ", ".join(str(one.get("as")) for one in header.origin.fusions)
    told |= {
        "round": f"{header.round} of {header.rounds}",
        "seed": header.seed,
        "classes": f"{len(header.classes)}: {', '.join(header.classes)}",
        "images": f"{header.height}×{header.width}×{header.channels}, augmentation "
        f"{header.augment}, mean {_few(header.mean)}, std {_few(header.std)}",
    }
    if isinstance(asked, SummingSpec):
        told["clients"] = f"sum fixed features of their images, packed as {asked.packing}"
    else:
        told["clients"] = (
            f"train {header.net.backbone} ({header.net.norm} norm, head {header.net.head}) for "
            f"{budget.epochs} epochs, batch {budget.batch}, {budget.rates}"
        )
        told["local loss"] = ", ".join(asked.objective) or "none"
        if asked.align:
            told["alignment"] = ", ".join(
                f"{name} (balance {spec['balance'].get('use')})"
                for name, spec in asked.align.items()
            )
    size = sum(_bytes(tensor) for tensor in expected_upload(message).values())
    return {
        **told,
        "an upload holds": f"about {_size(size)}; `accord show` explains what it reveals",
    }


def _upload(message: Upload) -> Facts:
    header = message.header
    counts = message.tensors.get("label_counts")
    accuracy = header.train_accuracy
    return {
        "client": header.client,
        "answers the briefing": header.briefing,
        "after epoch": header.epoch,
        "images": header.samples,
        "images of each class": ", ".join(map(str, counts.tolist())) if counts is not None else "–",
        "accuracy on its own images": "not measured" if accuracy is None else f"{accuracy:.1%}",
        "what it reveals": revealed(message),
    }


def _private(message: Message) -> Facts:
    header = message.header.model_dump(mode="json")
    plain = {key: value for key, value in header.items() if isinstance(value, int | str)}
    return {**plain, "use": "a file that its owner keeps; it is not meant to be sent"}


def _model(folder: Path) -> Facts:
    saved = SavedModel.load(folder)
    header = saved.header
    nets = [saved.weights(index) for index in range(header.nets)]
    files = sorted(path for path in folder.iterdir() if path.is_file())
    digest = hashlib.sha256(b"".join(hashlib.sha256(p.read_bytes()).digest() for p in files))
    net = "a closed form" if header.net.map is not None else header.net.backbone
    return {
        "file": f"{folder}, a saved model",
        "bytes": sum(path.stat().st_size for path in files),
        "sha256": digest.hexdigest(),
        "classes": f"{len(header.classes)}: {', '.join(header.classes)}",
        "images": f"{header.height}×{header.width}×{header.channels}",
        "fusion": str(header.fusion.get("use")),
        "nets": f"{header.nets} × {net}, {sum(t.numel() for t in nets[0].values()):,} numbers each",
        "origin": {key: _few(value) for key, value in header.origin.items()},
    }


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 100_000 else f"{count:,} bytes"


def _few(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _text(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
