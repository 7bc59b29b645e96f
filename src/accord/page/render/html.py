"""The report as one HTML page that needs nothing else: no request leaves it.

Jinja2 escapes every text. matplotlib draws the plots as SVG, so that no script is needed to see
them. The page's only script sorts tables; a content security policy forbids everything else.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from accord.core.text import printable
from accord.page.figures.draw import missing_library
from accord.page.figures.swatch import swatch
from accord.page.parts import Cell, Column, Details, Figure, Key, Part, Section, Table

if TYPE_CHECKING:
    from jinja2 import Environment

MARK = '<meta name="generator" content="accord report">'  # by which a page of ours is known
PREFIX = "k-"  # of the ids of a sample, before it is copied
ASSETS = files("accord.page") / "assets"


class Drawing:
    """Draws the figures of a page, and tells how many are done."""

    def __init__(self, total: int, tell: Callable[[int, int], None]) -> None:
        self.total, self.tell, self.done = total, tell, 0
        self.samples: dict[Key, str] = {}
        self.copies = 0

    def panel(self, panel: Any) -> str:
        svg: str = panel.draw(f"f{self.done}-")
        self.done += 1
        self.tell(self.done, self.total)
        return svg

    def sample(self, key: Key) -> str:
        """The sample of a line. Equal lines are drawn once, and every copy has its own ids."""
        plain = Key("", key.colour, key.line, key.marker)
        if plain not in self.samples:
            self.samples[plain] = swatch(plain, PREFIX)
        self.copies += 1
        return self.samples[plain].replace(PREFIX, f"k{self.copies}-")


def to_html(
    title: str, sections: Sequence[Section], tell: Callable[[int, int], None] = lambda *_: None
) -> str:
    """The whole page. `tell` hears how many figures are drawn, of how many."""
    from markupsafe import Markup

    script, style = (ASSETS.joinpath(name).read_text("utf-8") for name in ("page.js", "page.css"))
    drawing = Drawing(sum(_panels(section.parts) for section in sections), tell)
    environment = _environment()
    environment.globals.update(
        drawn=lambda panel: Markup(drawing.panel(panel)),
        sample=lambda key: Markup(drawing.sample(key)),
    )
    return environment.get_template("page.html").render(
        title=title,
        sections=sections,
        mark=Markup(MARK),
        policy=_policy(script),
        script=Markup(script),
        style=Markup(style),
    )


def _environment() -> Environment:
    try:
        from jinja2 import Environment, FunctionLoader, StrictUndefined
    except ImportError:
        raise missing_library() from None
    environment = Environment(
        loader=FunctionLoader(lambda name: ASSETS.joinpath(name).read_text("utf-8")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    environment.tests["part"] = lambda part, kind: type(part).__name__ == kind
    environment.filters["data"] = _data
    environment.filters["padded"] = padded
    return environment


def _finalize(value: Any) -> Any:
    """Texts from strangers must not hold control characters, which HTML does not allow."""
    from markupsafe import Markup

    if isinstance(value, str) and not isinstance(value, Markup):
        return re.sub(r"[^\n\u2007]+", lambda found: printable(found[0]), value)
    return value


def _policy(script: str) -> str:
    """Only this page's script may run, and nothing is loaded."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )


def _data(png: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"


def padded(table: Table) -> list[list[Cell]]:
    """The rows; in a column of `mean ± deviation` the signs are below each other."""
    return [
        [
            _pad(cell, width) if width else cell
            for cell, width in zip(row, _widths(table.columns, table.rows), strict=True)
        ]
        for row in table.rows
    ]


def _widths(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> list[int]:
    """For each column, the characters after its ±; 0 if there is none."""
    return [
        max((len(row[index].text.partition(" ± ")[2]) for row in rows), default=0)
        for index in range(len(columns))
    ]


def _pad(cell: Cell, width: int) -> Cell:
    mean, sign, deviation = cell.text.partition(" ± ")
    if not sign:
        return cell
    space = "\u2007" * (width - len(deviation))  # as wide as a digit
    return Cell(**{**vars(cell), "text": f"{mean} ± {space}{deviation}"})


def _panels(parts: Iterable[Part]) -> int:
    """The number of plots in some parts."""
    return sum(
        len(part.panels)
        if isinstance(part, Figure)
        else _panels(part.parts)
        if isinstance(part, Details)
        else 0
        for part in parts
    )
