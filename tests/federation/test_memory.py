"""The recorded peak of memory is that of the process itself; freed memory is returned."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import psutil
import pytest
import torch

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
