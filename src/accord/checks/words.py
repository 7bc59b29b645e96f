"""The words of a refusal."""

from __future__ import annotations

from torch import Tensor

from accord.core.errors import AccordError

REMEDY = (
    "No honest client sends this: ask this client for a new upload, or leave it out "
    "(--without NAME)."
)


def refuse(wrong: Tensor, said: str) -> None:
    """Raises AccordError if any value is wrong."""
    if bool(wrong.any()):
        raise AccordError(f"{said}. {REMEDY}")


def at_worst(values: Tensor, sign: int = 1) -> str:
    """The largest value in words; `sign` −1 if the values were negated before."""
    return f"{sign * float(values.max()):.6g}" if values.numel() else "none"
