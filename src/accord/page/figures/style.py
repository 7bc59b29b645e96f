"""Colours, markers and line styles of all plots.

matplotlib draws with the hexadecimal colours below. The SVG refers to CSS variables instead, so
that the same plot can be read on a light page, on a dark page and in print. The colours are those
of Okabe and Ito, which colour-blind people can tell apart; the yellow one is darker, because it
could not be seen on white. Markers and line styles differ as well.
"""

from __future__ import annotations

from collections.abc import Sequence

from accord.page.parts import Key

COLOURS = (
    "#0072b2",  # blue
    "#d55e00",  # vermillion
    "#009e73",  # green
    "#cc79a7",  # purple
    "#e69f00",  # orange
    "#56b4e9",  # sky blue
    "#8c7a00",  # dark yellow
    "#7a5195",  # violet
)
INK, RULE, PAPER, GREY = "#010101", "#020202", "#030303", "#040404"
VARIABLES = {
    **{colour: f"var(--s{index})" for index, colour in enumerate(COLOURS)},
    INK: "currentColor",
    RULE: "var(--rule)",
    PAPER: "var(--paper)",
    GREY: "var(--grey)",
}
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "h")
MOST = len(COLOURS)  # series of one plot
BLACK = -1  # the number of the colour of texts


def colour(index: int | None) -> str:
    """The colour of a key: grey without a number, and the colour of texts for BLACK."""
    if index is None:
        return GREY
    return INK if index == BLACK else COLOURS[index % MOST]


def keys_for(labels: Sequence[str]) -> list[Key]:
    """One key per label, all different: colour, marker and line style."""
    return [
        Key(
            label,
            index % MOST,
            line=LINES[(index + index // MOST) % len(LINES)],
            marker=MARKERS[index % MOST],
        )
        for index, label in enumerate(labels)
    ]


LINES = ("-", "--", "-.", ":")
