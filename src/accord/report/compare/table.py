"""The table of a comparison, for people."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from rich.table import Table
from rich.text import Text

from accord.record.summary import percent_name
from accord.report.compare.baseline import Pair
from accord.report.comparison import percent, pooled, shared_settings, short, spread
from accord.report.tables import drop_columns, plain_table

NOTHING = "–"
DIFFERENCE = "vs "  # the heading of the last column begins with this


def compare_table(
    pairs: Sequence[Pair],
    thresholds: Sequence[float],
    baseline: str,
    unfinished: int,
    width: int,
) -> Table:
    """One line per setting, recipe and fusion, in at most `width` characters if possible."""
    shared = shared_settings([pair.line.setting for pair in pairs])
    if len({pair.line.setting["dataset"] for pair in pairs}) > 1:
        shared.pop("dataset", None)  # a pooled line can have another dataset
    makers = _columns(pairs, thresholds)
    heading = DIFFERENCE + baseline
    makers[heading] = difference_text
    columns = {
        name: [text(pair) for pair in pairs] for name, text in makers.items() if name not in shared
    }
    goals = [_goal(threshold) for threshold in thresholds]
    narrow = ("MB down", "seconds", "MB up", "top-5 %", "gap", "best %")
    left_out = drop_columns(columns, (*narrow, *reversed(goals), "stable %"), width)
    texts = ("dataset", "partition", "run", "recipe", "fusion")
    cells: dict[str, Sequence[str | Text]] = {**columns, heading: _coloured(pairs)}
    return plain_table(
        list(columns),
        zip(*cells.values(), strict=True),
        numbers=[name for name in columns if name not in texts],
        title=", ".join(shared.values()) or None,
        caption=_caption(pairs, columns, heading, unfinished, left_out),
    )


def _columns(
    pairs: Sequence[Pair], thresholds: Sequence[float]
) -> dict[str, Callable[[Pair], str]]:
    """Heading of a column → the text of a line in this column."""
    columns: dict[str, Callable[[Pair], str]] = {
        "dataset": lambda pair: str(pair.line.setting["dataset"]),
        "partition": lambda pair: str(pair.line.setting["partition"]),
        "clients": lambda pair: NOTHING if _alone(pair) else str(pair.line.setting["clients"]),
        "α": lambda pair: "any" if _alone(pair) else short(pair.line.setting["alpha"]),
    }
    for axis in pairs[0].line.axes:
        columns[axis] = lambda pair, axis=axis: short(pair.line.axes[axis])  # type: ignore[misc]
    if any(pair.line.run for pair in pairs):
        columns["run"] = lambda pair: pair.line.run
    columns["recipe"] = lambda pair: pair.line.recipe
    columns["fusion"] = lambda pair: pair.line.fusion
    if len({len(pair.line.seeds) for pair in pairs}) > 1:
        columns["seeds"] = lambda pair: str(len(pair.line.seeds))
    for key in ("final", "best", "stable"):
        columns[f"{key} %"] = lambda pair, key=key: percent(pair.line.values(key))  # type: ignore[misc]
    if any(pair.line.values("top5") for pair in pairs):
        columns["top-5 %"] = lambda pair: percent(pair.line.values("top5"))
    for threshold in thresholds:
        columns[_goal(threshold)] = lambda pair, at=threshold: reached_text(pair, at)  # type: ignore[misc]
    columns["seconds"] = lambda pair: _mean(pair.line.values("seconds"))
    columns["MB up"] = lambda pair: _megabytes(pair, "upload_bytes")
    columns["MB down"] = lambda pair: _megabytes(pair, "download_bytes")
    columns["gap"] = lambda pair: percent(pair.line.values("gap"))
    return columns


def reached_text(pair: Pair, threshold: float) -> str:
    """The rounds (r) or epochs (e) to a threshold, and how many seeds reach it if not all do."""
    name = percent_name(threshold)
    found = [reached[name] for reached in pair.line.values("reached")]
    needed = [number for number in found if number is not None]
    if not needed:
        return NOTHING
    some = f" ({len(needed)}/{len(found)})" if len(needed) < len(found) else ""
    return f"{round(statistics.mean(needed), 1):g} {pair.line.unit[0]}{some}"


def difference_text(pair: Pair) -> str:
    """The difference to the baseline in points, and the number of pairs if seeds are missing."""
    if pair.is_baseline:
        return "baseline"
    found = list(pair.differences.values())
    if pair.other is None or not found:
        return NOTHING
    text = _signed(100 * statistics.mean(found))
    if len(found) > 1:
        text += f" ± {100 * statistics.stdev(found):.1f}"
    if len(found) < max(len(pair.line.seeds), len(pair.other.seeds)):
        text += f" ({len(found)} pair{'s' if len(found) > 1 else ''})"
    return text


def _signed(points: float) -> str:
    text = f"{points:+.1f}"
    return "0.0" if text in ("+0.0", "-0.0") else text


def _coloured(pairs: Sequence[Pair]) -> list[Text]:
    """The differences: a gain is green, a loss is red."""
    styles = {"+": "green", "-": "red"}
    texts = [difference_text(pair) for pair in pairs]
    return [Text(text, style=styles.get(text[0], "")) for text in texts]


def _caption(
    pairs: Sequence[Pair],
    columns: dict[str, list[str]],
    heading: str,
    unfinished: int,
    left_out: list[str],
) -> str:
    """The meaning of the columns that are shown, and what is not shown."""
    said = [spread({len(pair.line.seeds) for pair in pairs})]
    if any(name.startswith("to ") for name in columns):
        said.append("to …: first measured round (r) or epoch (e) with at least this accuracy")
    if "gap" in columns:
        said.append("gap: training minus test accuracy in points")
    said.append(f"{heading}: difference of final accuracy in points, paired by seed")
    reasons: dict[str, list[str]] = {}
    for pair in pairs:
        if pair.why:
            reasons.setdefault(pair.why, []).append(pair.line.name)
    for why, names in reasons.items():
        said.append(f"no difference for {', '.join(dict.fromkeys(names))}: {why}")
    if unfinished:
        said.append(f"left out: {unfinished} unfinished trial{'s' if unfinished > 1 else ''}")
    if left_out:
        said.append(f"with --json: {', '.join(left_out)}")
    return "\n".join(said)


def _goal(threshold: float) -> str:
    return f"to {percent_name(threshold)} %"


def _alone(pair: Pair) -> bool:
    return pooled(pair.line.setting)


def _megabytes(pair: Pair, key: str) -> str:
    return NOTHING if _alone(pair) else _mean([size / 1e6 for size in pair.line.values(key)])


def _mean(values: list[float]) -> str:
    return f"{statistics.mean(values):.1f}" if values else NOTHING
