"""The report as a list of sections."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from accord.core.names import listed
from accord.core.text import one_line
from accord.page.parts import Prose, Section
from accord.page.section import sections
from accord.page.subject import Subject, read_subject
from accord.report.evidence import ODD


def make_sections(subject: Subject) -> list[Section]:
    """All sections that have a content, in order.

    A section that fails on damaged content says so, and the others are still shown.
    """
    found = []
    for name in sorted(sections, key=lambda one: sections.get(one).place):
        chapter = sections.get(name)
        try:
            parts = chapter.make(subject)
        except (*ODD, ArithmeticError, LookupError) as error:
            said = one_line(f"{type(error).__name__}: {error}", 200)
            parts = [Prose(f"This section cannot be made from the record: {said}")]
        if parts:
            found.append(Section(name, chapter.title, parts))
    return found


def title_of(subject: Subject) -> str:
    """The names of the studies."""
    names = [str(run.asked.get("name") or run.label) for run in subject.runs]
    return listed(list(dict.fromkeys(names)), 5)


def read_report(
    runs: Sequence[Path],
    *,
    trial: str | None = None,
    baseline: str | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> tuple[str, list[Section]]:
    """The title and the sections of the report of some runs; what is missing is told as well."""
    subject = read_subject(runs, trial, baseline)
    for sentence in subject.missing:
        tell(f"warning: {sentence}")
    return title_of(subject), make_sections(subject)
