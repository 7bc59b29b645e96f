"""Makes a report of some runs: as a page, or its tables as Markdown or LaTeX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from accord.core.files import write_atomic
from accord.core.reading import open_plain
from accord.core.targets import refuse_file
from accord.page.contents import read_report
from accord.page.progress import Drawn
from accord.page.render import html, latex, markdown

Form = Literal["html", "markdown", "latex"]
MARKS = {"html": html.MARK, "markdown": markdown.MARK, "latex": latex.MARK}
NAME = "report.html"
BEGINNING = 2000  # bytes in which the mark of a file of ours is


def default_path(runs: Sequence[Path]) -> Path:
    """In the folder of the run; for several runs, in the current folder."""
    return runs[0] / NAME if len(runs) == 1 else Path(NAME)


def make_report(
    runs: Sequence[Path],
    form: Form,
    *,
    trial: str | None = None,
    baseline: str | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> str:
    """The report as text."""
    title, sections = read_report(runs, trial=trial, baseline=baseline, tell=tell)
    if form == "markdown":
        return markdown.to_markdown(title, sections)
    if form == "latex":
        return latex.to_latex(title, sections)
    return html.to_html(title, sections, Drawn(tell).heard)


def write_report(
    runs: Sequence[Path],
    out: Path,
    form: Form = "html",
    *,
    trial: str | None = None,
    baseline: str | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> None:
    """Writes the report to `out`, which may be an earlier report but no other file."""
    other = f"was not written by accord report --{form}"
    problem = "is no page of accord report" if form == "html" else other
    if all(run.is_dir() for run in runs):  # or else this is told first, by what reads them
        refuse_file(out, "-o", problem, lambda path: is_report(path, form))
    text = make_report(runs, form, trial=trial, baseline=baseline, tell=tell)
    write_atomic(out, text.encode("utf-8", errors="replace"))


def is_report(path: Path, form: Form) -> bool:
    """Whether a file is a report of this form."""
    with open_plain(path) as file:
        return MARKS[form].encode() in file.read(BEGINNING)
