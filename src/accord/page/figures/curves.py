"""Plots of values over epochs, rounds or costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from accord.page.figures.draw import curve_style, plot, scale_log, to_svg, whole_ticks
from accord.page.figures.style import GREY, colour
from accord.page.parts import Key, Panel


@dataclass(frozen=True)
class Curve:
    """One series. `low` and `high` make a band around it."""

    key: Key
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()


@dataclass(frozen=True)
class Level:
    """A horizontal line with its name."""

    label: str
    value: float


def curves(
    series: Sequence[Curve],
    x: str,
    y: str,
    *,
    title: str = "",
    levels: Sequence[Level] = (),
    log: bool = False,
    bounds: tuple[float, float] | None = None,
) -> Panel:
    """Curves over epochs or rounds."""
    return Panel(_drawing(series, x, y, levels, log, bounds), title)


def _drawing(
    series: Sequence[Curve],
    x: str,
    y: str,
    levels: Sequence[Level],
    log: bool,
    bounds: tuple[float, float] | None,
) -> Callable[[str], str]:
    def draw(prefix: str) -> str:
        with plot(x, y) as (figure, axes):
            for level in levels:
                axes.axhline(level.value, color=GREY, linewidth=1, linestyle=(0, (4, 3)))
                axes.annotate(
                    level.label, (1, level.value), xycoords=("axes fraction", "data"),
                    xytext=(0, 2), textcoords="offset points", ha="right", fontsize=9.5,
                )  # fmt: skip
            for one in series:
                if one.low:
                    shade = colour(one.key.colour)
                    axes.fill_between(
                        one.x, one.low, one.high, color=shade, alpha=0.15, linewidth=0
                    )
                few = len(one.x) <= 12
                axes.plot(one.x, one.y, **curve_style(one.key, **({} if few else {"marker": None})))
            if bounds:
                axes.set_ylim(*bounds)
            if log:
                scale_log(axes, "y")
            whole_ticks(axes)
            return to_svg(figure, prefix)

    return draw


@dataclass(frozen=True)
class Dot:
    """One point with the spread of its y value."""

    key: Key
    x: float
    y: float
    spread: float = 0.0


def dots(points: Sequence[Dot], x: str, y: str, *, title: str = "") -> Panel:
    """Points over a logarithmic cost."""

    def draw(prefix: str) -> str:
        with plot(x, y) as (figure, axes):
            for one in points:
                axes.errorbar(
                    [one.x], [one.y], yerr=[one.spread] if one.spread else None,
                    elinewidth=1, capsize=2.5,
                    **curve_style(one.key, linestyle="none", markersize=7),
                )  # fmt: skip
            axes.grid(visible=True, axis="x")
            values = [one.x for one in points]
            axes.set_xlim(min(values) / 1.6, max(values) * 1.6)
            scale_log(axes, "x")
            return to_svg(figure, prefix)

    return Panel(draw, title)
