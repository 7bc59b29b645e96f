"""The Chinese README shows the same commands, options, pages and sections as the English one."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ENGLISH, CHINESE = ((ROOT / name).read_text("utf-8") for name in ("README.md", "README.zh.md"))


def blocks(text: str) -> list[str]:
    """The fenced blocks: commands, outputs, studies and code."""
    found: list[str] = re.findall(r"```\w*\n.*?```", text, re.S)
    return found


def commands(text: str) -> list[str]:
    """The first column of the table of commands."""
    found: list[str] = re.findall(r"^\| (`accord .*?) \| ", text, re.M)
    return found


def recommended(text: str) -> list[list[str]]:
    """The recipes and options of each row of the table of advice, in order."""
    rows = re.findall(r"^\|(?! `accord|---)(.*)\|$", text, re.M)[1:]
    return [sorted(set(re.findall(r"`([^`]+)`", row))) for row in rows if "`" in row]


def links(text: str) -> set[str]:
    return set(re.findall(r"\]\(([^)]+)\)", text)) - {"README.md", "README.zh.md"}


def test_both_show_the_same() -> None:
    assert len(blocks(ENGLISH)) > 5
    assert blocks(CHINESE) == blocks(ENGLISH)
    assert len(commands(ENGLISH)) > 15
    assert commands(CHINESE) == commands(ENGLISH)
    assert len(recommended(ENGLISH)) > 8
    assert recommended(CHINESE) == recommended(ENGLISH)
    assert links(CHINESE) == links(ENGLISH)
    assert CHINESE.count("\n## ") == ENGLISH.count("\n## ")
    # Every name in `…` that a reader may type is in both, also in the prose.
    names = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
    prose = [re.sub(r"```\w*\n.*?```", "", text, flags=re.S) for text in (ENGLISH, CHINESE)]
    english, chinese = (set(names.findall(text)) for text in prose)
    assert english ^ chinese <= {"results.csv", "…"}, english ^ chinese


def test_each_names_the_other() -> None:
    assert "(README.zh.md)" in ENGLISH
    assert "(README.md)" in CHINESE
