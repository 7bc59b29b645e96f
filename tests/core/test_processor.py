"""The processor as a record names it."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest
import torch

from accord.core import processor as module
from accord.core.processor import described, processor

INTEL = """\
processor\t: 0
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 207
model name\t: Intel(R) Xeon(R) Processor

processor\t: 1
cpu family\t: 6
model\t\t: 85
model name\t: another one
"""
ARM = """\
processor\t: 0
BogoMIPS\t: 243.75
Features\t: fp asimd
CPU implementer\t: 0x41
CPU part\t: 0xd0c
"""


def test_name_and_numbers_are_those_of_the_first_processor() -> None:
    assert described(INTEL) == "Intel(R) Xeon(R) Processor (family 6, model 207)"
    assert described(ARM) == "(implementer 0x41, part 0xd0c)"
    assert described("model name\t: Plain\n") == "Plain"
    assert described("") == ""


def test_the_processor_of_this_machine_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    capability = torch.backends.cpu.get_cpu_capability()
    file = tmp_path / "cpuinfo"
    file.write_text(INTEL)
    monkeypatch.setattr(module, "CPUINFO", file)
    found = processor.__wrapped__()
    assert found == f"Intel(R) Xeon(R) Processor (family 6, model 207), {capability}"
    for absent in (tmp_path / "absent", tmp_path / "empty"):
        if absent.name == "empty":
            absent.write_text("")
        monkeypatch.setattr(module, "CPUINFO", absent)
        kind = platform.processor() or platform.machine()
        assert processor.__wrapped__() == f"{kind}, {capability}"
