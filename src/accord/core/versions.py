"""The versions of the software that made a result."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

RECORDED = ("accord", "torch", "numpy", "safetensors", "pydantic", "scikit-learn", "pillow")


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in RECORDED:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "missing"
    return found
