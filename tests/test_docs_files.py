"""The tutorial of a federation by files, run exactly as it is written."""

from __future__ import annotations

import re
import runpy
import shlex
import sys
from pathlib import Path

import pytest

from accord.cli import main

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "files.md").read_text()


def written_files(page: str) -> dict[str, str]:
    """The files that the page shows; their first line is a comment with the name."""
    blocks: list[str] = re.findall(r"```(?:python|yaml)\n(.*?)```", page, re.S)
    return {block.split("\n", 1)[0].removeprefix("# "): block for block in blocks}


def commands(page: str) -> list[tuple[str, str]]:
    """(command, output) of every console block, in order."""
    found = []
    for block in re.findall(r"```console\n(.*?)```", page, re.S):
        for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
            command, _, output = part.partition("\n")
            found.append((command, output))
    return found


def as_pattern(output: str) -> str:
    """The output of the page; `…` stands for any text."""
    return ".*".join(re.escape(part) for part in output.rstrip().split("…"))


def words_of(command: str) -> list[str]:
    """The words of a command, with the shell's `*` expanded."""
    found: list[str] = []
    for word in shlex.split(command):
        found += sorted(map(str, Path().glob(word))) if "*" in word else [word]
    return found


def test_the_tutorial_does_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, content in written_files(PAGE).items():
        (tmp_path / name).write_text(content)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("ACCORD_STATE")
    told = commands(PAGE)
    assert len(told) > 15
    said = ""
    for command, output in told:
        program, *words = words_of(command)
        if program == "python":
            runpy.run_path(words[0])
        else:
            assert program == "accord"
            monkeypatch.setattr(sys, "argv", [program, *words])
            with pytest.raises(SystemExit) as end:
                main()
            assert not end.value.code, (command, capsys.readouterr().err)
        found = capsys.readouterr().out.rstrip()
        assert re.fullmatch(as_pattern(output), found, re.S), (command, found)
        said += found
    assert (tmp_path / ".local/state/accord/north").is_dir()
    accuracy = re.search(r"classwise +([0-9.]+)", said)
    assert accuracy is not None
    assert float(accuracy[1]) > 80  # three clinics with a few digits each know all of them
