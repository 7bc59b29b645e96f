"""The versions of the software that made a result."""

from __future__ import annotations

import hashlib
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

RECORDED = ("accord", "torch", "numpy", "safetensors", "pydantic", "scikit-learn", "pillow")


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in RECORDED:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "missing"
    return found


def source_hash() -> str:
    """A hash of Accord's own modules and recipes: a version number does not show local changes."""
    root = Path(__file__).resolve().parents[1]
    digest = hashlib.sha256()
    for path in sorted(path for path in root.rglob("*") if path.suffix in (".py", ".yaml")):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"{path.relative_to(root).as_posix()} {content}\n".encode())
    return digest.hexdigest()[:16]
