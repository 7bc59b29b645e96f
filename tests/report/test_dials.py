"""`accord dials`: telemetry as a table, whole or while a study still runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console

from accord.core.errors import AccordError
from accord.record.record import Record
from accord.report.dials import _shown, _spread, events_of, show_dials
from accord.report.results import Results


@pytest.fixture
def record(tmp_path: Path) -> Record:
    """A record of two trials by hand: only what the dials look at."""
    for name, raw in (("etf-fixed-a0.1-s0-aa", 5.0), ("fafi-a0.1-s0-bb", None)):
        folder = tmp_path / "trials" / name
        folder.mkdir(parents=True)
        (folder / "trial.json").write_text(json.dumps({"id": name, "status": "running"}))
        lines = [
            json.dumps({"client": client, "epoch": epoch, "lambda_raw": raw, "loss_local": epoch})
            for client in ("0", "1")
            for epoch in (1, 2)
        ]
        (folder / "events.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "study.yaml").write_text("name: x\n")
    return Record(tmp_path)


def test_one_table_per_trial_with_a_row_per_dial_and_client(record: Record) -> None:
    fixed, plain = show_dials(record, ["lambda_raw", "loss_local"], None)
    assert [str(column.header) for column in fixed.columns] == ["dial", "client", "1", "2"]
    assert fixed.row_count == 4
    assert plain.row_count == 2  # fafi has no λ


def test_clients_are_in_the_order_of_the_partition_and_cannot_control_the_terminal(
    record: Record,
) -> None:
    trial = next(iter(record.trials()))
    names = ["9", "10", "\x1b[31mred\n", "x" * 300, "[bold]"]
    trial.write_info({"client_files": dict.fromkeys(names, "file")})
    lines = [json.dumps({"client": n, "epoch": 1, "lambda_raw": 1.0}) for n in reversed(names)]
    trial.events.write_text("\n".join(lines) + "\n")
    (table,) = show_dials(record, ["lambda_raw"], trial.id)
    cells = [str(cell) for cell in table.columns[1].cells]
    assert cells[:3] == ["9", "10", "�[31mred�"]
    assert cells[3].startswith("xxxx")
    assert len(cells[3]) < 70
    assert cells[4] == "[bold]"


def test_trials_are_chosen_by_a_part_of_their_name(record: Record) -> None:
    assert len(show_dials(record, [], "fafi")) == 1
    with pytest.raises(AccordError, match=r"no telemetry.*etf-fixed-a0\.1-s0-aa"):
        show_dials(record, [], "nothing")


def test_an_unknown_dial_is_told_with_the_nearest(record: Record) -> None:
    with pytest.raises(AccordError, match="did you mean 'lambda_raw'"):
        show_dials(record, ["lamda_raw"], None)


def test_a_line_on_its_way_and_an_epoch_done_twice_do_no_harm(record: Record) -> None:
    trial = next(iter(record.trials()))
    with trial.events.open("a") as file:
        file.write(json.dumps({"client": "0", "epoch": 2, "lambda_raw": 7.0}) + "\n")
        file.write('{"client": "0", "epo')
    events = events_of(trial)
    assert len(events) == 4
    assert next(e for e in events if (e["client"], e["epoch"]) == ("0", 2))["lambda_raw"] == 7


def test_many_epochs_are_thinned_out_to_the_first_the_last_and_some_between() -> None:
    assert _spread(list(range(1, 51)), 3) == [1, 25, 50]
    assert _spread([1, 2], 9) == [1, 2]


def test_as_many_epochs_are_shown_as_fit(record: Record) -> None:
    trial = next(iter(record.trials()))
    lines = [json.dumps({"client": "0", "epoch": e, "lambda_raw": 2e8}) for e in range(1, 61)]
    trial.events.write_text("\n".join(lines) + "\n")
    for width in (60, 80, 120, 200):
        (table,) = show_dials(record, ["lambda_raw"], trial.id, width)
        console = Console(width=width)
        with console.capture() as captured:
            console.print(table)
        text = captured.get()
        assert "lambda_raw" in text
        assert text.count("2e+08") == len(table.columns) - 2
        assert "…" not in text


def test_dials_that_no_recipe_has_are_told(record: Record) -> None:
    with pytest.raises(AccordError, match="no recipe of these trials"):
        show_dials(record, ["lambda_raw"], "fafi")


def test_results_give_every_event_with_its_trial(record: Record) -> None:
    events = Results(record.path, []).events()
    assert len(events) == 8
    assert {event["trial"] for event in events} == {"etf-fixed-a0.1-s0-aa", "fafi-a0.1-s0-bb"}


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "–"), (4147315.36, "4.15e+06"), (7384.2, "7,384"), (0.3679, "0.368"), (2e-6, "2e-06")],
)
def test_values_are_short(value: float | None, shown: str) -> None:
    assert _shown(value) == shown


def test_beside_other_terms_a_dial_is_found_by_its_own_name(record: Record) -> None:
    trial = next(iter(record.trials()))
    event = {"client": "0", "epoch": 1, "anchors_lambda_raw": 2.0, "separation_lambda_raw": 3.0}
    trial.events.write_text(json.dumps(event) + "\n")
    (table,) = show_dials(record, [], trial.id)
    assert table.row_count == 2
    (table,) = show_dials(record, ["separation_lambda_raw"], trial.id)
    assert table.row_count == 1
