"""Accord: one-shot and few-round federated learning on label-skewed data.

import accord
results = accord.run("studies/quickstart.yaml")
results.frame()
"""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` and all else are loaded when needed, so that Ctrl-C is heard soon
if TYPE_CHECKING:
    from typing import Any

    from accord.api import (
        advise,
        answer,
        audit,
        brief,
        diagnose,
        fuse,
        fuse_files,
        load,
        run,
        teacher,
        write_report,
    )
    from accord.core.errors import AccordError
    from accord.model.predictor import Predictor
    from accord.report.results import Results
    from accord.study.study import Study, load_study

__version__ = "0.1.0"
__all__ = [
    "AccordError",
    "Predictor",
    "Results",
    "Study",
    "advise",
    "answer",
    "audit",
    "brief",
    "diagnose",
    "fuse",
    "fuse_files",
    "load",
    "load_study",
    "run",
    "teacher",
    "write_report",
]

# These names are imported when they are first used, because many commands do not need torch.
_HOMES = {
    **dict.fromkeys(
        (
            *("advise", "answer", "audit", "brief", "diagnose", "fuse", "fuse_files", "load"),
            *("run", "teacher", "write_report"),
        ),
        "accord.api",
    ),
    **dict.fromkeys(("Study", "load_study"), "accord.study.study"),
    "AccordError": "accord.core.errors",
    "Predictor": "accord.model.predictor",
    "Results": "accord.report.results",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'accord' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
