"""What the sections of a report say, checked by hand."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, TypeVar

import pytest
import torch

from accord.page.contents import make_sections
from accord.page.entropy import label_entropy
from accord.page.geometry import geometry_of
from accord.page.kinds import kinds_of
from accord.page.parts import Details, Figure, Part, Picture, Section, Table
from accord.page.sections.exchanges import points
from accord.page.sections.geometry import geometry
from accord.page.subject import Subject, read_subject
from accord.record.folders import TrialFolder
from accord.report.evidence import Evidence
from page.made import event, full_trial, small_run, write_events, write_prototypes
from written_runs import over_rounds, trial, write_run

Kind = TypeVar("Kind", bound=Part)


def subject_of(run: Path) -> Subject:
    return read_subject([run], None, None)


def sections_of(run: Path) -> dict[str, Section]:
    return {section.id: section for section in make_sections(subject_of(run))}


def all_of(section: Section, kind: type[Kind]) -> list[Kind]:
    """The parts of a kind, also inside details."""
    found: list[Kind] = []
    rest: list[Part] = list(section.parts)
    while rest:
        part = rest.pop(0)
        if isinstance(part, kind):
            found.append(part)
        if isinstance(part, Details):
            rest = [*part.parts, *rest]
    return found


def texts(table: Table) -> list[list[str]]:
    return [[cell.text for cell in row] for row in table.rows]


def test_every_section_is_there_and_none_fails(tmp_path: Path) -> None:
    found = sections_of(small_run(tmp_path / "run"))
    assert list(found)[:2] == ["question", "headline"]
    assert list(found)[-2:] == ["trials", "provenance"]
    assert {"course", "balance", "partition", "classes", "costs", "reliability"} <= {*found}
    assert "cannot be made" not in str(list(found.values()))
    assert "Damaged" not in str(list(found.values()))
    for section in found.values():
        for figure in all_of(section, Figure):
            assert any(letter.isdigit() for letter in figure.words), figure.caption
        for table in all_of(section, Table):
            assert all(len(row) == len(table.columns) for row in table.rows), table.title


def test_the_tables_of_the_notes(tmp_path: Path) -> None:
    """α × checkpoint; strategy × accuracy × λ; raw λ, s, effective λ and accuracy per epoch."""
    found = sections_of(small_run(tmp_path / "run"))
    (course,) = all_of(found["course"], Table)
    assert texts(course)[2] == [
        "α 0.5", "3 e", "62.0", "64.0", "67.0",
    ]  # fmt: skip
    assert [cell.under for cell in course.rows[2]] == ["", "", "", "+2.0", "+5.0"]
    tables = all_of(found["balance"], Table)
    strategies = tables[0]
    assert ["etf-entropy", "α 0.1", "entropy", "64.0 ± 2.0", "1 to 3", "1 to 3", "3"] in texts(
        strategies
    )
    explosion = next(table for table in tables if table.title == "λ and accuracy")
    assert texts(explosion)[1] == ["2", "100", "0.3333", "33.33", "10", "50.0"]
    assert "Client 0" in explosion.notes[0]
    steady = next(table for table in tables if "the same in all epochs" in table.title)
    assert [row[-1] for row in texts(steady)] == ["1", "2", "3"]
    every = next(table for table in tables if table.title == "λ per epoch and client")
    assert len(every.columns) == 4


def test_rounds_are_shown_as_rounds(tmp_path: Path) -> None:
    trials = [trial(name, 0, over_rounds(0.2, 0.4, 0.5)) for name in ("fedavg", "fedprox")]
    found = sections_of(write_run(tmp_path / "run", trials))
    (figure,) = all_of(found["course"], Figure)
    assert "20.0 % at round 1 to 50.0 % at round 3" in figure.words
    assert texts(all_of(found["course"], Table)[0])[1] == ["2 r", "40.0", "40.0"]


def in_exchanges(recipe: str, seed: int, counts: list[int], *accuracies: float) -> dict[str, Any]:
    """A trial of 1 MB up, 3 MB down and 90 seconds per round; `counts` are its exchanges so far."""
    found = trial(recipe, seed, over_rounds(*accuracies))
    for number, (checkpoint, count) in enumerate(zip(found["checkpoints"], counts, strict=True), 1):
        checkpoint |= {"upload_bytes": 1e6 * number, "download_bytes": 3e6 * number}
        checkpoint |= {"seconds": 60.0 * number, "server_seconds": 30.0 * number}
        checkpoint["fusions"]["average"]["exchanges"] = count
    return found


def test_accuracy_over_exchanges_bytes_and_minutes(tmp_path: Path) -> None:
    # In every exchange two clients train one after the other: the second one's net counts.
    turns = [
        in_exchanges("turns", seed, [1, 1, 2, 2], 0.2, 0.3 + seed / 10, 0.5, 0.6 + seed / 10)
        for seed in (0, 1)
    ]
    once = [in_exchanges("once", seed, [1], 0.4) for seed in (0, 1)]
    alone = [in_exchanges("alone", seed, [1], 0.3) for seed in (0, 1)]
    for one in alone:
        one["info"]["partition"] = (
            "pooled"  # it exchanges nothing, although its row counts its work
        )
    found = sections_of(write_run(tmp_path / "run", [*turns, *once, *alone]))
    (figure,) = all_of(found["exchanges"], Figure)
    assert "alone" not in figure.words
    assert len(figure.panels) == 3
    assert all("<svg" in panel.draw("a") for panel in figure.panels)
    assert "turns (average) 65.0 % after 2 exchanges, 16 MB and 6 minutes" in figure.words
    assert "once (average) 40.0 % after 1 exchange, 4 MB and 1.5 minutes" in figure.words
    subject = subject_of(tmp_path / "run")
    line = next(line for line in subject.lines if line.recipe == "turns")
    assert [(one.exchanges, round(one.accuracy, 6)) for one in points(subject, line)] == [
        (1, 35), (2, 65),
    ]  # fmt: skip


def test_one_exchange_needs_no_figure_over_exchanges(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [in_exchanges("once", 0, [1], 0.4)])
    assert "exchanges" not in sections_of(run)


def test_one_checkpoint_is_no_course(tmp_path: Path) -> None:
    assert "course" not in sections_of(write_run(tmp_path / "run", [full_trial("fafi", 0, [0.5])]))


def test_label_entropy() -> None:
    assert label_entropy([10, 10, 0, 0]) == pytest.approx(1)
    assert label_entropy([5] * 8) == pytest.approx(3)
    assert label_entropy([7, 0]) == 0
    assert label_entropy([0, 0]) == label_entropy([]) == 0
    assert label_entropy([1, 3]) == pytest.approx(2 - 0.75 * math.log2(3))


def test_the_partition_is_a_heat_map(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [full_trial("fafi", 1, [0.5])])
    (table,) = all_of(sections_of(run)["partition"], Table)
    # Counts of the first client: (0 + label + 1) % 3 · 10.
    assert texts(table)[0] == ["0", "10", "20", "", "10", "40", "1.50"]
    assert [cell.shade for cell in table.rows[0]][1:5] == [0.5, 1.0, 0.0, 0.5]


def test_many_classes_become_a_picture(tmp_path: Path) -> None:
    classes = [f"class {number}" for number in range(30)]
    run = write_run(tmp_path / "run", [full_trial("fafi", 0, [0.5], classes=classes)])
    found = sections_of(run)
    (picture,) = all_of(found["partition"], Picture)
    assert picture.png.startswith(b"\x89PNG")
    assert "label entropy" in picture.words
    assert not [t for t in all_of(found["trials"], Table) if t.heat]


def test_accuracy_per_class_is_that_of_the_confusion(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [full_trial("fafi", s, [0.4 + s / 5]) for s in (0, 1)])
    classes, matrix = all_of(sections_of(run)["classes"], Table)
    assert texts(classes)[0] == ["fafi (average)", "50", "50", "50", "50"]  # mean of 40 and 60 %
    assert texts(matrix)[0] == ["a", "50", "50", "", ""]


def one_trial(tmp_path: Path, prototypes: dict[str, torch.Tensor]) -> Evidence:
    given = full_trial("fafi", 0, [0.5], clients=list(prototypes))
    given["info"]["label_counts"] = [[1, 1, 1, 0], [0, 1, 1, 1]][: len(prototypes)]
    run = write_run(tmp_path, [given])
    (folder,) = run.joinpath("trials").iterdir()
    write_prototypes(TrialFolder(folder), prototypes)
    return subject_of(run).trials[0]


def test_an_etf_has_the_target_cosine(tmp_path: Path) -> None:
    etf = (4 / 3) ** 0.5 * (torch.eye(4) - 0.25)
    found = geometry_of(one_trial(tmp_path / "run", {"a": etf, "b": 5 * etf}))
    assert found is not None
    assert found.target == pytest.approx(-1 / 3)
    for values in found.within.values():
        assert values == pytest.approx([-1 / 3] * 6)
    assert {name: len(values) for name, values in found.held.items()} == {"a": 3, "b": 3}
    assert found.between == pytest.approx([1, 1])  # the classes 1 and 2, which both hold
    parts = geometry(subject_of(tmp_path / "run"))
    assert isinstance(parts[0], Table)
    assert texts(parts[0])[0][3:] == [
        "−0.333", "−0.333 ± 0.000", "−0.333 ± 0.000", "−0.333", "1.000 ± 0.000",
    ]  # fmt: skip


def test_prototypes_that_differ_between_clients(tmp_path: Path) -> None:
    one, two = torch.eye(4), torch.eye(4)[[0, 1, 3, 2]]
    found = geometry_of(one_trial(tmp_path / "run", {"a": one, "b": two}))
    assert found is not None
    assert found.between == pytest.approx([1, 0])
    broken = one_trial(tmp_path / "nan", {"a": torch.full((4, 4), torch.nan)})
    assert geometry_of(broken) is None
    turns = one_trial(tmp_path / "turns", {"a": one, "b": two})
    turns.folder.last_round.upload("b", 0, last=True).unlink()
    assert geometry_of(turns) is None  # the net of one client does not stand for all


def test_many_clients_are_shown_as_a_band(tmp_path: Path) -> None:
    clients = [f"{number}" for number in range(30)]
    run = write_run(tmp_path / "run", [full_trial("etf", 0, [0.5], clients=clients, rule="x")])
    (folder,) = run.joinpath("trials").iterdir()
    events = [
        event(name, epoch, lambda_raw=epoch + place, lambda_effective=epoch + place)
        for place, name in enumerate(clients)
        for epoch in range(1, 4)
    ]
    write_events(TrialFolder(folder), events)
    (figure,) = all_of(sections_of(run)["balance"], Figure)
    assert [key.label for key in figure.keys][:2] == ["effective λ", "raw λ"]
    assert "between 1 and 32" in figure.words


def test_seeds_that_were_added_later_belong_to_the_same_recipe(tmp_path: Path) -> None:
    """The study asked for more seeds and fusions in between."""
    trials = [full_trial("fafi", seed, [0.4 + 0.2 * seed]) for seed in (0, 1)]
    for count, given in enumerate(trials, 1):
        given["info"]["config"] |= {
            "options": {"seeds": [*range(count)]},
            "fusions": [{"as": str(count)}],
        }
    (kind,) = kinds_of(subject_of(write_run(tmp_path / "run", trials)))
    assert kind.accuracies == pytest.approx([0.4, 0.6])


def test_sites_are_shown_beside_their_own_nets(tmp_path: Path) -> None:
    def at(accuracy: float | None, took_part: bool = True) -> dict[str, object]:
        figures = dict.fromkeys(("balanced_accuracy", "worst_class", "ece", "loss"), accuracy)
        about = {"took_part": took_part, "images": 10 if accuracy else 0, "own_accuracy": None}
        return {"accuracy": accuracy, **figures, **about}

    trials = []
    for seed in (0, 1):
        for recipe, more in (("fafi", 0.2), ("local-only", 0.0)):
            given = full_trial(recipe, seed, [0.5], fusions=("f",))
            sites = {"north": at(0.4 + more + seed / 10), "<b>": at(0.3 + more, took_part=False)}
            given["checkpoints"][0]["fusions"]["f"]["sites"] = {**sites, "empty": at(None)}
            trials.append(given)
    found = sections_of(write_run(tmp_path / "run", trials))
    (table,) = all_of(found["sites"], Table)
    assert [column.heading for column in table.columns][:5] == [
        "recipe (fusion)", "site", "images", "accuracy %", "alone %",
    ]  # fmt: skip
    rows = {row[1]: row for row in texts(table) if row[0] == "fafi (f)"}
    assert rows["north"][2:5] == ["10", "65.0 ± 7.1", "45.0 ± 7.1"]
    assert rows["<b> (took no part)"][3] == "50.0 ± 0.0"
    assert rows["empty"][2:4] == ["0", "–"]
