"""A saved model, from which maps can take an encoder."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import accord


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The nets of two clients, as `accord fuse --save` keeps them."""
    folder = tmp_path_factory.mktemp("kept")
    study = {
        "name": "kept",
        "data": {"name": "digits", "train_limit": 60, "test_limit": 20},
        "partition": {"scheme": "iid", "clients": 2},
        "net": {"backbone": "conv4"},
        "budget": {"epochs": 1, "batch": 32},
        "recipes": ["ce-ensemble"],
        "references": False,
    }
    accord.run(study, out=folder / "run", workers=1, quiet=True)
    accord.fuse(folder / "run", ["outputs"], workers=1, quiet=True, save=folder / "model")
    return folder / "model"


@pytest.fixture
def model(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "model")
    return tmp_path / "model"
