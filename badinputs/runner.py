"""Runs each case in a fork of this process, which has already loaded the modules of all commands.

A command of its own process would need two seconds to load them.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

from badinputs.case import PATIENCE, Case, Ended, faults
from badinputs.stage import Stage


class Runner:
    """Tries cases on copies of a stage."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._usual: dict[tuple[str, ...], Ended] = {}
        _load_modules()

    def faults(self, case: Case) -> list[str]:
        """What is wrong with the way the command of a case ends: nothing, if the list is empty."""
        usual = self._usual_end(case) if case.healthy else None
        with tempfile.TemporaryDirectory(prefix="accord-bad-") as name:
            folder = Path(name)
            self._stage.copy(case.needs, folder)
            case.prepare(folder)
            before = {kept: _digest(folder / kept) for kept in case.keeps}
            ended = _run(case, folder)
            changed = [kept for kept, was in before.items() if _digest(folder / kept) != was]
        return faults(case, ended, usual, changed)

    def _usual_end(self, case: Case) -> Ended:
        if case.words not in self._usual:
            with tempfile.TemporaryDirectory(prefix="accord-bad-") as name:
                self._stage.copy(case.needs, Path(name))
                self._usual[case.words] = _run(Case("", "", case.words), Path(name))
        return self._usual[case.words]


def _run(case: Case, folder: Path) -> Ended:
    with tempfile.TemporaryDirectory(prefix="accord-said-") as name:
        paths = [Path(name) / "out", Path(name) / "err"]
        began = time.monotonic()
        child = os.fork()
        if child == 0:
            _become(case, folder, paths)
        code, seconds, memory = _wait(child, began)
        output, error = (_text(path) for path in paths)
    return Ended(code, output, error, seconds, memory)


def _text(path: Path) -> str:
    return path.read_bytes().decode(errors="replace") if path.exists() else ""


def _become(case: Case, folder: Path, paths: list[Path]) -> None:
    """Makes this process the command; it never returns."""
    code = 99
    try:
        os.setsid()  # so that the workers of the command can be ended with it
        sys.stdout = _stream(1, case.output, paths[0])
        sys.stderr = _stream(2, case.error, paths[1])
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.chdir(folder)
        if case.disk is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (case.disk, case.disk))
        sys.argv = ["accord", *case.words]
        from accord.__main__ import main

        main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                if stream is not None:
                    stream.flush()
            except BrokenPipeError:
                pass
            except Exception:
                code = 98  # Python would complain at its end
        os._exit(code)


def _stream(number: int, kind: str, path: Path) -> Any:
    """The stream that Python makes of a file descriptor: None if the descriptor is closed."""
    if kind == "closed":
        os.close(number)
        return None
    if kind == "pipe":
        reader, writer = os.pipe()
        os.close(reader)
        os.dup2(writer, number)
    else:
        place = "/dev/full" if kind == "full" else path
        os.dup2(os.open(place, os.O_WRONLY | os.O_CREAT), number)
    return open(number, "w", encoding="utf-8", buffering=1 if number == 2 else -1, closefd=False)


def _wait(child: int, began: float) -> tuple[int | None, float, int]:
    """Exit code (None: it was stopped), seconds and memory of a process."""
    while True:
        ended, status, used = os.wait4(child, os.WNOHANG)
        waited = time.monotonic() - began
        if ended:
            _end_group(child)
            spent = used.ru_utime + used.ru_stime
            return os.waitstatus_to_exitcode(status), spent, used.ru_maxrss * 1024
        if waited > PATIENCE:
            _end_group(child)
            _, _, used = os.wait4(child, 0)
            return None, waited, used.ru_maxrss * 1024
        time.sleep(0.005)


def _end_group(child: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)


def _digest(path: Path) -> str:
    """A digest of a file, or of the names and contents of all files of a folder."""
    if not path.exists() and not path.is_symlink():
        return "absent"
    if not path.is_dir():
        return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "special"
    parts = [f"{one.relative_to(path)} {_digest(one)}" for one in sorted(path.rglob("*"))]
    return hashlib.sha256("\n".join(parts).encode(errors="surrogateescape")).hexdigest()


def _load_modules() -> None:
    import importlib
    import pkgutil

    for room in ("commands", "federation", "report", "data", "model", "diagnosis", "study"):
        package = importlib.import_module(f"accord.{room}")
        for found in pkgutil.walk_packages(package.__path__, f"accord.{room}."):
            importlib.import_module(found.name)
    importlib.import_module("accord.cli")
    for name in ("pyarrow.parquet", "PIL.Image", "sklearn.datasets", "torch", "matplotlib"):
        importlib.import_module(name)
