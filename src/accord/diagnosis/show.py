"""Shows findings in the terminal or as JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from rich.text import Text

from accord.core.names import listed, shown
from accord.core.text import json_text, printable
from accord.diagnosis.finding import Finding
from accord.report.evidence import RunEvidence

WIDEST = 110  # characters of a line of prose; longer lines are hard to read
LABEL = 12  # characters of the words on the left
MOST_TRIALS = 3  # names of trials in a finding
STYLES = {"serious": "bold red", "important": "bold yellow", "remark": "bold"}


def show_findings(
    runs: Sequence[RunEvidence], findings: Sequence[Finding], width: int
) -> list[Text]:
    """The findings as lines of text. Only commands may be longer than `width`."""
    several = len(runs) > 1
    parts = [_line(_headline(runs, findings))]
    for number, finding in enumerate(findings, 1):
        parts += _finding(number, finding, several, min(width, WIDEST))
    missing = [sentence for run in runs for sentence in run.missing]
    if missing:
        parts += [_line(""), _line("not in the record:")]
        parts += [_line(f"  {one}") for text in missing for one in _wrapped(text, width - 2)]
    return parts


def to_json(runs: Sequence[RunEvidence], findings: Sequence[Finding]) -> str:
    content = {
        "runs": [run.label for run in runs],
        "findings": [finding.to_json() for finding in findings],
        "missing": [sentence for run in runs for sentence in run.missing],
    }
    return json_text(content)


def _headline(runs: Sequence[RunEvidence], findings: Sequence[Finding]) -> str:
    names = listed([run.label for run in runs], 3)
    read = _count([trial for run in runs for trial in run.trials])
    if not findings:
        return f"{names}: no findings in {read}"
    count = f"{len(findings)} finding{'s' * (len(findings) != 1)}"
    return f"{names}: {count} in {read}, the heaviest first"


def _count(trials: Sequence[object]) -> str:
    return f"{len(trials)} trial{'s' * (len(trials) != 1)}"


def _finding(number: int, finding: Finding, several: bool, width: int) -> Iterator[Text]:
    yield _line("")
    where = f" [{shown(finding.run)}]" if several else ""
    title = printable(f"{number}. {finding.title}{where}")
    yield _line(f"{title}  ({finding.level}, weight {finding.weight})", STYLES[finding.level])
    names = f"{_count(finding.trials)}: {listed(finding.trials, MOST_TRIALS)}"
    prose = [("found in", names)] if finding.trials else []
    prose += [("evidence", sentence) for sentence in finding.evidence]
    prose += [("meaning", finding.meaning), ("remedy", finding.remedy or "")]
    before = ""
    for label, text in prose:
        for line in _wrapped(text, width - LABEL - 3):
            yield _line(f"   {'' if label == before else label:<{LABEL}}{line}")
            before = label
    if finding.override:
        yield _line(f"   {'try':<{LABEL}}{printable(finding.override)}")


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(printable(text), max(width, 20), break_on_hyphens=False)


def _line(text: str, style: str = "") -> Text:
    """A line that the terminal may wrap but that rich does not, so that commands stay whole."""
    return Text(text, style=style, no_wrap=True, overflow="ignore")
