"""Whatever a command raises: one line on standard error, and an exit code that says what it was."""

from __future__ import annotations

import errno
import io
import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import click
import numpy as np
import pytest
import torch
import yaml

from accord.commands.boundary import bounded
from accord.core import stopping
from accord.core.errors import AccordError
from accord.core.streams import OUTPUT, ReaderGone
from accord.engines.base import failure


def raising(error: BaseException) -> Callable[[], object]:
    def command() -> object:
        raise error

    return command


def deep() -> object:
    return json.loads("[" * 100_000)


def huge() -> object:
    return int("9" * 5_000)


def test_errors_of_inputs_and_machines_are_sentences(capsys: pytest.CaptureFixture[str]) -> None:
    cases: list[tuple[Callable[[], object], str]] = [
        (raising(AccordError("two\nlines")), "two\nlines"),
        (deep, "nested too deeply"),
        (huge, "a number is too large"),
        (lambda: json.loads("{"), "It may be damaged"),
        (lambda: yaml.safe_load("[: x]:"), "It may be damaged"),
        (lambda: zipfile.ZipFile(io.BytesIO(b"PK")), "It may be damaged"),
        (lambda: b"\xff".decode(), "not valid UTF-8"),
        (lambda: "\udcff".encode(), "not valid UTF-8"),
        (lambda: 10.0**400, "a number is too large"),
        (lambda: np.zeros(2**60, np.uint8), "memory of this machine is not sufficient"),
        (lambda: torch.zeros(2**60), "memory of this machine is not sufficient"),
        (raising(MemoryError()), "memory of this machine is not sufficient"),
        (lambda: Path("a\0b").read_text(), "no path may contain"),
        (lambda: Path("/none/x").read_text(), "/none/x: No such file or directory"),
        (lambda: Path("/").read_text(), "/: Is a directory"),
        (raising(OSError(errno.ENOSPC, "No space left on device", "/x")), "/x: No space left"),
        (raising(OSError(errno.EDQUOT, "Disk quota exceeded")), "Disk quota exceeded. Free"),
        (raising(OSError("16 requested and 0 written")), "16 requested and 0 written"),
        (raising(OSError(errno.EBADF, "Bad file descriptor", OUTPUT)), "output is closed"),
        (raising(BrokenPipeError(errno.EPIPE, "Broken pipe", "a socket")), "Broken pipe"),
        (raising(click.UsageError("no such \udcff option")), "no such"),
        (raising(AccordError("\x1b[31mred")), "red"),
    ]
    for command, said in cases:
        assert bounded(command) == 2, said
        error = capsys.readouterr().err
        assert said in error
        assert "Traceback" not in error
        assert "\x1b" not in error


def test_an_exit_code_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    assert bounded(lambda: None) == 0
    assert bounded(lambda: 1) == 1
    assert bounded(raising(SystemExit(1))) == 1
    assert bounded(raising(ReaderGone())) == 0
    assert capsys.readouterr().err == ""


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process to which no signal was sent."""
    monkeypatch.setattr(stopping._State, "told", False)
    monkeypatch.setattr(stopping._State, "arrived", None)


@pytest.mark.usefixtures("fresh")
def test_a_stop_is_one_line_whatever_a_library_makes_of_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    line = f"{stopping.LINE}\n"
    cases: list[tuple[BaseException, int | None, int]] = [
        (KeyboardInterrupt(), None, 130),
        (click.Abort(), None, 130),
    ]
    cases += [(stopping.Stopped(15), 15, 143), (RuntimeError("init failed"), 15, 143)]
    cases += [(stopping.Stopped(1), 1, 129), (AccordError("a worker died"), 2, 130)]
    for error, arrived, code in cases:
        monkeypatch.setattr(stopping._State, "told", False)
        monkeypatch.setattr(stopping._State, "arrived", arrived)
        assert bounded(raising(error)) == code
        assert capsys.readouterr().err == line


def test_a_defect_names_its_log_and_exits_with_70(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["accord", "run", "my.yaml"])
    for error in (KeyError("gone"), AssertionError(), ZeroDivisionError("division\nby zero")):
        assert bounded(raising(error)) == 70
        (line,) = capsys.readouterr().err.splitlines()
        found = re.search(r"a bug in Accord.* The details are in (\S+);", line)
        assert found is not None
        log = Path(found[1]).read_text()
        assert Path(found[1]).stat().st_mode & 0o077 == 0
        for word in ("Traceback", type(error).__name__, "my.yaml", "torch"):
            assert word in log
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    assert bounded(raising(KeyError("gone"))) == 70
    assert "could not be written to a log" in capsys.readouterr().err


def test_a_worker_tells_the_same_sentences() -> None:
    assert failure(RecursionError())["error"] == "user"
    assert failure(OSError(errno.ENOSPC, "full", "/x"))["error"] == "disk"
    assert failure(KeyError("x"))["error"] == "defect"


def test_a_process_without_streams_or_on_a_full_disk(tmp_path: Path) -> None:
    script = '"$0" -m accord recipes {}'
    shell = [
        (">&-", 2, "standard output is closed"),
        (">/dev/full", 2, "standard output: No space left on device"),
        ("2>&-", 0, ""),
        (">&- 2>&- <&-", 2, ""),
        ("| head -0; exit ${PIPESTATUS[0]}", 0, ""),
    ]
    for way, code, said in shell:
        done = subprocess.run(
            ["bash", "-c", script.format(way), sys.executable],
            capture_output=True,
            text=True,
            cwd=tmp_path,
        )
        assert done.returncode == code, (way, done.stderr)
        assert said in done.stderr
        assert "Traceback" not in done.stderr
        assert "ignored" not in done.stderr
    lost = subprocess.run(
        ["bash", "-c", 'exec "$0" -m accord results none 2>/dev/full', sys.executable], cwd=tmp_path
    )
    assert lost.returncode == 2


def test_streams_that_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", None)
        patch.setattr(sys, "stderr", None)
        assert bounded(lambda: print("x")) == 0
        assert bounded(raising(AccordError("x"))) == 2
