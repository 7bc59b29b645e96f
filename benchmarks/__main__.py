"""`python -m benchmarks` runs all benchmarks, `python -m benchmarks step views` runs two."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from benchmarks import (
    bank,
    centred,
    closedform,
    dials,
    engines,
    estimates,
    fusing,
    hundred,
    hybrid,
    many_classes,
    memory,
    mergenet,
    overhead,
    startup,
    step,
    student,
    study,
    views,
    visit,
)
from benchmarks.figure import Figure, show

BENCHMARKS: dict[str, Callable[[], list[Figure]]] = {
    "startup": startup.measure,
    "study": study.measure,
    "step": step.measure,
    "overhead": overhead.measure,
    "dials": dials.measure,
    "bank": bank.measure,
    "fusing": fusing.measure,
    "student": student.measure,
    "closedform": closedform.measure,
    "hybrid": hybrid.measure,
    "many-classes": many_classes.measure,
    "hundred": hundred.measure,
    "centred": centred.measure,
    "memory": memory.measure,
    "mergenet": mergenet.measure,
    "engines": engines.measure,
    "estimates": estimates.measure,
    "views": views.measure,
    "visit": visit.measure,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=", ".join(BENCHMARKS))
    names = parser.parse_args().names or list(BENCHMARKS)
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"unknown {', '.join(unknown)}; expected {', '.join(BENCHMARKS)}")
    figures = []
    for name in names:
        print(f"{name} …", file=sys.stderr, flush=True)
        found = BENCHMARKS[name]()
        for figure in found:
            print(f"  {figure.name}: {figure.measured}", file=sys.stderr, flush=True)
        figures += found
    show(figures)


if __name__ == "__main__":
    main()
