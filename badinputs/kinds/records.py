"""Damaged files of a run: every file of the record, with the commands that read a run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from badinputs.case import EITHER, Case
from badinputs.damage import DAMAGES, Damage

READERS = (("results", "run"), ("diagnose", "run"), ("dials", "run"), ("watch", "run", "--once"))
OTHERS = (
    ("results", "run", "--json"),
    ("compare", "run", "--baseline", "fafi"),
    ("report", "run", "--markdown"),
    ("report", "run", "--latex"),
    ("results", "run", "--sites"),
    ("results", "run", "--rounds"),
)
WRITERS = (
    ("run", "study.yaml", "--out", "run", "--workers", "1"),
    ("fuse", "run", "--fusion", "classwise", "--workers", "1", "--quiet"),
)
# A pattern that finds one file of the record.
FILES = (
    "study.yaml",
    "data.json",
    "results.csv",
    "allocations/*.json",
    "allocations/*.safetensors",
    "trials/*/trial.json",
    "trials/*/measures.json",
    "trials/*/events.jsonl",
    "trials/*/round.json",
    "trials/*/briefing.safetensors",
    "trials/*/uploads/client-0.safetensors",
    "trials/*/logs/server.log",
)


def cases() -> Iterator[Case]:
    damages = list(DAMAGES.items())
    for number, pattern in enumerate(FILES):
        for at, (name, damage) in enumerate(damages):
            # Every damage of every file, each with another one of the commands.
            readers = (READERS + OTHERS)[(number + at) % len(READERS + OTHERS)]
            yield _case(pattern, name, damage, readers)
            if at % 3 == number % 3:
                yield _case(pattern, name, damage, WRITERS[(number + at) % len(WRITERS)])
    yield from _odd_values()


def _case(pattern: str, name: str, damage: Damage, words: tuple[str, ...]) -> Case:
    def prepare(folder: Path) -> None:
        damage(next((folder / "run").glob(pattern)))

    return Case(
        "damaged record",
        f"{pattern} is {name}",
        words,
        prepare,
        codes=EITHER,
        needs=("run", "study.yaml"),
        healthy=True,
    )


def _odd_values() -> Iterator[Case]:
    """JSON that is whole, with a value of another type."""
    odd = {
        "measures.json": (
            ('"accuracy": ', '"accuracy": "high", "was": '),
            ('"accuracy": ', '"accuracy": 1e999, "was": '),
            ('"accuracy": ', '"accuracy": null, "was": '),
            ('"accuracy": ', '"accuracy": [], "was": '),
            ('"epoch": ', '"epoch": true, "was": '),
            ('"epoch": ', '"epoch": -7, "was": '),
            ('"fusions": ', '"fusions": 3, "was": '),
            ('"client', '"\\u001b[31mclient'),
        ),
        "trial.json": (
            ('"status": ', '"status": 7, "was": '),
            ('"recipe": ', '"recipe": {"name": 5}, "was": '),
            ('"seed": ', '"seed": "zero", "was": '),
            ('"seconds": ', '"seconds": "long", "was": '),
            ('"upload_bytes": ', '"upload_bytes": -1, "was": '),
            ('"clients": ', '"clients": "many", "was": '),
            ('"config": ', '"config": [], "was": '),
        ),
        "events.jsonl": (
            ("\n", "\n{broken\n"),
            ("\n", "\n[]\n"),
            ('"epoch": ', '"epoch": "one", "was": '),
            ('"seconds": ', '"seconds": "1", "was": '),
            ('"loss', '"\\u001b]0;title\\u0007loss'),
        ),
        "round.json": (('"', '"\\u001b[2J'), (": ", ': null, "was": ')),
    }
    for file, changes in odd.items():
        for old, new in changes:
            for words in (*READERS, OTHERS[0], OTHERS[2]):
                yield _case(f"trials/*/{file}", f"with {new!r}", _replacing(old, new), words)


def _replacing(old: str, new: str) -> Damage:
    return lambda path: path.write_text(path.read_text().replace(old, new, 1))
