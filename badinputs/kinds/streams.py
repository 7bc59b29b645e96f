"""Closed output, closed error messages, a full disk: in every command that needs no long work."""

from __future__ import annotations

from collections.abc import Iterator

from badinputs.case import EITHER, REFUSED, Case
from badinputs.kinds.options import ADVISE, ANSWER, BRIEF, EXPORT, NEEDS, REPORT, RUN, SAVE, TABLE

SHOWS: tuple[tuple[str, ...], ...] = (
    ("results", "run"), ("results", "run", "--json"), ("compare", "run", "--baseline", "fafi"),
    ("dials", "run"), ("diagnose", "run"), ("watch", "run", "--once"), ("recipes",), ("data",),
    ("recipes", "fafi"), ("show", "briefing.safetensors"), ("predict", "model", "one.png"),
    ("--help",), ("run", "--help"), ("--version",), ("doctor",), ("advise", "--table"),
)  # fmt: skip
WRITES: tuple[tuple[str, ...], ...] = (
    (*RUN, "out"), (*RUN, "run"), (*SAVE, "m"), (*EXPORT, "m.onnx"), (*REPORT, "p.html"),
    (*TABLE, "t.md"), (*BRIEF, "b"), (*ANSWER, "u"), (*ADVISE, "a.yaml"),
)  # fmt: skip
# Commands whose files are so small that they fit on the disk of this test, or exist already.
FULL = 600  # bytes
SMALL: frozenset[tuple[str, ...]] = frozenset({(*RUN, "run")})


def cases() -> Iterator[Case]:
    for words in SHOWS:
        yield Case("full output", "stdout", words, needs=NEEDS, output="full")
        yield Case(
            "closed output", "a pipe", words, needs=NEEDS, output="pipe", codes=frozenset({0})
        )
        yield Case(
            "closed output",
            "stdout",
            words,
            needs=NEEDS,
            output="closed",
            codes=EITHER,
            silent=True,
        )
        for kind in ("closed", "full", "pipe"):
            yield _without_errors(kind, words)
        wrong = (*words, "--nothing")
        yield Case("closed errors", "an error", wrong, needs=NEEDS, error="closed", silent=True)
    for words in WRITES:
        codes = EITHER if words in SMALL else REFUSED
        yield Case(
            "full disk",
            "",
            words,
            needs=NEEDS,
            disk=FULL,
            codes=codes,
            keeps=("run/study.yaml", "model"),
        )
        yield _without_errors("closed", words)
        yield Case(
            "closed output",
            "closed",
            words,
            needs=NEEDS,
            output="closed",
            codes=EITHER,
            silent=True,
        )


def _without_errors(kind: str, words: tuple[str, ...]) -> Case:
    """Lines on the error stream may be lost: then the exit code is 2, and nobody can be told."""
    return Case("closed errors", kind, words, needs=NEEDS, error=kind, codes=EITHER, silent=True)
