"""The parts of a report, which know nothing of HTML, Markdown or LaTeX.

All texts are plain: a renderer escapes them. A figure is drawn only when a page needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Cell:
    """One cell of a table."""

    text: str
    value: float | None = None  # by which a number is sorted
    under: str = ""  # a second, smaller line
    strong: bool = False  # the best value of its column
    tied: bool = False  # not distinguishable from the best value
    shade: float | None = None  # 0 to 1: how strongly a heat map colours the cell


@dataclass(frozen=True)
class Column:
    heading: str
    number: bool = False  # aligned to the right, and sorted as a number


@dataclass(frozen=True)
class Table:
    """A table. `apart`: the rows from this one on are references, below a line of their own."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    title: str = ""
    notes: Sequence[str] = ()
    apart: int | None = None
    heat: bool = False  # a heat map: its rows stay in their order
    across: str = ""  # the name of what the columns of a heat map are

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"expected {len(self.columns)} cells, found {len(row)}")


@dataclass(frozen=True)
class Key:
    """One entry of a figure's legend."""

    label: str
    colour: int | None  # the number of a colour, or None for grey
    line: str = "-"  # a line style of matplotlib
    marker: str = ""


@dataclass(frozen=True)
class Panel:
    """One plot of a figure. `draw` returns it as SVG, with ids that begin with its argument."""

    draw: Callable[[str], str]
    title: str = ""


@dataclass(frozen=True)
class Figure:
    """Plots that belong together, with one legend. `words` says in text what they show."""

    panels: Sequence[Panel]
    words: str
    caption: str
    keys: Sequence[Key] = ()
    wide: bool = False  # its panels need more width


@dataclass(frozen=True)
class Picture:
    """An image of dots, as PNG."""

    png: bytes
    words: str
    caption: str
    width: int  # in CSS pixels


@dataclass(frozen=True)
class Thumbnail:
    png: bytes
    words: str
    right: bool


@dataclass(frozen=True)
class Gallery:
    """Small images with what a model says about each."""

    images: Sequence[Thumbnail]
    caption: str


@dataclass(frozen=True)
class Prose:
    text: str
    quiet: bool = False  # a remark in smaller letters


@dataclass(frozen=True)
class Box:
    """Sentences that must not be overlooked."""

    title: str
    lines: Sequence[str]


@dataclass(frozen=True)
class Item:
    """An entry of a list: its title, and more about it."""

    title: str
    lines: Sequence[str] = ()
    code: str = ""
    level: str = ""  # a short word beside the title


@dataclass(frozen=True)
class Items:
    items: Sequence[Item]


@dataclass(frozen=True)
class Code:
    text: str


@dataclass(frozen=True)
class Details:
    """Parts that are shown on request. `search`: words by which a reader may look for them."""

    summary: str
    parts: Sequence[Part]
    remark: str = ""


Part = Table | Figure | Picture | Gallery | Prose | Box | Items | Code | Details


@dataclass(frozen=True)
class Section:
    """A chapter of the report."""

    id: str
    title: str
    parts: list[Part] = field(default_factory=list)
