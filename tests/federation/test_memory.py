"""The recorded peak of memory is that of the process itself; freed memory is returned."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

import accord
from accord.federation.tasks.base import peak_memory

LARGE = 600_000_000  # more than Python and torch need
TOLD = "from accord.federation.tasks.base import peak_memory; print(peak_memory())"
FREED = """
import psutil, torch
from accord.federation.tasks.base import release_memory
blocks = [torch.ones(250_000) for _ in range(400)]  # 1 MB each
last = torch.ones(1)  # keeps the end of the heap in use
held = psutil.Process().memory_info().rss
del blocks
release_memory()
print(held - psutil.Process().memory_info().rss)
"""
BLOCK = 100_000_000  # bytes
APART = f"""
import psutil, torch
from accord.core.heap import large_blocks_apart

def returned():
    block, end = torch.ones({BLOCK} // 4), [bytearray(1000) for _ in range(1000)]
    held = psutil.Process().memory_info().rss
    del block
    return held - psutil.Process().memory_info().rss

with large_blocks_apart():
    within = returned()
print(within, returned())
"""


def test_a_process_does_not_count_the_memory_of_the_one_that_started_it() -> None:
    before = peak_memory()
    ones = torch.ones(LARGE // 4)
    assert peak_memory() >= min(before + 1, LARGE)
    assert psutil.Process().memory_info().rss > LARGE
    told = subprocess.run([sys.executable, "-c", TOLD], capture_output=True, check=True)
    assert 10**7 < int(told.stdout) < LARGE
    del ones


def test_memory_that_was_freed_is_returned() -> None:
    from accord.engines.pool import GREEDY

    if platform.libc_ver()[0] != "glibc":
        pytest.skip("only glibc can return freed memory on request")
    env = {**os.environ, **GREEDY}
    told = subprocess.run([sys.executable, "-c", FREED], capture_output=True, check=True, env=env)
    assert int(told.stdout) > 300_000_000


def test_large_blocks_can_come_from_the_system() -> None:
    from accord.engines.pool import GREEDY

    if platform.libc_ver()[0] != "glibc":
        pytest.skip("only glibc has the setting")
    env = {**os.environ, **GREEDY}
    told = subprocess.run([sys.executable, "-c", APART], capture_output=True, check=True, env=env)
    within, after = (int(one) for one in told.stdout.split())
    assert within > 0.9 * BLOCK
    assert after < 0.1 * BLOCK  # the heap keeps the block, as it does for training


def test_only_maps_and_ridge_regressions_do(
    study: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began: list[str] = []

    def noted(name: str) -> Callable[[], AbstractContextManager[None]]:
        def note() -> AbstractContextManager[None]:
            began.append(name)
            return nullcontext()

        return note

    monkeypatch.setattr("accord.federation.tasks.draw.large_blocks_apart", noted("map"))
    monkeypatch.setattr("accord.fusion.ridge.large_blocks_apart", noted("ridge"))
    blocks = [{"use": "patches", "size": 3, "count": 4}]
    study |= {"recipes": ["fafi", {"use": "closed-form", "map": {"blocks": blocks}}]}
    accord.run(study, out=tmp_path, workers=1, quiet=True)
    assert began == ["map", "ridge"]
