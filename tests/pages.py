"""A page of the documentation, followed as a reader follows it: files, then commands in order."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from accord.cli import main

ROOT = Path(__file__).resolve().parents[1]
NUMBER = r"[+−-]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?"
# The hash in the name of a trial; a number with its unit of time, or a dash where there is none;
# `8 r (1/2)` of `accord compare`.
CELL = re.compile(rf"-[0-9a-f]{{10}}\b|(?:{NUMBER}|–)(?: (?:r|e|s|min|h)\b)?(?: \(\d+/\d+\))?")


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


def written_files(page: str) -> dict[str, str]:
    """The files that the page shows; their first line is a comment with the name."""
    blocks: list[str] = re.findall(r"```(?:python|yaml)\n(# [\w./-]+\n.*?)```", page, re.S)
    return {block.split("\n", 1)[0].removeprefix("# "): block for block in blocks}


def commands(page: str) -> list[tuple[str, str]]:
    """(command, output) of every console block, in order."""
    found = []
    for block in re.findall(r"```console\n(.*?)```", page, re.S):
        for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
            command, _, output = part.partition("\n")
            found.append((command, output))
    return found


def equal(told: str, found: str) -> bool:
    """Whether a command printed what the page shows; `…` stands for any text."""
    pattern = ".*".join(re.escape(part) for part in told.rstrip().split("…"))
    return re.fullmatch(pattern, found.rstrip(), re.S) is not None


def alike(told: str, found: str) -> bool:
    """As `equal`, if numbers are left out of account, and the order of lines and some columns.

    Numbers differ between processors, and rows are sorted by them. Every line of the page must
    be in the output, at least with the words and as many numbers as the page shows. Other lines
    are allowed only if the page has a line `…`.
    """
    left = [_words(line) for line in found.splitlines() if line.strip()]
    lines = [line for line in told.splitlines() if line.strip()]
    for line in sorted(lines, key=len, reverse=True):
        if line.strip() == "…":
            continue
        match = next((words for words in left if _within(_words(line), words)), None)
        if match is None:
            return False
        left.remove(match)
    return not left or any(line.strip() == "…" for line in lines)


def _words(line: str) -> list[str]:
    return re.sub("─+", "─", CELL.sub(" # ", line)).split()


def _within(some: list[str], every: list[str]) -> bool:
    """Whether all words of `some` are in `every`, in the same order; `…` may stand for any."""
    rest = iter(every)
    return all(word in rest for word in some if word != "…")


def follow(
    page: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    agrees: Callable[[str, str], bool] = equal,
) -> str:
    """Does all that the page tells, in `folder`; returns everything that was printed."""
    for name, content in written_files(page).items():
        (folder / name).write_text(content)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.delenv("ACCORD_STATE")
    said = ""
    for command, output in commands(page):
        program, *words = shell_words(command)
        # One core means no worker processes, which take seconds to start; the results are the same.
        cores = {0, 1} if "--dry-run" in words else {0}  # an estimate is told for two workers
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, cores=cores: cores, raising=False)
        if program == "python":
            runpy.run_path(words[0])
        else:
            assert program == "accord"
            monkeypatch.setattr(sys, "argv", [program, *words])
            with pytest.raises(SystemExit) as end:
                main()
            assert not end.value.code, (command, capsys.readouterr().err)
        found = capsys.readouterr().out.rstrip()
        assert agrees(output, found), f"$ {command}\n{found}\n\nThe page shows:\n{output}"
        said += found
    return said


def shell_words(command: str) -> list[str]:
    """The words of a command, with the shell's `*` expanded."""
    found: list[str] = []
    for word in shlex.split(command):
        found += sorted(map(str, Path().glob(word))) if "*" in word else [word]
    return found
