"""The quick audit after `accord run` and `accord fuse`: one line per trial that needs a look."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

from accord.auditing.audit import audit_runs
from accord.auditing.show import warnings
from accord.diagnosis.diagnose import only_trials
from accord.report.evidence import ODD, Evidence, read_evidence

MOST_BYTES = 100_000_000  # after so many, no further trial is read; `accord audit` reads all
MOST_LINES = 5


def warn(run_dir: Path, tell: Callable[[str], None], trial: str | None = None) -> None:
    """Tells which clients stand out clearly. A record that cannot be read is no reason to fail."""
    try:
        (run,) = read_evidence([run_dir])
        asked = [one for every in only_trials([run], trial) for one in every.trials]
        before = accumulate((_bytes(one) for one in asked), initial=0)
        chosen = [one for one, size in zip(asked, before, strict=False) if size < MOST_BYTES]
        lines = warnings(audit_runs([replace(run, trials=chosen)], quick=True, tell=tell))
    except ODD:
        return
    for line in lines[:MOST_LINES]:
        tell(line)
    more = len(lines) - MOST_LINES
    if more > 0:
        tell(f"warning: {more} more trial{'s' * (more > 1)}: accord audit {run_dir}")
    left = len(asked) - len(chosen)
    if left:
        tell(
            f"the uploads of {left} further trial{'s' * (left > 1)} were not looked at: "
            f"accord audit {run_dir}"
        )


def _bytes(trial: Evidence) -> int:
    paths = [trial.folder.last_round.upload(name, 0, last=True) for name in trial.clients]
    return sum(path.stat().st_size for path in paths if path.exists())
