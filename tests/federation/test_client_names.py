"""Clients that are named by their data: in files, events, measures, dials, devices and fusions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

import accord
from accord.core.errors import AccordError
from accord.core.names import file_name
from accord.messages import Upload
from accord.record.folders import TrialFolder
from accord.record.record import Record
from accord.report.dials import show_dials
from tests_support import same

Raw = dict[str, Any]
NAMES = ("9", "10", "a/b", "../up", "con", "\x1b[31mred\nline", "x" * 300, "0@1", "Zürich 🏥")


def natural_study(folder: Path, names: tuple[str, ...], recipes: list[Any]) -> Raw:
    """A study of digits with a column of clients."""
    digits = load_digits()
    count = 20 * len(names)
    images = (digits.images[:count] * 15).astype(np.uint8)
    labels = digits.target[:count]
    np.savez(
        folder / "d.npz",
        **{"x_train": images, "y_train": labels, "site_train": np.array(names * 20)},
        **{"x_test": images[:40], "y_test": labels[:40]},
    )
    return {
        "name": "named",
        "data": {"name": "npz", "path": str(folder / "d.npz")},
        "partition": {"scheme": "by-column", "column": "site"},
        "net": {"backbone": "conv4"},
        "budget": {"epochs": 2, "batch": 16, "checkpoints": [1, 2]},
        "recipes": recipes,
        "keep_checkpoints": True,
        "bounds": False,
    }


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("names")
    study = natural_study(folder, NAMES, ["etf-fixed"])
    study["device"] = {"a/b": "cpu", 9: "cpu"}
    results = accord.run(study, out=folder / "run", workers=1, quiet=True)
    assert not results.failures
    return folder / "run"


def only(run: Path) -> TrialFolder:
    (trial,) = Record(run).trials()
    return trial


def test_events_measures_and_dials_know_clients_by_their_names(made: Path) -> None:
    trial, order = only(made), list(only(made).info()["client_files"])
    assert set(order) == set(NAMES)
    assert order.index("9") < order.index("10")
    events = trial.read_events()
    assert [(e["client"], e["epoch"]) for e in events] == [(n, e) for n in order for e in (1, 2)]
    for checkpoint in trial.measures()["checkpoints"]:
        assert checkpoint["took_part"] == order
        assert [client["client"] for client in checkpoint["clients"]] == order
    assert {event["client"] for event in accord.load(made).events()} == set(NAMES)
    (table,) = show_dials(Record(made), ["loss_local"], None)
    assert [str(cell) for cell in table.columns[1].cells][:2] == order[:2]


def test_every_client_has_its_own_safe_files_and_trial_json_maps_them(made: Path) -> None:
    trial = only(made)
    files = trial.info()["client_files"]
    expected = {f"{files[n]}{at}.safetensors" for n in NAMES for at in ("", "@1")}
    assert {path.name for path in (trial.path / "uploads").iterdir()} == expected
    logs = {path.name for path in (trial.path / "logs").iterdir()}
    assert logs == {"server.log", *(f"{file}.log" for file in files.values())}
    for name, file in files.items():
        assert file == f"client-{file_name(name)}"
        assert Upload.load(trial.path / "uploads" / f"{file}.safetensors").header.client == name
    text = "".join(path.read_text() for path in (trial.path / "logs").iterdir())
    assert "\x1b" not in text
    assert not list(made.rglob("up*.safetensors"))


def test_a_client_is_left_out_by_its_name(made: Path) -> None:
    results = accord.fuse(made, ["average"], without=["a/b", "x" * 300], workers=1, quiet=True)
    _, row = [r for r in results.rows if r["fusion"].startswith("average-without")]
    assert row["clients"] == len(NAMES) - 2
    (found,) = [
        fused
        for label, fused in only(made).measures()["checkpoints"][-1]["fusions"].items()
        if label == row["fusion"]
    ]
    assert set(found["without"]) == {"a/b", "x" * 300}
    everyone_else = [name for name in NAMES if name != "con"]
    results = accord.fuse(made, ["average"], without=everyone_else, workers=1, quiet=True)
    assert any("-without-8-clients-" in row["fusion"] for row in results.rows)
    with pytest.raises(AccordError, match=r"no client 'Zurich 🏥'; did you mean 'Zürich 🏥'"):
        accord.fuse(made, ["average"], without=["Zurich 🏥"], workers=1, quiet=True)
    with pytest.raises(AccordError, match=r"--without: .* has no client '0'"):
        accord.fuse(made, ["average"], without=["0"], workers=1, quiet=True)


def test_a_device_of_an_unknown_client_is_refused_before_training(tmp_path: Path) -> None:
    study = natural_study(tmp_path, ("north", "south"), ["fafi", "central"])
    for device, said in (
        ({"nroth": "cpu"}, "no client 'nroth'; did you mean 'north'"),
        ({0: "cpu"}, "no client '0'. Its clients are north, south"),
    ):
        with pytest.raises(AccordError, match=said):
            accord.run({**study, "device": device}, out=tmp_path / "run", workers=1, quiet=True)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("recipe", ["etf-attenuated", "closed-form-small"])
def test_a_federation_of_files_gives_the_bits_of_the_simulation_by_column(
    tmp_path: Path, recipe: str
) -> None:
    """The same names give the same random numbers, wherever a client works."""
    names = ("9", "10", "north")
    study = natural_study(tmp_path, names, [recipe])
    study["budget"] = {"epochs": 2, "batch": 16}
    accord.run(study, out=tmp_path / "run", workers=1, quiet=True)
    briefing = tmp_path / "briefing.safetensors"
    accord.brief(study, briefing, record=tmp_path / "record", quiet=True)
    found = np.load(tmp_path / "d.npz")
    sent = []
    for name in names:
        own = found["site_train"] == name
        file = tmp_path / f"{name}.npz"
        np.savez(file, images=found["x_train"][own], labels=found["y_train"][own])
        upload = accord.answer(briefing, file, name, keep=tmp_path / "keep")
        here = only(tmp_path / "run").path / "uploads" / f"client-{name}.safetensors"
        assert same(upload.tensors, Upload.load(here).tensors)
        sent.append(tmp_path / f"{name}.safetensors")
        upload.save(sent[-1])
    test = tmp_path / "test.npz"
    np.savez(test, images=found["x_test"], labels=found["y_test"])
    fused = accord.fuse_files(briefing, sent[::-1], [], test=test)
    assert fused.inbox.clients == list(names)  # summed in the partition's order
    (metrics,) = fused.metrics.values()
    last = only(tmp_path / "run").measures()["checkpoints"][-1]["fusions"]
    assert metrics.accuracy == pytest.approx(next(iter(last.values()))["accuracy"], abs=1e-9)
