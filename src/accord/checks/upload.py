"""All checks of one upload, in order. Every way into a federation leads through `check_upload`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from accord.checks.course import check_course
from accord.checks.net import check_net
from accord.checks.statistics import check_statistics
from accord.checks.sums import check_map_sums
from accord.messages import Briefing, Upload

Check = Callable[[Upload, Briefing, str], None]
_accepted: set[tuple[int | str, ...]] = set()  # the states of files that were checked


def check_upload(upload: Upload, briefing: Briefing, where: str) -> None:
    """Raises AccordError if no honest client could have sent the upload.

    The message names `where`, the tensor, the value that was found and what is possible. A claim
    that is only unusual is accepted.
    """
    check_values(upload, briefing, where)
    check_course(upload, briefing, where)


def check_file(upload: Upload, briefing: Briefing, path: Path, check: Check = check_upload) -> None:
    """Checks the upload of a file, unless this process has checked the same file before."""
    found = path.stat()
    state = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
    if (*state, briefing.digest) not in _accepted:
        check(upload, briefing, str(path))
        _accepted.add((*state, briefing.digest))


def check_values(upload: Upload, briefing: Briefing, where: str) -> None:
    """The same without the epoch and the telemetry, for an upload that only measures the speed."""
    upload.check(briefing, where)
    if briefing.header.uploads == "sums":
        check_map_sums(upload, briefing, where)
    else:
        check_net(upload, briefing, where)
        check_statistics(upload, briefing, where)
