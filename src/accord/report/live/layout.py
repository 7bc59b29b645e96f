"""How the live view looks: it fits into a terminal of any size, or is plain text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from accord.core.text import printable
from accord.report.live.picture import Bar, Picture, Standing, TrialLine, by_relevance

BAR, SHORTEST_BAR = 30, 8  # characters
NARROW = 60  # a terminal of fewer characters has no bar for the whole study
PLAIN_ROWS = 12  # rows of each part in plain text
MARKS = {"failed": "✗", "running": "▸", "finished": "✓"}
COLOURS = {"failed": "red", "running": "cyan", "finished": "green"}

Cell = RenderableType
Row = tuple[Cell, ...]


@dataclass(frozen=True)
class View:
    """A picture that is drawn for the size of the console at that moment."""

    take: Callable[[], Picture]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield fitted(self.take(), options.max_width, console.size.height)


@dataclass(frozen=True)
class Part:
    """A part of the view: rows of one line each, and a word for the rows that are left out."""

    rows: Sequence[Row]
    word: str
    heading: tuple[str, ...] = ()

    @property
    def wanted(self) -> int:
        return len(self.rows) + bool(self.heading) if self.rows else 0

    def drawn(self, lines: int) -> list[RenderableType]:
        """The part in at most `lines` lines."""
        room = lines - bool(self.heading)
        if lines < 1 or room < 1 or not self.rows:
            return []
        shown = len(self.rows) if len(self.rows) <= room else room - 1
        found: list[RenderableType] = []
        if shown:
            found.append(_grid(self.heading, self.rows[:shown]))
        if shown < len(self.rows):
            found.append(_line(f"  and {len(self.rows) - shown:,} more {self.word}", "dim"))
        return found


def fitted(picture: Picture, width: int, height: int) -> RenderableType:
    """The picture in a terminal of `width` × `height` characters."""
    room = max(1, height - 1)  # the cursor stands in the last line
    total = _total(picture, width)
    if room < 2:
        return Group(total)
    parts = [
        Part([(_line(f"  {note}", "yellow"),) for note in picture.notes], "remarks"),
        Part(_bar_rows(picture.bars, width), "at work"),
        Part(
            _standing_rows(picture.standings), "recipes", ("  accuracy % so far", "", "seeds", "")
        ),
        Part(_trial_rows(picture.trials), "trials"),
    ]
    parts = [part for part in parts if part.rows]
    given = share_out([part.wanted for part in parts], room - 2)
    spaced = sum(given) + len(parts) + 3 <= room
    lines: list[RenderableType] = [_head(picture)]
    for part, count in zip(parts, given, strict=True):
        drawn = part.drawn(count)
        lines += [Text(""), *drawn] if spaced and drawn else drawn
    return Group(*lines, *([Text("")] if spaced else []), total)


def share_out(wanted: Sequence[int], room: int) -> list[int]:
    """Lines for each part: all get the same, and what a part does not need goes to the others."""
    given = [0] * len(wanted)
    while room > 0 and any(g < w for g, w in zip(given, wanted, strict=True)):
        for index, want in enumerate(wanted):
            if given[index] < want and room > 0:
                given[index] += 1
                room -= 1
    return given


def plain(picture: Picture) -> list[str]:
    """The picture as lines of plain text."""
    lines = [f"{picture.name}: {picture.headline()}"]
    if picture.timing:
        done = "" if picture.share is None else f"{picture.share:.0%} done, "
        lines.append(f"{done}{picture.timing}")
    lines += picture.notes
    lines += _some(
        [
            f"  {one.trial} {one.what}: {one.share:.0%}{f' ({one.note})' if one.note else ''}"
            for one in picture.bars
        ],
        "at work",
    )
    lines += _some([_standing_line(one) for one in picture.standings], "recipes")
    failed = [trial for trial in by_relevance(picture.trials) if trial.status == "failed"]
    lines += _some([f"  failed: {one.title}: {one.reason}" for one in failed], "failed")
    return [printable(line) for line in lines]


def _some(lines: list[str], word: str) -> list[str]:
    rest = len(lines) - PLAIN_ROWS
    return lines if rest <= 0 else [*lines[:PLAIN_ROWS], f"  and {rest:,} more {word}"]


def _standing_line(one: Standing) -> str:
    seeds = f" ({_seeds(one)})" if one.finished else ""
    running = f"; running: {one.so_far()}" if one.running else ""
    return f"  {one.group}, {one.fusion}: accuracy {one.accuracy()} %{seeds}{running}"


def _seeds(one: Standing) -> str:
    count = len(one.finished)
    return f"{count} seed" if count == 1 else f"{count} seeds"


def _head(picture: Picture) -> Text:
    head = _line(picture.name, "bold")
    head.append(printable(f"  {picture.headline()}"), style="not bold")
    return head


def _total(picture: Picture, width: int) -> RenderableType:
    """The last line: how much of the study is done, and the time."""
    if picture.share is None:
        return _line(f"  {picture.timing}")
    done = f"{picture.share:4.0%}"
    if width < NARROW:
        return _line(f"{done}  {picture.timing}")
    return _grid((), [(Text(""), _bar(picture.share, width), Text(done), _line(picture.timing))])


def _bar_rows(bars: Sequence[Bar], width: int) -> list[Row]:
    return [
        (
            _line(f"  {one.trial}"),
            _line(one.what),
            _bar(one.share, width),
            Text(f"{one.share:4.0%}"),
            _line(one.note, "dim"),
        )
        for one in bars
    ]


def _bar(share: float, width: int) -> ProgressBar:
    return ProgressBar(
        total=1.0,
        completed=min(1.0, share),
        width=max(SHORTEST_BAR, min(BAR, width // 5)),
        complete_style="cyan",
        finished_style="green",
    )


def _standing_rows(found: Sequence[Standing]) -> list[Row]:
    return [
        (
            _line(f"  {one.group}, {one.fusion}"),
            _line(one.accuracy(), "bold"),
            _line(str(len(one.finished)) if one.finished else ""),
            _line(f"running: {one.so_far()}" if one.running else "", "cyan"),
        )
        for one in found
    ]


def _trial_rows(trials: Sequence[TrialLine]) -> list[Row]:
    rows: list[Row] = []
    for one in by_relevance(trials):
        mark = Text(f"  {MARKS[one.status]}", style=COLOURS[one.status])
        found = one.reason or "no checkpoint yet"
        if one.point is not None and one.status != "failed":
            at = f" at epoch {one.point.epoch}" if one.status == "running" else ""
            found = f"{100 * one.point.accuracy:.1f} % ({one.point.fusion}){at}"
        elif one.status == "finished":
            found = "finished"
        rows.append((mark, _line(one.title), _line(found, "dim")))
    return rows


def _grid(heading: Sequence[str], rows: Sequence[Row]) -> Table:
    """A table without lines; every row is one line, which is cut if it is too long."""
    table = Table.grid(padding=(0, 2, 0, 0), collapse_padding=True)
    for cell in rows[0]:
        share = isinstance(cell, Text) and cell.plain.endswith("%")  # never cut
        table.add_column(no_wrap=True, overflow="ellipsis", min_width=4 if share else None)
    if heading:
        table.add_row(*(Text(word, style="dim") for word in heading))
    for row in rows:
        table.add_row(*row)
    return table


def _line(text: str, style: str = "") -> Text:
    """One line; it may hold names from users' data, which cannot control the terminal."""
    return Text(printable(text), style=style, no_wrap=True, overflow="ellipsis")
