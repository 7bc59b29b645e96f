"""The tables of a report as LaTeX, with the rules of the package booktabs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from accord.core.text import one_line
from accord.page.parts import Cell, Part, Section, Table

MARK = "% accord report"
SPECIAL = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#",
    "%": r"\%", "_": r"\_", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': r"\textquotedbl{}",
    "`": r"\textasciigrave{}", "'": r"\textquotesingle{}", "[": r"{[}", "]": r"{]}",
    "±": r"\ensuremath{\pm}", "−": r"\ensuremath{-}", "×": r"\ensuremath{\times}",
    "α": r"\ensuremath{\alpha}", "λ": r"\ensuremath{\lambda}", "σ": r"\ensuremath{\sigma}",
    "γ": r"\ensuremath{\gamma}", "Δ": r"\ensuremath{\Delta}", "≈": r"\ensuremath{\approx}",
    "√": r"\ensuremath{\surd}", "→": r"\ensuremath{\rightarrow}", "·": r"\ensuremath{\cdot}",
    "≤": r"\ensuremath{\leq}", "≥": r"\ensuremath{\geq}", "∞": r"\ensuremath{\infty}",
    "∇": r"\ensuremath{\nabla}", "⁻": r"\textsuperscript{--}",
    "–": r"\textendash{}", "—": r"\textemdash{}", "…": r"\ldots{}", "’": r"\textquoteright{}",
    "²": r"\textsuperscript{2}",
    "₀": r"\textsubscript{0}", "★": r"\ensuremath{\star}", "\u2007": "~", "�": "?",
}  # fmt: skip
BEYOND = re.compile(r"[^\n\x20-\x7e\u00a1-\u00ff]")  # what inputenc does not know


def to_latex(title: str, sections: Sequence[Section]) -> str:
    """Every table of the report; a table inside details is left out."""
    bodies = [
        _table(table, section.title)
        for section in sections
        for table in _tables(section.parts)
        if not table.heat
    ]
    body = "\n\n".join(bodies)
    return "\n".join([MARK, *_preamble(title, body), "", body, ""])


def _preamble(title: str, body: str) -> list[str]:
    """What the document must load, as remarks."""
    told = [
        f"% {one_line(title, 200)}",
        r"% In the preamble: \usepackage{booktabs,textcomp} and \usepackage[T1]{fontenc}",
        r"% Include this file with \input; each table is a table environment of its own.",
    ]
    if BEYOND.search(body):
        told.append(
            r"% Some names hold other letters, such as Chinese ones: compile with XeLaTeX or "
            r"LuaLaTeX and load \usepackage{ctex} instead of fontenc."
        )
    return told


def escape(text: str) -> str:
    """One line that LaTeX shows as it is; no name can become a command."""
    safe = "".join(SPECIAL.get(sign, sign) for sign in one_line(text, 2000))
    return re.sub("-(?=-)", "-{}", safe)  # two hyphens would become a dash


def _tables(parts: Iterable[Part]) -> list[Table]:
    return [part for part in parts if isinstance(part, Table)]


def _table(table: Table, section: str) -> str:
    spec = "".join("r" if column.number else "l" for column in table.columns)
    head = " & ".join(escape(column.heading) for column in table.columns)
    rows = [" & ".join(map(_cell, row)) + r" \\" for row in table.rows]
    if table.apart is not None:
        rows.insert(table.apart, r"\midrule")
    about = ": ".join(filter(None, [section, table.title]))
    notes = " ".join(table.notes)
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{escape(f'{about}. {notes}'.strip())}}}",
            rf"\begin{{tabular}}{{{spec}}}",
            r"\toprule",
            rf"{head} \\",
            r"\midrule",
            *rows,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
        ]
    )


def _cell(cell: Cell) -> str:
    text = escape(cell.text)
    if cell.strong:
        text = rf"\textbf{{{text}}}"
    if cell.tied:
        text += f"~{escape('≈')}"
    return rf"{text} {{\scriptsize {escape(cell.under)}}}" if cell.under else text
