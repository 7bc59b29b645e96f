"""Box plots of values of several groups, in one horizontal row each."""

from __future__ import annotations

from collections.abc import Sequence

from accord.page.figures.draw import bare, to_svg
from accord.page.figures.style import COLOURS, GREY, INK
from accord.page.parts import Panel

ROW, LEFT, BELOW, WIDTH = 24, 120, 40, 420


def boxes(
    groups: Sequence[tuple[str, Sequence[float]]], x: str, *, level: float, title: str = ""
) -> Panel:
    """A box from the first to the third quartile, whiskers to the lowest and highest value."""

    def draw(prefix: str) -> str:
        height = ROW * len(groups) + BELOW + 8
        with bare(WIDTH, height) as figure:
            inner = (WIDTH - LEFT - 12, height - BELOW - 8)
            box = (LEFT / WIDTH, BELOW / height, inner[0] / WIDTH, inner[1] / height)
            axes = figure.add_axes(box)
            axes.axvline(level, color=GREY, linestyle=(0, (4, 3)), linewidth=1.2)
            axes.boxplot(
                [values for _, values in groups], orientation="horizontal", whis=(0, 100),
                widths=0.55, patch_artist=True, tick_labels=[_short(name) for name, _ in groups],
                boxprops={"facecolor": COLOURS[5], "edgecolor": COLOURS[0], "linewidth": 1},
                medianprops={"color": INK, "linewidth": 1.6},
                whiskerprops={"color": COLOURS[0]}, capprops={"color": COLOURS[0]},
            )  # fmt: skip
            axes.invert_yaxis()
            axes.grid(visible=True, axis="x")
            axes.set_xlabel(x)
            axes.tick_params(axis="y", length=0)
            return to_svg(figure, prefix)

    return Panel(draw, title)


def _short(name: str) -> str:
    return name if len(name) <= 20 else f"{name[:19]}…"
