"""Checks whether this machine can run Accord, and advises what to do."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import psutil
import torch
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from rich.table import Table

from accord.core.processor import processor
from accord.data.cache import cache_root
from accord.data.inventory import inventory
from accord.report.tables import plain_table

# Extra → a package that it installs.
EXTRAS = {
    "notebook": "pandas",
    "gradient": "torchjd",
    "transport": "POT",
    "onnx": "onnxruntime",
    "dask": "distributed",
    "flower": "flwr",
    "tensorboard": "tensorboard",
    "mlflow": "mlflow-skinny",
}
GIB = 2**30


@dataclass(frozen=True)
class Check:
    """The result of one check."""

    what: str
    found: str
    verdict: Literal["fine", "note", "wrong"] = "fine"
    advice: str = ""


def examine(data_root: Path | None) -> list[Check]:
    return [
        _python(),
        _torch(),
        *_versions(),
        Check("processor", processor()),
        _cores(),
        _memory(),
        _disk("disk for records", Path.cwd()),
        _disk("disk for decoded images", cache_root()),
        *_datasets(data_root),
        *_extras(),
    ]


def _python() -> Check:
    found = f"{platform.python_version()} ({sys.executable})"
    needed = metadata("accord")["Requires-Python"]
    if not SpecifierSet(needed).contains(platform.python_version(), prereleases=True):
        return Check("Python", found, "wrong", f"Accord needs Python {needed}.")
    return Check("Python", found)


def _torch() -> Check:
    if torch.cuda.is_available():
        return Check("torch", f"{torch.__version__}, {torch.cuda.get_device_name(0)}")
    if find_spec("torchvision") is not None:
        advice = (
            "Accord does not need torchvision; if its version does not match torch, other packages "
            "may fail."
        )
        return Check("torch", f"{torch.__version__}, CPU, with torchvision", "note", advice)
    return Check("torch", f"{torch.__version__}, CPU")


def _versions() -> list[Check]:
    """Checks that the version of every dependency is in Accord's range."""
    wrong = []
    needed = [Requirement(text) for text in requires("accord") or []]
    core = [need for need in needed if need.marker is None or need.marker.evaluate({"extra": ""})]
    for need in core:
        try:
            found = version(need.name)
        except PackageNotFoundError:
            wrong.append(Check(need.name, "missing", "wrong", f"pip install '{need}'"))
            continue
        if not need.specifier.contains(found, prereleases=True):
            advice = f"expected {need.specifier}: pip install '{need}'"
            wrong.append(Check(need.name, found, "wrong", advice))
    return wrong or [Check("dependencies", f"{len(core)} packages have supported versions")]


def _cores() -> Check:
    affinity = getattr(os, "sched_getaffinity", None)
    usable = len(affinity(0)) if affinity else os.cpu_count() or 1
    return Check("cores", f"{usable} usable: this many clients train at the same time")


def _memory() -> Check:
    memory = psutil.virtual_memory()
    found = f"{memory.available / GIB:.1f} of {memory.total / GIB:.1f} GiB free"
    if memory.available < 2 * GIB:
        return Check(
            "memory",
            found,
            "note",
            "A worker needs 0.5 to 3 GiB: use fewer workers (accord run … --workers N).",
        )
    return Check("memory", found)


def _disk(what: str, path: Path) -> Check:
    there = path
    while not there.exists():
        there = there.parent
    free = shutil.disk_usage(there).free
    found = f"{free / GIB:.1f} GiB free at {path}"
    if not os.access(there, os.W_OK):
        return Check(what, found, "wrong", f"{there} is not writable.")
    if free < GIB:
        return Check(what, found, "note", "Less than 1 GiB: delete files, or use another disk.")
    return Check(what, found)


def _datasets(data_root: Path | None) -> list[Check]:
    found = [entry.name for entry in inventory(data_root) if entry.found]
    return [Check("datasets", ", ".join(found), advice="accord data lists where to put the others")]


def _extras() -> list[Check]:
    checks = []
    for extra, package in EXTRAS.items():
        try:
            checks.append(Check(f"extra {extra}", f"{package} {version(package)}"))
        except PackageNotFoundError:
            advice = f"pip install 'accord[{extra}]' if you need it"
            checks.append(Check(f"extra {extra}", f"{package} missing", "note", advice))
    return checks


def table(checks: list[Check]) -> Table:
    marks = {"fine": "ok", "note": "note", "wrong": "WRONG"}
    rows = [(marks[check.verdict], check.what, check.found, check.advice) for check in checks]
    return plain_table(("", "what", "found", "advice"), rows)
