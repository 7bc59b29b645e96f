"""The device of each client, and the check that this machine has it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Collection
from functools import cache

import torch

from accord.core.errors import AccordError, nearest
from accord.core.names import listed
from accord.study.settings import Options

PROBE = (
    "import torch; x = torch.ones(64, 64)\n"
    "with torch.autocast('cpu', torch.bfloat16): (x @ x).sum()"
)


def choose_device(asked: str | dict[int | str, str], client: str) -> str:
    """The device of a client: as `asked`; by default CUDA if there is a GPU, else the CPU."""
    if isinstance(asked, dict):
        asked = {str(name): device for name, device in asked.items()}.get(client, "auto")
    if asked == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return asked


def use_autocast(options: Options, client: str) -> bool:
    """Whether a client uses bf16: as asked; by default on CUDA, where it saves time."""
    if options.autocast == "auto":
        return choose_device(options.device, client).startswith("cuda")
    return options.autocast


def check_devices(options: Options) -> None:
    """Refuses a device or a number format that does not work on this machine."""
    asked = options.device
    names = set(asked.values()) if isinstance(asked, dict) else {asked}
    for name in names:
        check_device(name)
    on_cpu = any(choose_device(name, "0") == "cpu" for name in names)
    if options.autocast is True and on_cpu and not bf16_works():
        raise AccordError(
            "autocast: the CPU of this machine cannot compute in bf16 (illegal instruction). Set "
            "autocast: false."
        )


def check_device_names(options: Options, clients: Collection[str]) -> None:
    """Refuses a device of a client that no trial has."""
    if not isinstance(options.device, dict):
        return
    for name in map(str, options.device):
        if name not in clients:
            raise AccordError(
                f"'device': the study has no client {name[:100]!r}"
                f"{nearest(name, clients) or '.'} Its clients are {listed(list(clients))}. Correct "
                "the name, or remove it."
            )


def check_device(name: str) -> None:
    """Refuses a device that does not work on this machine."""
    try:
        torch.empty(1, device=choose_device(name, "0"))
    except (RuntimeError, AssertionError) as error:
        cuda = [f"cuda:{index}" for index in range(torch.cuda.device_count())]
        raise AccordError(
            f"device {name!r} cannot be used on this machine ({type(error).__name__}). It has: "
            f"{', '.join(['cpu', *cuda])}."
        ) from None


@cache
def bf16_works() -> bool:
    """Whether the CPU can compute in bf16.

    This is tried in another process, because a processor may report bf16 and still fail.
    """
    tried = subprocess.run([sys.executable, "-c", PROBE], capture_output=True)
    return tried.returncode == 0
