"""One row per group: the values of its members, or their quartiles, along a common axis."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from accord.core.text import printable
from accord.page.figures.draw import bare, to_svg
from accord.page.figures.style import COLOURS, GREY, INK, PAPER
from accord.page.parts import Panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROW, LEFT, RIGHT, ABOVE, BELOW, WIDTH = 23, 164, 14, 6, 40, 460
LETTERS = 26  # of the name of a row


@dataclass(frozen=True)
class Group:
    name: str
    values: Sequence[float]
    grey: bool = False  # a reference
    strong: bool = False


def strip(groups: Sequence[Group], x: str, *, title: str = "") -> Panel:
    """Every value as a small dot, and the mean as a large one."""

    def draw(prefix: str) -> str:
        with _rows(groups, x) as (figure, axes):
            for place, group in enumerate(groups):
                shade = GREY if group.grey else COLOURS[1] if group.strong else COLOURS[0]
                mean, marker = statistics.fmean(group.values), "D" if group.grey else "o"
                low, high = min(group.values), max(group.values)
                axes.plot([low, high], [place] * 2, color=shade, linewidth=2, alpha=0.45)
                axes.plot(group.values, [place] * len(group.values), "|", color=shade, markersize=9)
                axes.plot([mean], [place], marker, color=shade, markersize=8, markeredgecolor=PAPER)
            return to_svg(figure, prefix)

    return Panel(draw, title)


def boxes(groups: Sequence[Group], x: str, *, level: float, title: str = "") -> Panel:
    """A box from the first to the third quartile, whiskers to the lowest and highest value."""

    def draw(prefix: str) -> str:
        with _rows(groups, x) as (figure, axes):
            axes.axvline(level, color=GREY, linestyle=(0, (4, 3)), linewidth=1.2)
            axes.boxplot(
                [group.values for group in groups], positions=range(len(groups)),
                orientation="horizontal", whis=(0, 100), widths=0.5, manage_ticks=False,
                patch_artist=True,
                boxprops={"facecolor": COLOURS[5], "edgecolor": COLOURS[0], "linewidth": 1},
                medianprops={"color": INK, "linewidth": 1.6},
                whiskerprops={"color": COLOURS[0]}, capprops={"color": COLOURS[0]},
            )  # fmt: skip
            return to_svg(figure, prefix)

    return Panel(draw, title)


@contextmanager
def _rows(groups: Sequence[Group], x: str) -> Iterator[tuple[Figure, Axes]]:
    """Axes with the name of each group beside its row, the first one at the top."""
    height = ROW * len(groups) + ABOVE + BELOW
    inner = (WIDTH - LEFT - RIGHT, height - ABOVE - BELOW)
    with bare(WIDTH, height) as figure:
        box = (LEFT / WIDTH, BELOW / height, inner[0] / WIDTH, inner[1] / height)
        axes = figure.add_axes(box)
        axes.set_ylim(len(groups) - 0.5, -0.5)
        axes.set_yticks(range(len(groups)), [_name(group.name) for group in groups])
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=True, axis="x")
        axes.spines["left"].set_visible(False)
        axes.set_xlabel(x)
        yield figure, axes


def _name(name: str) -> str:
    name = printable(name)
    return name if len(name) <= LETTERS else f"{name[: LETTERS - 1]}…"
