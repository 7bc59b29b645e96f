"""Whether a worker of a cluster can do the jobs of this process with the same results."""

from __future__ import annotations

from functools import cache
from typing import Any

from accord.core.versions import source_hash, versions

MUST_EQUAL = ("accord", "torch", "numpy")  # they decide on the bits of a result


def description() -> dict[str, Any]:
    """The software of this process, for a comparison with another one."""
    found = versions()
    minor = ".".join(found["python"].split(".")[:2])
    return {"python": minor, **{name: found[name] for name in MUST_EQUAL}, "source": source_hash()}


def judge(answer: dict[str, Any]) -> str | None:
    """Why the worker with this answer is unfit; None if it is fit."""
    own, other = _own(), answer["software"]
    for name in ("python", *MUST_EQUAL):
        if other[name] != own[name]:
            return (
                f"expected {name} {own[name]}, as in this process; it has {name} {other[name]}. "
                f"Install the same version there."
            )
    if other["source"] != own["source"]:
        return (
            f"its accord {other['accord']} has other source code than this process. Install the "
            "same copy of Accord there, and restart the worker."
        )
    problem: str | None = answer["problem"]
    return problem


_own = cache(description)
