"""Makes one plot: axes with labels, and the SVG of a figure for a page."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from accord.core.errors import AccordError
from accord.core.text import printable
from accord.page.figures.style import GREY, INK, PAPER, RULE, VARIABLES, colour
from accord.page.parts import Key

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, HEIGHT = 330, 226  # of a panel, in CSS pixels
SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",  # texts stay texts
    "svg.hashsalt": "accord",  # the same plot has the same bytes
    "text.parse_math": False,  # a $ in a name is a $
    "axes.unicode_minus": True,
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
    "axes.linewidth": 0.8,
    "axes.facecolor": "none",
    "axes.labelcolor": INK,
    "axes.labelsize": 11,
    "axes.axisbelow": True,
    "figure.facecolor": "none",
    "text.color": INK,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 10.5,
    "ytick.labelsize": 10.5,
    "grid.color": RULE,
    "grid.linewidth": 0.7,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
    "lines.solid_capstyle": "round",
}
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@contextmanager
def bare(width: int, height: int) -> Iterator[Figure]:
    """A figure without axes, in CSS pixels."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        raise missing_library() from None
    with matplotlib.rc_context(SETTINGS):
        yield Figure(figsize=(width / 72, height / 72))


@contextmanager
def plot(
    x: str, y: str, *, width: int = WIDTH, height: int = HEIGHT, left: int = 44
) -> Iterator[tuple[Figure, Axes]]:
    """A figure with one pair of axes. `x` and `y` are the labels, with their units.

    The label of the y axis is above the axis, where it is read without turning one's head.
    """
    with bare(width, height) as figure:
        inner = (width - left - 10, height - 38 - 26)
        box = (left / width, 38 / height, inner[0] / width, inner[1] / height)
        axes = figure.add_axes(box)
        axes.grid(visible=True, axis="y")
        axes.set_xlabel(printable(x))
        at = (-(left - 2) / inner[0], 1 + 10 / inner[1])
        axes.text(*at, printable(y), transform=axes.transAxes, ha="left", va="baseline")
        yield figure, axes


def missing_library() -> AccordError:
    return AccordError(
        "a report as a page needs Jinja2 and matplotlib, which are not installed. Install them "
        "with pip install 'accord[report]'; --markdown and --latex do without them."
    )


def curve_style(key: Key, **more: Any) -> dict[str, Any]:
    """The arguments of `Axes.plot` for a series."""
    found = {"color": colour(key.colour), "linestyle": key.line or "none"}
    marker = {"marker": key.marker or None, "markeredgecolor": PAPER, "markeredgewidth": 0.8}
    return {**found, **marker, **more}


def power_ticks(axis: Any) -> None:
    """Labels of a logarithmic axis without mathematical typesetting: 1, 10, 100, 10³ …"""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(base=10, numticks=6))
    axis.set_major_formatter(FuncFormatter(lambda value, _: _power(value)))
    axis.set_minor_formatter(NullFormatter())


def scale_log(axes: Axes, which: str) -> None:
    """A logarithmic axis. A range of less than two decades gets more labels."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis = axes.xaxis if which == "x" else axes.yaxis
    (axes.set_xscale if which == "x" else axes.set_yscale)("log")
    low, high = axes.get_xlim() if which == "x" else axes.get_ylim()
    power_ticks(axis)
    if low > 0 and high / low < 120:
        axis.set_major_locator(LogLocator(base=10, subs=(1, 2, 5), numticks=8))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())


def _power(value: float) -> str:
    if 0.01 <= value <= 1000:
        return f"{value:g}"
    return "10" + f"{round(_log10(value))}".translate(SUPERSCRIPTS)


def _log10(value: float) -> float:
    from math import log10

    return log10(value) if value > 0 else 0


def whole_ticks(axes: Axes) -> None:
    """Only whole numbers on the x axis, for epochs and rounds."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, min_n_ticks=1))


def to_svg(figure: Figure, prefix: str) -> str:
    """The figure as an SVG element for a page, with ids that begin with `prefix`."""
    import matplotlib

    buffer = io.StringIO()
    with matplotlib.rc_context(SETTINGS), warnings.catch_warnings():
        # Letters that matplotlib cannot measure, such as Chinese ones; a browser has their fonts.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        figure.savefig(buffer, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format")))
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", text, flags=re.S)
    return _tags(_unique(text, prefix)).strip()


def _unique(text: str, prefix: str) -> str:
    """Ids that nothing refers to are dropped; the others get a prefix."""
    text = text.replace("xlink:href", "href")
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', text))
    text = re.sub(r' id="([^"]*)"', lambda m: f' id="{prefix}{m[1]}"' if m[1] in used else "", text)
    return re.sub(r'(href="#|url\(#)', rf"\g<1>{prefix}", text)


def _tags(text: str) -> str:
    """Colours as CSS variables, and coordinates with two decimals; texts stay as they are."""
    return re.sub(r"<[^>]+>", lambda tag: _tag(tag[0]), text).replace("\n", "")


def _tag(tag: str) -> str:
    tag = re.sub(r"#[0-9a-f]{6}\b", lambda m: VARIABLES.get(m[0], m[0]), tag)
    tag = re.sub(r"(\d\.\d\d)\d+", r"\1", tag)
    tag = re.sub(r"font: ([\d.]+px)[^;\"]*", r"font-size: \1", tag)
    tag = re.sub(r"^<svg[^>]*?viewBox=\"([^\"]*)\"[^>]*>", r'<svg viewBox="\1">', tag, flags=re.S)
    return re.sub(r"\s+", " ", tag)
