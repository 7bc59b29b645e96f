"""One small run of the closed form, and a copy of it that a test may change."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from closed_run import run


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(tmp_path_factory.mktemp("closed") / "run")


@pytest.fixture
def record(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "run")
    return tmp_path / "run"
