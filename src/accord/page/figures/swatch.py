"""The sample of a series in a legend."""

from __future__ import annotations

from accord.page.figures.draw import bare, curve_style, to_svg
from accord.page.parts import Key


def swatch(key: Key, prefix: str) -> str:
    """A short piece of the line with its marker, as SVG."""
    with bare(34, 12) as figure:
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_axis_off()
        axes.set(xlim=(0, 2), ylim=(0, 2))
        axes.plot([0.1, 1, 1.9], [1, 1, 1], markevery=[1], **curve_style(key))
        return to_svg(figure, prefix)
