"""The processor that computes a result: another kind of processor rounds differently."""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path

import torch

CPUINFO = Path("/proc/cpuinfo")
# Virtual machines often hide the name of the product; family and model still tell the kind.
NUMBERS = {
    "cpu family": "family",
    "model": "model",
    "CPU implementer": "implementer",
    "CPU part": "part",
}


@cache
def processor() -> str:
    """The kind of processor, and the vector instructions for which torch chooses its code."""
    kind = described(CPUINFO.read_text()) if CPUINFO.exists() else ""
    kind = kind or platform.processor() or platform.machine()
    return f"{kind}, {torch.backends.cpu.get_cpu_capability()}"


def described(cpuinfo: str) -> str:
    """Name, family and model of the first processor in the text of /proc/cpuinfo, if given."""
    fields: dict[str, str] = {}
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    numbers = [f"{short} {fields[key]}" for key, short in NUMBERS.items() if fields.get(key)]
    name = fields.get("model name", "")
    return f"{name} ({', '.join(numbers)})".strip() if numbers else name
