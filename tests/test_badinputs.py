"""A part of the suite of bad inputs; `python -m badinputs` tries all of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from badinputs.case import REFUSED, Case, Ended, faults
from badinputs.kinds import all_cases

ROOT = Path(__file__).resolve().parents[1]
EVERY = 9  # one case of so many
ENDED = Ended(2, "", "accord: expected a number. Give one.\n", 0.1, 10**8)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the suite forks a process for each case")
def test_bad_inputs_are_refused_or_told() -> None:
    """It is a process of its own, because a fork of this one would inherit PyTorch's threads."""
    words = [sys.executable, "-m", "badinputs", "--part", f"2/{EVERY}"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert "wrong" in done.stdout


def test_the_suite_is_large_and_its_titles_differ() -> None:
    cases = list(all_cases())
    assert len(cases) >= 1_000
    assert len({(case.title, case.output, case.error) for case in cases}) == len(cases)


def test_every_fault_is_noticed() -> None:
    case = Case("kind", "name", ("results", "run"), codes=REFUSED, says="number")
    assert faults(case, ENDED, None, []) == []
    bad = {
        "hangs": Ended(None, "", ENDED.error, 61.0, 0),
        "computes": Ended(2, "", ENDED.error, 21.0, 0),
        "exit code": Ended(0, "", ENDED.error, 0.1, 0),
        "traceback": Ended(2, "", f"Traceback\n{ENDED.error}", 0.1, 0),
        "took": Ended(2, "", ENDED.error, 0.1, 3 * 10**9),
        "control": Ended(2, "\x1b[31m", ENDED.error, 0.1, 0),
        "lines": Ended(2, "", ENDED.error * 9, 0.1, 0),
        "does not say": Ended(2, "", "accord: no.\n", 0.1, 0),
    }
    for said, ended in bad.items():
        assert any(said in fault for fault in faults(case, ended, None, [])), said
    assert faults(case, ENDED, None, ["study.yaml"]) == ["changed study.yaml"]
    reading = Case("kind", "name", ("results", "run"), codes=frozenset({0, 2}), healthy=True)
    usual, other = Ended(0, "fafi 90", "", 0.1, 0), Ended(0, "fafi 10", "", 0.1, 0)
    assert faults(reading, usual, usual, []) == []
    assert faults(reading, other, usual, []) == ["accepted without a word, with another result"]
    warned = Ended(0, "fafi 10", "measures.json is damaged", 0.1, 0)
    assert faults(reading, warned, usual, []) == []
