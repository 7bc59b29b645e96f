"""Further columns of a dataset as text: the names of sites, and other facts about each image."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def as_text(values: NDArray[Any]) -> NDArray[np.str_]:
    """One text for each value; a missing value (NaN, NaT, None) is the empty text.

    A whole number has no decimal point. A column of whole numbers with gaps is often stored as
    fractions, and must give the same names as without gaps.
    """
    flat = values.reshape(-1)
    if flat.dtype.kind in "fOM":
        return np.array([_one(value) for value in flat], np.str_)
    return flat.astype(np.str_)


def _one(value: Any) -> str:
    if value is None or bool(value != value):  # only NaN and NaT differ from themselves
        return ""
    whole = isinstance(value, float | np.floating) and float(value).is_integer()
    return str(int(value)) if whole else str(value)
