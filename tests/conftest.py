"""What all tests share: a cache of their own, and the smallest study that is still real."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

# As clients train; two test processes with two threads each would wait for each other.
os.environ["OMP_NUM_THREADS"] = "1"
torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests neither read nor fill the user's folders; worker processes inherit these."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ACCORD_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("ACCORD_STATE", str(tmp_path_factory.mktemp("state")))
        patch.delenv("ACCORD_DATA", raising=False)
        yield


@pytest.fixture
def study() -> dict[str, Any]:
    """Digits, three clients, a small net, seconds to run. Tests change what they are about."""
    return {
        "name": "tiny",
        "data": {"name": "digits", "train_limit": 150, "test_limit": 60},
        "partition": {"alpha": 0.5, "clients": 3},
        "net": {"backbone": "conv4"},
        "budget": {"epochs": 2, "batch": 32},
        "recipes": ["fafi"],
        "references": False,
    }


@pytest.fixture
def shared_data() -> Path:
    """The real CIFAR-10 and SVHN, where this machine has them."""
    folder = Path(__file__).resolve().parents[2] / "shared" / "data"
    if not (folder / "cifar10-train.parquet").exists():
        pytest.skip(f"needs the real images in {folder}")
    return folder
