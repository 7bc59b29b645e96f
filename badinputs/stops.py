"""`python -m badinputs.stops`: signals at many moments of many commands, in real processes.

A command that is stopped says so in one line, exits with 128 + the signal's number, and leaves no
process behind.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from badinputs.kinds.options import ANSWER, BRIEF, EXPORT, NEEDS, REPORT, RUN, SAVE
from badinputs.stage import Stage

COMMANDS = (
    ("results", "run"),
    ("run", "study.yaml", "--workers", "2", "--out", "out", "budget.epochs=40"),
    (*RUN, "out", "budget.epochs=40"),
    (*SAVE, "m"),
    (*EXPORT, "m.onnx"),
    (*REPORT, "p.html"),
    (*BRIEF, "b"),
    (*ANSWER, "u"),
)
MOMENTS = (0.1, 0.2, 0.4, 0.8, 1.3, 2.0, 3.0, 4.5)  # seconds after the start
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
EARLY = 0.3
GRACE = 1.5  # seconds after which no process may be left; one, and half a second for this machine


def main() -> None:
    """Tries every command, moment and signal; prints what is wrong."""
    with tempfile.TemporaryDirectory(prefix="accord-stops-") as name:
        os.environ["ACCORD_CACHE"] = str(Path(name) / "stage" / "cache")
        stage = Stage(Path(name) / "stage")
        wrong = 0
        tries = [(w, m, s) for w in COMMANDS for m in MOMENTS for s in SIGNALS]
        for words, moment, sent in tries:
            with tempfile.TemporaryDirectory(prefix="accord-stop-") as place:
                stage.copy(NEEDS, Path(place))
                found = _stopped(words, moment, sent, Path(place))
            if found:
                wrong += 1
                print(f"{sent.name} after {moment} s: accord {' '.join(words)}\n    {found}")
        print(f"{len(tries)} stops, {wrong} wrong")
    sys.exit(1 if wrong else 0)


def _stopped(words: tuple[str, ...], moment: float, sent: signal.Signals, folder: Path) -> str:
    """What is wrong with the end of a command that gets a signal; an empty text if nothing is."""
    process = subprocess.Popen(
        [sys.executable, "-m", "accord", *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler) and None,
    )
    time.sleep(moment)
    family = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(sent)
    try:
        _, error = process.communicate(timeout=20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return "does not end"
    left = _left(family)
    for one in left:
        one.kill()
    codes = {0, 128 + sent, -sent if sent == signal.SIGKILL or moment < EARLY else 0}
    faults = [f"{len(left)} processes are left"] if left else []
    if process.returncode not in codes:
        faults.append(f"exit code {process.returncode}, expected one of {sorted(codes)}")
    # Before Python has found the package, nobody can catch a signal.
    if "Traceback" in error and (moment > EARLY or "accord/" in error):
        faults.append(f"traceback: {' / '.join(error.strip().splitlines()[-3:])}")
    said = [line for line in error.splitlines() if "stopped" in line]
    if process.returncode == 128 + sent and len(said) != 1:
        faults.append(f"{len(said)} lines say that it was stopped")
    return "; ".join(faults)


def _left(family: list[psutil.Process]) -> list[psutil.Process]:
    """The processes that still run after some time; one that has ended may wait for its parent."""
    deadline = time.monotonic() + GRACE
    while (left := [one for one in family if _runs(one)]) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left


def _runs(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


if __name__ == "__main__":
    main()
