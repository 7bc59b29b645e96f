"""The tutorial of a federation by files, run exactly as it is written."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

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


def test_the_tutorial_does_what_it_says(tmp_path: Path) -> None:
    for name, content in written_files(PAGE).items():
        (tmp_path / name).write_text(content)
    own = Path(sys.executable).parent
    env = {**os.environ, "PATH": f"{own}{os.pathsep}{os.environ['PATH']}", "HOME": str(tmp_path)}
    del env["ACCORD_STATE"]
    told = commands(PAGE)
    assert len(told) > 15
    for command, output in told:
        done = subprocess.run(
            command, shell=True, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, (command, done.stderr)
        found = done.stdout.rstrip()
        assert re.fullmatch(as_pattern(output), found, re.S), (command, found)
        assert shlex.split(command)[0] in ("accord", "python")
    assert (tmp_path / ".local/state/accord/north").is_dir()
    accuracy = re.search(r"classwise +([0-9.]+)", _last(tmp_path, env))
    assert accuracy is not None
    assert float(accuracy[1]) > 80  # three clinics with a few digits each know all of them


def _last(folder: Path, env: dict[str, str]) -> str:
    words = ["accord", "fuse", "briefing.safetensors"]
    sent = ["north.safetensors", "south.safetensors", "west.safetensors"]
    done = subprocess.run(
        [*words, *sent, "--test", "test"], cwd=folder, env=env, capture_output=True, text=True
    )
    return done.stdout
