"""Letters: Accord's messages inside Flower's messages.

A letter has a small JSON text and named byte strings. Flower splits arrays into chunks of some
megabytes, but no other values; therefore the bytes travel as arrays of uint8.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

TEXT, PARTS = "accord", "parts"


@dataclass(frozen=True)
class Letter:
    """A JSON mapping, and byte strings by name."""

    text: dict[str, Any]
    parts: dict[str, bytes] = field(default_factory=dict, repr=False)

    def to_flower(self) -> RecordDict:
        content = RecordDict({TEXT: ConfigRecord({"json": json.dumps(self.text)})})
        if self.parts:
            arrays = {
                name: Array(np.frombuffer(part, np.uint8)) for name, part in self.parts.items()
            }
            content[PARTS] = ArrayRecord(arrays)
        return content

    @classmethod
    def from_flower(cls, content: RecordDict) -> Letter:
        """The letter in a message. Raises ValueError if the message holds no letter."""
        text, parts = content.config_records.get(TEXT), content.array_records.get(PARTS)
        if text is None or not isinstance(text.get("json"), str):
            raise ValueError("the message holds no letter of Accord")
        found = json.loads(str(text["json"]))
        if not isinstance(found, dict):
            raise ValueError("the letter's text is no mapping")
        return cls(found, {name: _bytes(array) for name, array in (parts or {}).items()})


def _bytes(array: Array) -> bytes:
    """The bytes of an array; its type comes from a stranger and is checked."""
    if array.dtype != "uint8" or len(array.shape) != 1:
        raise ValueError(f"expected bytes; found {array.dtype} {array.shape}")
    # `data` is a NumPy file: a header of text and the bytes. `numpy()` does not allow pickles.
    return bytes(array.numpy().tobytes())
