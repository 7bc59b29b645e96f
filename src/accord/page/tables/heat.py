"""Heat maps: a table with coloured cells, or an image if there are too many cells."""

from __future__ import annotations

import io
from collections.abc import Sequence

from accord.core.names import shown
from accord.page.parts import Cell, Column, Part, Picture, Table

MOST = 20  # rows and columns of a table; larger maps are images
IMAGE = 640  # width of an image in CSS pixels, at most


def heat_map(
    values: Sequence[Sequence[float]],
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    title: str,
    down: str,
    across: str,
    texts: Sequence[Sequence[str]] | None = None,
    more: Sequence[tuple[str, Sequence[str]]] = (),
    highest: float | None = None,
    words: str = "",
) -> Part:
    """`down` and `across` name what rows and columns are; `more` are columns without colours."""
    top = highest or max((value for row in values for value in row), default=0) or 1
    if len(rows) > MOST or len(columns) > MOST:
        caption = f"{title}. Rows: {down}, columns: {across}; dark: 0, light: {top:,.4g}."
        width = min(IMAGE, max(240, 6 * len(columns)))
        return Picture(_png(values, top), f"{caption} {words}".strip(), caption, width)
    cells = []
    for index, (name, row) in enumerate(zip(rows, values, strict=True)):
        told = texts[index] if texts else [_count(value) for value in row]
        shaded = [
            Cell(text, value, shade=min(1.0, max(0.0, value / top)))
            for text, value in zip(told, row, strict=True)
        ]
        cells.append([Cell(shown(name)), *shaded, *(Cell(texts[index]) for _, texts in more)])
    heads = [Column(down), *(Column(shown(name), number=True) for name in columns)]
    heads += [Column(name, number=True) for name, _ in more]
    return Table(heads, cells, title=title, heat=True, across=across)


def _count(value: float) -> str:
    return f"{value:,.0f}" if value else ""


def _png(values: Sequence[Sequence[float]], top: float) -> bytes:
    """One dot per value, in the colours of matplotlib's cividis."""
    import numpy as np
    from matplotlib import colormaps
    from PIL import Image

    shares = np.clip(np.asarray(values, dtype=float) / top, 0, 1)
    dots = (colormaps["cividis"](shares)[..., :3] * 255).astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(dots).save(buffer, "png", optimize=True)
    return buffer.getvalue()
