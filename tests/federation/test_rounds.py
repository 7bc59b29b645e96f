"""Several rounds through the local engine: sampling, failures, costs, and what the record keeps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import accord
from accord.client.base import Tell, answer
from accord.client.make import make_client
from accord.client.training import Training
from accord.core.errors import AccordError, ClientError
from accord.federation.bank_source import uploads_of
from accord.federation.briefing import opening
from accord.federation.plan import Plan
from accord.federation.rounds import sampled
from accord.fusion.base import Scene
from accord.fusion.uploads import UploadFiles
from accord.messages import Memory, Upload
from accord.record.folders import TrialFolder
from accord.record.record import Record
from accord.study.settings import RoundsConfig
from records import timeless
from tests_support import same

Raw = dict[str, Any]


@pytest.fixture
def rounds_study(study: Raw) -> Raw:
    study["data"] = {"name": "digits", "train_limit": 60, "test_limit": 30}
    study["budget"] = {"epochs": 1, "batch": 32}
    return {**study, "recipes": ["fedavg"], "rounds": {"count": 3}}


def run(study: Raw, out: Path, workers: int = 1) -> list[Raw]:
    return accord.run(study, out=out, workers=workers, quiet=True).rows


def only(out: Path) -> TrialFolder:
    (trial,) = Record(out).trials()
    return trial


# --- sampling ------------------------------------------------------------------------------------


@given(
    st.integers(1, 40), st.floats(0.01, 1), st.integers(0, 99), st.integers(1, 9), st.integers(1, 5)
)
def test_a_round_asks_as_many_clients_as_flower_would(
    count: int, fraction: float, seed: int, number: int, least: int
) -> None:
    clients = tuple(str(k) for k in range(count))
    least = min(least, count)
    settings = RoundsConfig(fraction=fraction, min_fit_clients=least)
    asked = sampled(clients, settings, seed, number)
    assert len(asked) in {max(int(fraction * count), least), max(int(fraction * count) + 1, least)}
    assert abs(max(fraction * count, least) - len(asked)) < 1 or len(asked) == least
    assert list(asked) == sorted(set(asked), key=int)
    assert asked == sampled(clients, settings, seed, number)


def test_which_clients_are_asked_varies_with_round_and_seed() -> None:
    clients = tuple(str(k) for k in range(20))
    half = RoundsConfig(fraction=0.5)
    rounds = [sampled(clients, half, 0, number) for number in range(1, 9)]
    assert len({*rounds}) == 8
    assert set().union(*rounds) == set(clients)
    assert sampled(clients, half, 1, 1) != rounds[0]
    # 0.29 · 100 is 28.999999999999996 in floats.
    hundred = tuple(str(k) for k in range(100))
    assert len(sampled(hundred, RoundsConfig(fraction=0.29), 0, 1)) == 29


def test_some_clients_a_round_are_recorded_and_fused(rounds_study: Raw, tmp_path: Path) -> None:
    rounds_study["partition"]["clients"] = 4
    rounds_study["rounds"] = {"count": 4, "fraction": 0.5}
    rows = run(rounds_study, tmp_path)
    assert [row["round"] for row in rows] == [1, 2, 3, 4]
    reports = only(tmp_path).info()["rounds"]
    assert all(len(report["asked"]) == 2 for report in reports)
    assert all(report["answered"] == report["asked"] for report in reports)
    assert len({tuple(report["asked"]) for report in reports}) > 1
    measured = only(tmp_path).measures()["checkpoints"]
    for report, checkpoint in zip(reports, measured, strict=True):
        assert [c["client"] for c in checkpoint["clients"]] == report["asked"]
    events = only(tmp_path).read_events()
    assert {(e["round"], e["client"]) for e in events} == {
        (report["round"], name) for report in reports for name in report["asked"]
    }


# --- costs ---------------------------------------------------------------------------------------


def test_costs_are_of_all_rounds_until_now(rounds_study: Raw, tmp_path: Path) -> None:
    rounds_study["keep_checkpoints"] = True
    rows = run(rounds_study, tmp_path)
    trial = only(tmp_path)
    up = down = 0
    for row in rows:
        folder = trial.round(row["round"])
        up += sum(path.stat().st_size for path in (folder.path / "uploads").iterdir())
        down += 3 * folder.briefing.stat().st_size
        assert (row["upload_bytes"], row["download_bytes"]) == (up, down)
        assert row["exchanges"] == row["round"] == row["epoch"]
    info = trial.info()
    assert (info["upload_bytes"], info["download_bytes"]) == (up, down)
    seconds = [event["seconds"] for event in trial.read_events()]
    assert rows[-1]["seconds"] == pytest.approx(sum(seconds)) == pytest.approx(info["seconds"])
    assert rows[0]["seconds"] == pytest.approx(sum(seconds[:3]))


def test_a_dry_run_knows_rounds(rounds_study: Raw, tmp_path: Path) -> None:
    from accord.report.estimate import estimate

    checked = accord.load_study({**rounds_study, "recipes": ["fedavg", "fafi"]})
    found = {c.name.split("-")[0]: c for c in estimate(checked, Record(tmp_path), None, 1).costs}
    assert (found["fedavg"].rounds, found["fafi"].rounds) == (3, 1)
    assert sum(map(len, found["fedavg"].train_seconds)) == 9
    assert sum(map(len, found["fafi"].train_seconds)) == 3
    rows = run({**rounds_study, "recipes": ["fedavg"]}, tmp_path)
    # Later briefings also name the first one.
    later = 2 * 3 * len(f',"first":"{64 * "0"}"')
    assert 0 <= rows[-1]["download_bytes"] - found["fedavg"].download_bytes - later < 6 * 16
    assert found["fedavg"].upload_bytes == pytest.approx(rows[-1]["upload_bytes"], rel=0.01)


# --- what stays ----------------------------------------------------------------------------------


def test_only_the_last_round_stays_unless_asked_for(rounds_study: Raw, tmp_path: Path) -> None:
    run(rounds_study, tmp_path / "tidy")
    trial = only(tmp_path / "tidy")
    kept = sorted(str(p.relative_to(trial.path)) for p in trial.path.rglob("*") if p.is_file())
    assert kept == [
        "briefing.safetensors",
        "events.jsonl",
        *(f"logs/client-{k}.log" for k in range(3)),
        "logs/server.log",
        "measures.json",
        "round.json",
        "rounds/2/round.json",
        "rounds/3/briefing.safetensors",
        "rounds/3/round.json",
        *(f"rounds/3/seconds/client-{k}.json" for k in range(3)),
        "rounds/3/server.safetensors",
        *(f"rounds/3/uploads/client-{k}.safetensors" for k in range(3)),
        "trial.json",
    ]
    run({**rounds_study, "keep_checkpoints": True}, tmp_path / "kept")
    uploads = [*only(tmp_path / "kept").path.rglob("uploads/*.safetensors")]
    assert len(uploads) == 9
    assert timeless(tmp_path / "tidy") == timeless(tmp_path / "kept")


def test_later_rounds_can_be_fused_again_and_kept(rounds_study: Raw, tmp_path: Path) -> None:
    run(rounds_study, tmp_path / "run")
    found = accord.fuse(tmp_path / "run", ["outputs"], workers=1, quiet=True).rows
    assert [(r["fusion"], r["round"]) for r in found if r["fusion"] == "outputs"] == [
        ("outputs", 3)
    ]
    model = tmp_path / "model"
    accord.fuse(tmp_path / "run", ["average"], save=model, workers=1, quiet=True)
    header = accord.Predictor.load(model).header
    (last,) = [row for row in found if row["fusion"] == "average" and row["round"] == 3]
    assert (header.origin["epoch"], header.origin["accuracy"]) == (3, last["accuracy"])
    left = accord.fuse(tmp_path / "run", ["average"], without=["1"], workers=1, quiet=True).rows
    assert [r["clients"] for r in left if r["fusion"] == "average-without-1"] == [2]


def test_measures_of_every_round_are_those_of_its_uploads(
    rounds_study: Raw, tmp_path: Path
) -> None:
    """Three rounds at once, and one round after the other from kept uploads, measure the same."""
    rounds_study["keep_checkpoints"] = True
    rounds_study["budget"] = {"epochs": 2, "batch": 32, "checkpoints": [1, 2]}
    rows = run(rounds_study, tmp_path)
    assert [(row["round"], row["epoch"]) for row in rows] == [
        (1, 1), (1, 2), (2, 3), (2, 4), (3, 5), (3, 6),
    ]  # fmt: skip
    equal = {"use": "average", "as": "again"}
    again = accord.fuse(tmp_path, [equal], workers=1, quiet=True).rows
    found = {r["epoch"]: r["accuracy"] for r in again if r["fusion"] == "again"}
    assert found == {row["epoch"]: row["accuracy"] for row in rows}


def test_memories_are_kept_only_for_a_later_round(rounds_study: Raw, tmp_path: Path) -> None:
    for recipe, rounds in (("etf-uncertainty", {}), ("scaffold", {"count": 2})):
        run({**rounds_study, "recipes": [recipe], "rounds": rounds}, tmp_path / recipe)
        assert not [*(tmp_path / recipe).rglob("memory/*")]


# --- failures ------------------------------------------------------------------------------------


def failing(monkeypatch: pytest.MonkeyPatch, client: str, number: int) -> None:
    """Lets one client break in one round."""
    real = Training.run_epoch

    def broken(self: Training, tell: Tell | None = None) -> Any:
        if self.name == client and self.briefing.header.round == number:
            raise ClientError("its disk is full of cats")
        return real(self, tell)

    monkeypatch.setattr(Training, "run_epoch", broken)


def test_a_round_goes_on_with_enough_answers(
    rounds_study: Raw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds_study["rounds"] = {"count": 3, "min_fit_clients": 2}
    rounds_study["recipes"] = ["scaffold"]
    failing(monkeypatch, "1", 2)
    results = accord.run(rounds_study, out=tmp_path, workers=1, quiet=True)
    assert not results.failures
    reports = only(tmp_path).info()["rounds"]
    assert [report["answered"] for report in reports] == [
        ["0", "1", "2"],
        ["0", "2"],
        ["0", "1", "2"],
    ]
    assert reports[1]["failed"] == {"1": "its disk is full of cats"}
    second = only(tmp_path).measures()["checkpoints"][1]
    assert [client["client"] for client in second["clients"]] == ["0", "2"]


def test_a_bad_upload_is_refused_on_arrival_and_the_round_goes_on(
    rounds_study: Raw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a worker of a cluster might write it: with a damaged disk, or on purpose."""
    rounds_study["rounds"] = {"count": 2, "min_fit_clients": 2}
    whole = Training.upload

    def bad(self: Training) -> Upload:
        upload = whole(self)
        if self.name == "1" and self.epoch == 1:
            upload.tensors["feature_mean"][0] = float("nan")
        return upload

    monkeypatch.setattr(Training, "upload", bad)
    assert not accord.run(rounds_study, out=tmp_path, workers=1, quiet=True).failures
    first, second = only(tmp_path).info()["rounds"]
    assert (first["answered"], second["answered"]) == (["0", "2"], ["0", "1", "2"])
    assert "'feature_mean' holds NaN or infinity" in first["failed"]["1"]
    assert "its upload was refused" in first["failed"]["1"]


def test_without_a_least_number_a_failure_fails_the_trial_and_can_be_mended(
    rounds_study: Raw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        failing(patch, "1", 2)
        results = accord.run(rounds_study, out=tmp_path / "run", workers=1, quiet=True)
        (reasons,) = results.failures.values()
        assert reasons == [
            "client 1: its disk is full of cats",
            "round 2 got 2 uploads and needs 3; run the same command again to ask the missing "
            "clients again",
        ]
        assert [row["round"] for row in results.rows] == [1]
        too_few = {**rounds_study, "rounds": {"count": 3, "min_fit_clients": 3}}
        assert accord.run(too_few, out=tmp_path / "few", workers=1, quiet=True).failures
    run(rounds_study, tmp_path / "run")
    run(rounds_study, tmp_path / "whole")
    assert timeless(tmp_path / "run") == timeless(tmp_path / "whole")


# --- the study -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"rounds": {"count": 0}}, "'rounds.count': expected greater than or equal to 1; found 0"),
        ({"rounds": {"count": 2.5}}, "'rounds.count'"),
        ({"rounds": {"count": 10**9}}, "'rounds.count': expected less than or equal to 10000"),
        ({"rounds": {"fraction": 0}}, "'rounds.fraction': expected greater than 0; found 0"),
        ({"rounds": {"fraction": 1.5}}, "'rounds.fraction': expected less than or equal to 1"),
        ({"rounds": {"fraction": float("nan")}}, "'rounds.fraction'"),
        ({"rounds": {"min_fit_clients": 4}}, "'rounds.min_fit_clients': expected at most 3"),
        ({"rounds": {"min_fit_clients": 0}}, "'rounds.min_fit_clients'"),
        ({"rounds": {"min_available_clients": 9}}, "'rounds.min_available_clients': expected at"),
        ({"rounds": {"counts": 2}}, "unknown key 'rounds.counts'; did you mean 'count'"),
        ({"rounds": 5}, "'rounds': expected a mapping of keys, found 5"),
        ({"recipes": ["fafi"]}, "'rounds' is for recipes with several rounds, such as fedavg"),
        (
            {"recipes": [{"use": "fedavg", "fusion": "outputs", "as": "x"}]},
            "recipes.x: the fusion 'outputs' makes no single net .* Use one of average",
        ),
        (
            {"recipes": [{"use": "fedavg", "method": {"merge": "split"}, "as": "x"}]},
            "recipes.x: the fusion 'split' makes no single net",
        ),
        (
            {"recipes": [{"use": "fedavg", "method": "fedavg", "as": "x"}]},
            "unknown method 'fedavg'. Known: averaging, from-teacher, in-turn, "
            "in-turn-from-teacher, mergenet",
        ),
        (
            {"recipes": [{"use": "fedavg", "method": {"count": 0}, "as": "x"}]},
            "'recipes.x.method.count': expected greater than or equal to 1",
        ),
        (
            {"recipes": [{"use": "fedprox", "objective": {"proximal": {"mu": -1}}, "as": "x"}]},
            "'recipes.x.objective.proximal.mu': expected greater than 0",
        ),
        (
            {"recipes": [{"use": "closed-form-small", "method": "averaging", "as": "x"}]},
            "recipes.x: .*'method' is a key of recipes that train nets",
        ),
    ],
)
def test_mistakes_are_told_before_anything_is_written(
    rounds_study: Raw, tmp_path: Path, change: Raw, said: str
) -> None:
    with pytest.raises(AccordError, match=said):
        run({**rounds_study, **change}, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_study_s_rounds_take_the_place_of_the_recipe_s(rounds_study: Raw) -> None:
    def counts(**changes: Any) -> dict[str, list[int]]:
        trials = accord.load_study({**rounds_study, **changes}).trials()
        found: dict[str, list[int]] = {}
        for trial in trials:
            found.setdefault(trial.recipe.name, []).append(trial.method.rounds)
        return found

    two = {"use": "fedavg", "method": {"count": 2}, "as": "two"}
    recipes = ["fedavg", two, "fafi"]
    assert counts(recipes=recipes) == {"fedavg": [3], "two": [3], "fafi": [1]}
    assert counts(recipes=recipes, rounds={}) == {"fedavg": [5], "two": [2], "fafi": [1]}
    # A grid over rounds does not repeat what has one round anyway.
    grid = counts(recipes=recipes, rounds={"count": [1, 4]})
    assert grid == {"fedavg": [1, 4], "two": [1, 4], "fafi": [1]}


def test_one_round_of_fedavg_is_fedavg_once(rounds_study: Raw, tmp_path: Path) -> None:
    rounds_study["rounds"] = {"count": 1}
    rounds_study["recipes"] = ["fedavg", "fedavg-once"]
    rows = run(rounds_study, tmp_path)
    assert rows[0]["accuracy"] == rows[1]["accuracy"]
    assert rows[0]["loss"] == rows[1]["loss"]


def test_a_record_of_an_earlier_version_is_refused(rounds_study: Raw, tmp_path: Path) -> None:
    run(rounds_study, tmp_path)
    file = tmp_path / "study.yaml"
    lines = file.read_text().splitlines()
    file.write_text("\n".join(line for line in lines if not line.startswith("rounds:")))
    with pytest.raises(AccordError, match="made by an earlier version of Accord"):
        run(rounds_study, tmp_path)


def test_a_damaged_report_is_named(rounds_study: Raw, tmp_path: Path) -> None:
    run(rounds_study, tmp_path)
    path = only(tmp_path).round(2).report
    path.write_text(json.dumps({"round": 2}))
    with pytest.raises(AccordError, match=r"round\.json is damaged.* Delete the trial's folder"):
        accord.fuse(tmp_path, ["outputs"], workers=1, quiet=True)


def test_the_engine_does_what_the_method_says(rounds_study: Raw, tmp_path: Path) -> None:
    """SCAFFOLD over three rounds of two clients each, by hand: the same uploads, bit for bit."""
    rounds_study["recipes"] = ["scaffold"]
    rounds_study["rounds"] = {"count": 3, "fraction": 0.7}
    checked = accord.load_study(rounds_study)
    (trial,) = checked.trials()
    _, allocation = Plan(checked, None, print).allocation(trial)
    run(rounds_study, tmp_path / "run")
    method = trial.method
    state = method.start(opening(trial, allocation))
    memories: dict[str, Memory] = {}
    for number in (1, 2, 3):
        briefing, paths = method.brief(state), []
        for name in sampled(("0", "1", "2"), trial.setup.rounds, 0, number):
            images = allocation.client(int(name))
            client = make_client(images, briefing, name, memory=memories.get(name))
            paths.append(tmp_path / f"client-{name}.safetensors")
            answer(client).save(paths[-1])
            memory = client.memory()
            assert memory is not None
            memories[name] = memory
        files = UploadFiles(paths, briefing)
        if number < 3:
            scene = Scene(files, briefing, allocation.part("public"), clients=3)
            state = method.advance(state, scene)
    folder = only(tmp_path / "run").last_round
    assert folder.number == 3
    for path in paths:
        made = Upload.load(folder.path / "uploads" / path.name)
        assert same(made.tensors, Upload.load(path).tensors)


def test_a_recipe_s_own_number_of_rounds_is_recorded(rounds_study: Raw, tmp_path: Path) -> None:
    two = {"use": "fedavg", "method": {"count": 2}, "as": "two"}
    run({**rounds_study, "recipes": [two], "rounds": {}}, tmp_path)
    trial = only(tmp_path)
    assert trial.info()["config"]["rounds"]["count"] == 2
    assert (trial.last_round.number, len(uploads_of(trial))) == (2, 3)
