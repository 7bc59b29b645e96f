"""The diagnosis as a whole: ranking, joining, texts, odd records, and real runs."""

from __future__ import annotations

import json
import shlex
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import accord
from accord.diagnosis import rule as rule_module
from accord.diagnosis.diagnose import diagnose
from accord.diagnosis.finding import Finding
from accord.diagnosis.rule import rules
from accord.diagnosis.show import show_findings, to_json
from accord.fusion.named import NamedFusion
from accord.record.record import Record
from accord.report.evidence import read_evidence
from accord.study.study import load_study
from command_line import Here, Refused
from diagnosed import Written, findings, fused, write

ROOT = Path(__file__).resolve().parents[2]


def exploding(seed: int = 0, last: float = 1e6) -> Written:
    trial = Written("etf-attenuated", seed).dial("lambda_raw", {"0": [1.0, 10.0, last]})
    return trial.at(3, features=0.5)


def test_equal_findings_are_joined_and_the_strongest_is_the_evidence(tmp_path: Path) -> None:
    found = findings(tmp_path, exploding(0), exploding(1, last=1e9), exploding(2))
    (one,) = [f for f in found if f.rule == "lambda-explosion"]
    assert one.trials == ["etf-attenuated-s1-01", "etf-attenuated-s0-00", "etf-attenuated-s2-02"]
    assert "1e+09" in one.evidence[0]


def test_findings_are_ranked_by_weight(tmp_path: Path) -> None:
    clipped = exploding().dial("clipped", {"0": [1.0] * 3})
    found = findings(tmp_path, clipped, Written("fafi").at(3, features=0.1))
    assert [one.rule for one in found] == [
        "at-chance", "lambda-explosion", "few-seeds", "always-clipped",
    ]  # fmt: skip
    assert [one.level for one in found] == ["serious", "serious", "important", "remark"]


def test_every_rule_is_in_the_documentation() -> None:
    page = (ROOT / "docs" / "diagnose.md").read_text()
    for name in rules:
        assert f"`{name}`" in page, name


def test_texts_keep_names_harmless_and_commands_whole(tmp_path: Path) -> None:
    evil = "\x1b[31mred\n[bold]"
    trial = Written("etf-attenuated", client_files={evil: "x"}, label_counts=[[50] * 10])
    trial.dial("lambda_raw", {evil: [1.0, 10.0, 1e6]})
    run = write(tmp_path / "a run; rm", trial)
    runs = read_evidence([run])
    found = diagnose(runs)
    lines = [part.plain for part in show_findings(runs, found, 60)]
    text = "\n".join(lines)
    assert "\x1b" not in text
    assert "client �[31mred�[bold]" in " ".join(text.split())
    (command,) = [line for line in lines if "accord run" in line]
    assert shlex.split(command)[-1] == str(run)
    others = [line for line in lines if line != command and not line.startswith(("1", " " * 15))]
    assert all(len(line) <= 60 for line in others), others
    told = json.loads(to_json(runs, found))["findings"][0]
    assert told["override"] == found[0].override
    assert set(told) == {
        *("run", "rule", "weight", "level", "title", "trials", "evidence"),
        *("meaning", "remedy", "override"),
    }


def test_the_command_and_the_function(tmp_path: Path, here: Here, refused: Refused) -> None:
    run = write(tmp_path / "run", exploding(), Written("fafi").at(3, features=0.1))
    done = here("diagnose", run)
    assert done.code == 0
    assert done.out.startswith("run: 3 findings in 2 trials, the heaviest first\n")
    assert "not in the record" not in done.out
    done = here("diagnose", run, "--trial", "fafi", "--json")
    assert [one["rule"] for one in json.loads(done.out)["findings"]] == ["at-chance"]
    assert [one.rule for one in accord.diagnose(run, trial="fafi")] == ["at-chance"]
    calm = write(tmp_path / "calm", Written("fafi").at(3, features=0.5))
    assert here("diagnose", calm).out == "calm: no findings in 1 trial\n"
    assert "[calm]" not in here("diagnose", calm, run).out
    assert "[run]" in here("diagnose", calm, run).out
    refused("diagnose", run, "--trial", "nothing", said="no trial has 'nothing' in its name")
    refused("diagnose", tmp_path, said="is not a run directory")


def checked(path: Path, found: list[Finding]) -> int:
    """Refuses overrides that this version would refuse; returns their number."""
    commands = [shlex.split(one.override) for one in found if one.override]
    for program, command, place, *words in commands:
        assert program == "accord"
        if command == "run":
            assert place == str(path / "study.yaml")
            *changes, out, folder = words
            assert (out, folder) == ("--out", str(path))
            study = load_study(place, changes)
            Record(path).refuse_another(study)
        else:
            assert (command, place) == ("fuse", str(path))
            assert words[0] == "--fusion"
            NamedFusion.read(words[1], "fusion")
    return len(commands)


def test_overrides_are_accepted_by_this_version(tmp_path: Path) -> None:
    """Also where the study has rounds, which a study of one-shot recipes alone may not have."""
    run = write(tmp_path / "run", exploding())
    assert checked(run, diagnose(read_evidence([run]))) == 1
    trial = exploding()
    raw = {"name": "x", "data": {"name": "digits"}, "recipes": ["fedavg", "etf-attenuated"]}
    trial.resolved = load_study({**raw, "rounds": {"count": 3}}).resolved
    run = write(tmp_path / "rounds", trial)
    (found,) = diagnose(read_evidence([run]))
    assert found.override is None


@cache
def full() -> Written:
    """A trial in which every file has figures for every rule."""
    trial = Written(
        "etf-uncertainty", partition_hash="x", rounds=[{"round": 1, "failed": {"0": 1}}]
    )
    dials = ("lambda_raw", "lambda_effective", "lambda_star", "loss_local", "loss_align", "clipped")
    more = ("sigma_sq_local", "sigma_sq_align", "gradient_norm_local", "gradient_norm_align")
    for key in (*dials, *more, "gradient_cosine", "lr", "stage"):
        trial.dial(key, {"0": [1, 2, 2], "1": [1.0, 2.0, 500.0]})
    told = {"part": "test", "all": 0.4, "without": {"0": 0.6}}
    bins = [[10, 0.5, 0.1]] * 15
    figures = fused(0.4, leave_one_out=told, reliability=bins)
    clients = [{"client": "0", "neighbours": 0.2}, {"client": "1", "test_accuracy": 0.9}]
    return trial.at(1, clients, features=0.1).at(3, clients, features=figures, classwise=0.9)


# What a damaged or foreign file may hold in the place of a figure.
ODD: st.SearchStrategy[Any] = st.sampled_from(
    [None, float("nan"), float("inf"), -1, 0, 1e308, "x", [], {}, [None], {"a": None}, True, [[]]]
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths to everything inside a value of JSON."""
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    found = []
    for key, one in inner:
        found.append((*path, key))
        if isinstance(one, dict | list):
            found += places(one, (*path, key))
    return found


def put(value: Any, path: tuple[Any, ...], new: Any) -> None:
    for key in path[:-1]:
        value = value[key]
    value[path[-1]] = new


@given(data=st.data())
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_no_damaged_record_stops_the_diagnosis(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    trial = deepcopy(full())
    parts: dict[str, Any] = {
        "info": trial.info, "checkpoints": trial.checkpoints, "events": trial.events,
    }  # fmt: skip
    for name in data.draw(st.lists(st.sampled_from(sorted(parts)), min_size=1, max_size=4)):
        known = places(parts[name])
        deep = [path for path in known if len(path) > 1] or known
        put(parts[name], data.draw(st.sampled_from(deep)), data.draw(ODD))
    run = write(tmp_path_factory.mktemp("odd") / "run", trial)
    runs = read_evidence([run])
    found = diagnose(runs)
    show_findings(runs, found, 100)
    to_json(runs, found)


def strict(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on a rule that cannot judge raises."""
    monkeypatch.setattr(rule_module, "CANNOT_JUDGE", ())


def test_no_rule_raises_on_a_whole_record(
    tmp_path: Path, study: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real runs have every file; an error of a rule would be hidden otherwise."""
    strict(monkeypatch)
    study["recipes"] = ["etf-uncertainty", "fedavg-once", "closed-form-small"]
    study["references"] = True
    study["budget"]["epochs"] = 1
    run = tmp_path / "run"
    accord.run(study, out=run, workers=1, quiet=True)
    found = accord.diagnose(run)
    assert {one.rule for one in found} >= {"few-seeds", "one-fusion"}
    assert checked(run, found) >= 2


def test_a_real_explosion_is_found(tmp_path: Path, study: dict[str, Any]) -> None:
    """A λ of a million is beyond the bound of SGD in every epoch."""
    study["recipes"] = [{"use": "etf-fixed", "balance": {"lambda": 1e6}, "as": "huge"}]
    study["partition"]["alpha"] = 100
    accord.run(study, out=tmp_path / "run", workers=1, quiet=True)
    found = {one.rule: one for one in accord.diagnose(tmp_path / "run")}
    # conv4 is 64 wide, and every client holds ten classes: 1.9·10·64/0.05 = 24,320
    assert "(1+m)·C·d/lr = 24,320 since epoch 1" in found["lambda-bound"].evidence[0]
    assert "alignment" in found["dominating-gradient"].title


def test_real_runs_that_go_wrong_are_recognised(tmp_path: Path, study: dict[str, Any]) -> None:
    study["data"] |= {"public": 0.2}
    study["budget"] = {"epochs": 2, "batch": 32}
    study["partition"] = {"scheme": "labels", "labels": 1, "clients": 3}
    study["recipes"] = ["etf-uncertainty", "bank-two-stage"]
    accord.run(study, out=tmp_path / "run", workers=1, quiet=True)
    found = {one.rule: one for one in accord.diagnose(tmp_path / "run")}
    assert {"classes-nobody-holds", "single-class-clients"} <= set(found)
    assert "7 of 10 classes" in found["classes-nobody-holds"].evidence[0]
    assert "3 of 3 clients" in found["single-class-clients"].evidence[0]
