"""Files that a worker on another machine has written to a shared folder."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from accord.core.errors import AccordError

PATIENCE = 120.0  # seconds; NFS remembers for up to 60 s by default that a file does not exist
AGAIN = 0.5  # seconds between two looks


def wait_for_files(folder: Path, names: Iterable[str], patience: float = PATIENCE) -> None:
    """Waits until this process sees the files of `folder` that a worker says it has written.

    A client of NFS may still think that a file does not exist, because it has looked for it before.
    """
    deadline = time.monotonic() + patience
    for name in names:
        path = folder / name
        while not path.exists():
            if time.monotonic() > deadline:
                raise AccordError(
                    f"{path}: a worker says that it has written this file, but this process does "
                    f"not see it after {patience:.0f} s. Check that both use the same shared "
                    "folder, and run the same command again: it continues where it stopped."
                )
            _refresh(path.parent)
            time.sleep(AGAIN)


def _refresh(folder: Path) -> None:
    """Writes to a folder, so that the system asks the server again what the folder contains."""
    with suppress(OSError), tempfile.NamedTemporaryFile(prefix=".refresh.", dir=folder):
        pass
