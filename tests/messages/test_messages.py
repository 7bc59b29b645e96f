"""Briefings and uploads as bytes: the same everywhere, whole or refused."""

from __future__ import annotations

import contextlib
import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from accord.core.budget import Budget
from accord.core.errors import AccordError
from accord.messages import (
    Briefing,
    BriefingHeader,
    Message,
    NetHeader,
    State,
    StateHeader,
    TrainingSpec,
    Upload,
    UploadHeader,
    prefixed,
    unprefixed,
)

HEADER = UploadHeader(
    client="Klinik Süd",
    epoch=3,
    samples=7,
    train_accuracy=0.1 + 0.2,
    briefing="ab12",
    telemetry=({"epoch": 1, "loss": 1 / 3, "loss_align": None, "clipped": 0.0},),
)
TENSORS = {
    "net.weight": torch.arange(6, dtype=torch.float32).reshape(2, 3) / 7,
    "half": torch.tensor([1.5, -2.25], dtype=torch.bfloat16),
    "double": torch.tensor([1 / 3], dtype=torch.float64),
    "label_counts": torch.tensor([2**53 + 1, 0, 4]),
    "held": torch.tensor([True, False, True]),
    "empty": torch.zeros(0, 3),
    "scalar": torch.tensor(5),
}


def upload(**tensors: Tensor) -> Upload:
    return Upload(HEADER, tensors or dict(TENSORS))


def briefing() -> Briefing:
    header = BriefingHeader(
        seed=1,
        height=8,
        width=10,
        channels=1,
        classes=("cat", "dog"),
        mean=(0.1,),
        std=(0.3,),
        augment="digits",
        net=NetHeader(backbone="conv4", norm="batch", head="prototypes"),
        training=TrainingSpec(objective={"contrast": {"temperature": 0.07}}, views=2),
        budget=Budget(epochs=2, lr=0.05, checkpoints=(1, 2)),
    )
    return Briefing(header, {"net.weight": torch.linspace(0, 1, 5)})


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert set(found) == set(expected)
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype
        assert found[name].shape == tensor.shape
        assert torch.equal(found[name], tensor)


def raw(header: Any, data: bytes = b"") -> bytes:
    """A safetensors file with any JSON as its header."""
    content = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(content).to_bytes(8, "little") + content + data


def about(kind: str = "upload", **changes: Any) -> dict[str, str]:
    header = {**HEADER.model_dump(mode="json"), **changes}
    return {"accord": json.dumps({"kind": kind, "header": header})}


def refused(content: bytes, kind: type[Message] = Upload) -> str:
    with pytest.raises(AccordError, match=r"^(?s:.*)from-a-stick") as caught:
        kind.from_bytes(content, "from-a-stick")
    return str(caught.value)


# --- round trip --------------------------------------------------------------------------------


def test_header_and_tensors_come_back_equal() -> None:
    found = Upload.from_bytes(upload().to_bytes(), "here")
    assert found.header == HEADER
    assert_same(found.tensors, TENSORS)


@pytest.mark.parametrize("name", TENSORS)
def test_a_tensor_alone_comes_back_equal(name: str) -> None:
    found = Upload.from_bytes(upload(**{name: TENSORS[name]}).to_bytes(), "here")
    assert_same(found.tensors, {name: TENSORS[name]})


def test_a_message_without_tensors_comes_back() -> None:
    assert Upload.from_bytes(Upload(HEADER, {}).to_bytes(), "here") == Upload(HEADER, {})


@pytest.mark.parametrize(
    "tensor",
    [
        torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(0)).to(
            memory_format=torch.channels_last
        ),
        torch.arange(6.0).reshape(2, 3).T,
        torch.arange(10.0)[2:8:2],
        torch.tensor([1.0, 2.0]).expand(3, 2),
        torch.tensor([1.0], requires_grad=True),
    ],
    ids=["channels last", "transposed", "strided", "expanded", "with gradient"],
)
def test_the_memory_layout_does_not_matter(tensor: Tensor) -> None:
    plain = torch.tensor(tensor.tolist())
    assert upload(x=tensor).to_bytes() == upload(x=plain).to_bytes()
    assert_same(Upload.from_bytes(upload(x=tensor).to_bytes(), "here").tensors, {"x": plain})


def test_tensors_that_share_memory_come_back_equal() -> None:
    whole = torch.arange(6.0)
    tensors = {"a": whole, "again": whole, "part": whole[2:]}
    assert_same(Upload.from_bytes(upload(**tensors).to_bytes(), "here").tensors, tensors)


def test_a_briefing_and_a_state_come_back_equal() -> None:
    state = State(StateHeader(client="0", epoch=2, briefing="ab"), {"x": torch.ones(1)})
    for message in (briefing(), state):
        found = type(message).from_bytes(message.to_bytes(), "here")
        assert found.header == message.header
        assert_same(found.tensors, message.tensors)


def test_saved_files_hold_the_same_bytes(tmp_path: Path) -> None:
    path = tmp_path / "new" / "upload.safetensors"
    size = upload().save(path)
    assert path.read_bytes() == upload().to_bytes()
    assert path.stat().st_size == size
    assert_same(Upload.load(path).tensors, TENSORS)
    assert [entry.name for entry in path.parent.iterdir()] == ["upload.safetensors"]


def test_any_safetensors_reader_reads_the_tensors() -> None:
    assert_same(safetensors.torch.load(upload().to_bytes()), TENSORS)


def test_prefixes_go_on_and_come_off() -> None:
    named = {"weight": torch.ones(1), "net.odd": torch.zeros(1)}
    both = {**prefixed("net.", named), "label_counts": torch.ones(2)}
    assert_same(unprefixed("net.", both), named)


# --- determinism -------------------------------------------------------------------------------


def test_the_same_message_is_the_same_bytes() -> None:
    assert upload().to_bytes() == upload().to_bytes()


def test_the_order_of_tensors_does_not_matter() -> None:
    assert upload(**dict(reversed(TENSORS.items()))).to_bytes() == upload().to_bytes()


def test_what_was_read_is_written_alike() -> None:
    content = briefing().to_bytes()
    assert Briefing.from_bytes(content, "here").to_bytes() == content
    assert Briefing.from_bytes(content, "here").digest == briefing().digest


@pytest.mark.parametrize("change", ["weight", "seed", "training"])
def test_the_digest_tells_briefings_apart(change: str) -> None:
    first, other = briefing(), briefing()
    if change == "weight":
        other.tensors["net.weight"][0] += 1
    elif change == "seed":
        other = Briefing(other.header.model_copy(update={"seed": 2}), other.tensors)
    else:
        other = Briefing(
            other.header.model_copy(update={"training": TrainingSpec()}), other.tensors
        )
    assert first.digest != other.digest


def test_other_processes_write_the_same_bytes() -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import test_messages as t;"
        "print(t.upload().to_bytes().hex(), t.briefing().digest)"
    )
    folder = str(Path(__file__).parent)
    expected = f"{upload().to_bytes().hex()} {briefing().digest}"
    for seed in ("1", "2"):
        found = subprocess.run(
            [sys.executable, "-c", code, folder],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert found.stdout.strip() == expected


# --- what cannot be used -----------------------------------------------------------------------


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 100, -200, -8, -1])
def test_a_truncated_message_is_refused(length: int) -> None:
    assert "not a whole upload" in refused(upload().to_bytes()[:length])


def test_a_message_with_bytes_left_over_is_refused() -> None:
    refused(upload().to_bytes() + b"\0")


@pytest.mark.parametrize(
    "content",
    [
        pickle.dumps({"a": 1}),
        b"PK\x03\x04" + bytes(100),
        b"\x89PNG\r\n\x1a\n" + bytes(100),
        b"\n" * 200,
        bytes(200),
    ],
    ids=["pickle", "zip", "png", "text", "zeros"],
)
def test_other_files_are_refused(content: bytes) -> None:
    refused(content)


@pytest.mark.parametrize("length", [2**63, 2**64 - 1, 2**32, 10**9])
def test_a_huge_declared_header_is_refused(length: int) -> None:
    refused(length.to_bytes(8, "little") + upload().to_bytes()[8:])


def test_a_foreign_safetensors_file_is_refused() -> None:
    content = safetensors.torch.save({"a": torch.ones(2)}, {"format": "pt"})
    assert "no Accord message" in refused(content)
    assert "no Accord message" in refused(safetensors.torch.save({"a": torch.ones(2)}))


@pytest.mark.parametrize(
    "header",
    [
        b"{",
        b"\xff\xfe{}",
        [],
        5,
        None,
        {"__metadata__": None},
        {"__metadata__": []},
        {"__metadata__": {"accord": 5}},
        {"__metadata__": {"accord": None}},
        {"__metadata__": {"accord": ["upload"]}},
        {"__metadata__": {"accord": "{"}},
        {"__metadata__": {"accord": "[]"}},
        {"__metadata__": {"accord": "{}"}},
        {"__metadata__": {"accord": '{"kind": "upload"}'}},
        {"__metadata__": {"accord": '{"kind": ["upload"], "header": {}}'}},
        {"__metadata__": {"accord": '{"kind": "upload", "header": []}'}},
        {"__metadata__": {"accord": '{"kind": "upload", "header": 1}'}},
        {"__metadata__": {"accord": "[" * 100_000}},
        b"[" * 100_000,
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_header_that_is_not_ours_is_refused(header: Any) -> None:
    refused(raw(header))


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]},
        {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [2**62, 2**62], "data_offsets": [0, 4]},
        {"dtype": "OBJ", "shape": [1], "data_offsets": [0, 4]},
        {"dtype": "F32", "data_offsets": [0, 4]},
        {},
    ],
    ids=str,
)
def test_tensors_that_do_not_fit_their_bytes_are_refused(entry: dict[str, Any]) -> None:
    refused(raw({"__metadata__": about(), "x": entry}, bytes(4)))


@pytest.mark.parametrize("dtype", ["F8_E4M3", "F8_E8M0", "F4", "F6_E2M3", "C64", "U16"])
@pytest.mark.parametrize("size", [4, 6, 8, 16, 64])
def test_unusual_types_are_read_or_refused(dtype: str, size: int) -> None:
    entry = {"dtype": dtype, "shape": [8], "data_offsets": [0, size]}
    with contextlib.suppress(AccordError):
        Upload.from_bytes(raw({"__metadata__": about(), "x": entry}, bytes(size)), "a stick")


def test_a_message_of_another_kind_is_refused() -> None:
    assert "expected one briefing, found upload" in refused(upload().to_bytes(), Briefing)
    assert "found briefing" in refused(briefing().to_bytes())


def test_an_unknown_key_in_the_header_is_refused_with_the_nearest() -> None:
    content = raw({"__metadata__": about(sample=3)})
    assert "did you mean 'samples'?" in refused(content)


@pytest.mark.parametrize(
    "change",
    [
        {"samples": 0},
        {"samples": None},
        {"epoch": -1},
        {"train_accuracy": 1.5},
        {"train_accuracy": float("nan")},
        {"client": 7},
        {"telemetry": "none"},
        {"telemetry": [{"loss": 1.0}]},
        {"telemetry": [{"epoch": 1, "loss": "much"}]},
    ],
    ids=str,
)
def test_impossible_values_in_the_header_are_refused(change: dict[str, Any]) -> None:
    assert next(iter(change)) in refused(raw({"__metadata__": about(**change)}))


def test_a_missing_key_in_the_header_is_refused() -> None:
    content = {"kind": "upload", "header": {"client": "0"}}
    found = refused(raw({"__metadata__": {"accord": json.dumps(content)}}))
    assert "'from-a-stick.epoch' is missing" in found


SMALL = Upload(
    HEADER.model_copy(update={"telemetry": ()}),
    {"net.w": torch.ones(2, 3), "n": torch.tensor([1, 2])},
)
CONTENT = SMALL.to_bytes()


@settings(max_examples=500, deadline=None)
@given(position=st.integers(0, len(CONTENT) - 1), byte=st.integers(0, 255))
def test_a_changed_byte_is_refused_or_leaves_the_shapes(position: int, byte: int) -> None:
    damaged = bytearray(CONTENT)
    damaged[position] = byte
    try:
        found = Upload.from_bytes(bytes(damaged), "from-a-stick")
    except AccordError:
        return
    shapes = sorted(tuple(tensor.shape) for tensor in found.tensors.values())
    assert shapes == [(2,), (2, 3)]


@settings(max_examples=300, deadline=None)
@given(content=st.binary(max_size=64))
def test_any_bytes_are_refused(content: bytes) -> None:
    refused(content)
