"""`python -m badinputs` tries every bad input; `python -m badinputs npz` those with this text."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from badinputs.kinds import all_cases
from badinputs.runner import Runner
from badinputs.stage import Stage


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m badinputs", description=__doc__)
    parser.add_argument("texts", nargs="*", help="only cases whose title has one of these texts")
    parser.add_argument("--stage", type=Path, help="keep the healthy inputs in this folder")
    parser.add_argument("--part", help="2/5: only the second of five parts")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="accord-stage-") as name:
        stage = asked.stage.absolute() if asked.stage else Path(name)
        os.environ["ACCORD_CACHE"] = str(stage / "cache")
        runner = Runner(Stage(stage))
        chosen = [
            case
            for case in all_cases()
            if not asked.texts or any(text in case.title for text in asked.texts)
        ]
        if asked.part:
            part, parts = map(int, asked.part.split("/"))
            chosen = chosen[part - 1 :: parts]
        tried, bad = Counter[str](), Counter[str]()
        began = time.monotonic()
        for number, case in enumerate(chosen, 1):
            found = runner.faults(case)
            tried[case.kind] += 1
            bad[case.kind] += bool(found)
            if found:
                print(f"{case.title[:200]!r}\n    {'; '.join(found)}", flush=True)
            if sys.stderr.isatty():
                print(f"\r{number} of {len(chosen)}", end="", file=sys.stderr)
        for kind, count in tried.items():
            print(f"{kind:25} {count:5} tried, {bad[kind]:4} wrong")
        seconds = time.monotonic() - began
        print(f"{'all':25} {tried.total():5} tried, {bad.total():4} wrong, in {seconds:.0f} s")
        sys.exit(1 if bad.total() else 0)


if __name__ == "__main__":
    main()
