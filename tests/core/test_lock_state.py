"""Asking about a lock: the holder is seen, and nobody is disturbed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from accord.core.files import locked
from accord.core.lock_state import is_locked

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows does not tell")


def test_a_lock_is_seen_while_it_is_held(tmp_path: Path) -> None:
    lock = tmp_path / ".lock"
    assert not is_locked(lock)
    assert not lock.exists()  # asking makes no file
    with locked(tmp_path, "refused"):
        assert is_locked(lock)
    assert not is_locked(lock)


def test_a_lock_of_another_process_is_seen_until_it_ends(tmp_path: Path) -> None:
    code = f"""
from pathlib import Path
from accord.core.files import locked
with locked(Path({str(tmp_path)!r}), "refused"):
    print("held", flush=True)
    input()
"""
    told = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", code], **told) as other:  # type: ignore[call-overload]
        assert other.stdout.readline() == "held\n"
        assert is_locked(tmp_path / ".lock")
        other.kill()
    assert not is_locked(tmp_path / ".lock")


def test_a_writer_can_start_while_others_ask(tmp_path: Path) -> None:
    """The lock is taken again and again; each time it must succeed at once."""
    code = f"""
from pathlib import Path
from accord.core.lock_state import is_locked
print("asking", flush=True)
while True:
    is_locked(Path({str(tmp_path)!r}) / ".lock")
"""
    (tmp_path / ".lock").touch()
    asking = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert asking.stdout is not None
        assert asking.stdout.readline() == "asking\n"
        for _ in range(2_000):
            with locked(tmp_path, "disturbed"):
                pass
        assert asking.poll() is None
    finally:
        asking.kill()
        asking.communicate()
