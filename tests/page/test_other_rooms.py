"""Sections that show what other rooms say: the diagnosis, and the pixels of examples."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from accord.core.errors import AccordError
from accord.page.contents import read_report
from accord.page.parts import Gallery, Items, Prose, Section
from accord.page.write import make_report
from page.made import HOSTILE, full_trial
from written_runs import write_run


def section_of(run: Path, name: str) -> Section:
    return next(one for one in read_report([run])[1] if one.id == name)


def test_findings_are_on_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = write_run(tmp_path / "run", [full_trial("fafi", seed, [0.5]) for seed in (0, 1)])
    asked: list[list[str]] = []
    finding = SimpleNamespace(
        title="λ explodes", level="serious", evidence=[f"Client {HOSTILE[0]}: λ 4,096."],
        meaning="It is too large.", remedy="Bound it.", override="accord run x.yaml",
        trials=["one", "two"],
    )  # fmt: skip

    def diagnose(runs: list[Any]) -> list[Any]:
        asked.append([trial.id for one in runs for trial in one.trials])
        return [finding]

    monkeypatch.setattr("accord.page.sections.diagnosis.diagnose", diagnose)
    (items,) = section_of(run, "diagnosis").parts
    assert isinstance(items, Items)
    assert items.items[0].lines == [
        f"Client {HOSTILE[0]}: λ 4,096.", "It is too large.", "To try: Bound it.",
        "Seen in: one, two.",
    ]  # fmt: skip
    page = make_report([run], "html", trial="fafi-1")
    assert asked[-1] == ["fafi-1-01"]  # only the chosen trials are diagnosed
    assert "<code>accord run x.yaml</code>" in page
    assert HOSTILE[0] not in page


def test_examples_show_images_or_say_why_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = full_trial("fafi", 0, [0.5], classes=["cat", "dog", *HOSTILE[:2]])
    given["checkpoints"][-1]["fusions"]["average"]["examples"] = [
        {"image": 7, "label": 0, "predicted": 1, "confidence": 0.98},
        {"image": 3, "label": 1, "predicted": 1, "confidence": 1.0},
        {"image": 3, "label": 1, "predicted": 99, "confidence": 1.0},  # no such class
    ]
    run = write_run(tmp_path / "run", [given])

    def pixels(_record: Any, _info: Any, examples: list[Any]) -> list[Any]:
        return [np.full((100, 80, 3), one["image"], np.uint8) for one in examples]

    monkeypatch.setattr("accord.page.sections.examples.example_images", pixels)
    (gallery,) = section_of(run, "examples").parts
    assert isinstance(gallery, Gallery)
    assert [(one.words, one.right) for one in gallery.images] == [
        ("✗ dog, 98 %; true: cat", False),
        ("✓ dog, 100 %", True),
    ]
    assert all(one.png.startswith(b"\x89PNG") and len(one.png) < 2000 for one in gallery.images)

    def gone(*_: Any) -> list[Any]:
        raise AccordError("there are no files of 'svhn'.")

    monkeypatch.setattr("accord.page.sections.examples.example_images", gone)
    (told,) = section_of(run, "examples").parts
    assert isinstance(told, Prose)
    assert told.text == "The test images cannot be shown: there are no files of 'svhn'."
