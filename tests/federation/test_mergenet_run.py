"""Federated MergeNet, its controls and distillation through the engine, on digits."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import accord
from accord.core.errors import AccordError
from accord.fusion.uploads import UploadFiles
from accord.messages import NET, SOURCE, TEACHER, Briefing, ServerState, Upload, unprefixed
from accord.messages.saved_model import SavedModel
from accord.model.predictor import Predictor
from accord.record.folders import TrialFolder
from accord.record.record import Record
from accord.report.compare.baseline import Baseline, paired
from accord.report.compare.lines import lines_of
from accord.report.compare.runs import read_runs
from accord.study.study import Trial, load_study
from fusion.support import once
from records import timeless
from tests_support import same

Raw = dict[str, Any]
STUDY: Raw = {
    "name": "mergenet",
    "data": {"name": "digits", "train_limit": 72, "test_limit": 20, "public": 0.25},
    "partition": {"scheme": "dirichlet", "alpha": 0.5, "clients": 3},
    "net": {"backbone": "conv4"},
    "budget": {"epochs": 2, "batch": 16, "lr": 0.05},
    "rounds": {"count": 3},
    "mergenet": {"d_attention": 8, "heads": 2, "steps": 3, "batch": 8},
    "teacher": {"epochs": 2},
    "references": False,
}
SERVED = ("mergenet-public", "mergenet-pseudo", "mergenet-random-teacher", "finetune-public")
CENTRAL = {"use": "central", "method": "averaging", "fusion": "average", "as": "central"}
ALL = ["fedavg", "kd", *SERVED, "mergenet-client", "mergenet-central", CENTRAL]


def run(out: Path, workers: int = 1, **changes: Any) -> list[Raw]:
    return accord.run({**STUDY, **changes}, out=out, workers=workers, quiet=True).rows


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of all recipes, which tests only read."""

    def make(folder: Path) -> str:
        run(folder / "run", recipes=ALL)
        return str(folder / "run")

    return Path(once(tmp_path_factory, "mergenet-whole", make))


@pytest.fixture
def own(whole: Path, tmp_path: Path) -> Path:
    """A copy of the run that a test may change."""
    return Path(shutil.copytree(whole, tmp_path / "own"))


def trial(out: Path, recipe: str) -> TrialFolder:
    (found,) = [one for one in Record(out).trials() if one.info()["recipe"] == recipe]
    return found


def rows(out: Path, recipe: str, fusion: str) -> list[Raw]:
    return [r for r in Record(out).rows() if (r["recipe"], r["fusion"]) == (recipe, fusion)]


def test_every_round_is_measured_before_and_after_its_fusion(whole: Path) -> None:
    for recipe in SERVED:
        after, before = rows(whole, recipe, "server"), rows(whole, recipe, "average")
        assert [row["round"] for row in after] == [1, 2, 3]
        assert [row["fusion_applied"] for row in after] == [False, True, True]
        assert [row["accuracy_before"] for row in after] == [row["accuracy"] for row in before]
        assert after[0]["loss"] == before[0]["loss"]  # no fusion was due
        assert after[2]["loss"] != before[2]["loss"]
        reports = trial(whole, recipe).info()["rounds"]
        assert [report["fusion_applied"] for report in reports] == [False, True, True]
    for row in (*rows(whole, "fedavg", "average"), *rows(whole, "kd", "average")):
        assert row["fusion_applied"] is None
        assert row["accuracy_before"] is None


def test_figures_of_a_round_are_in_the_results(whole: Path) -> None:
    info = trial(whole, "fedavg").info()
    counts = [sum(row) for row in info["label_counts"]]
    events = trial(whole, "fedavg").read_events()
    for row in rows(whole, "fedavg", "average"):
        assert row["took_part"] == "0, 1, 2"
        assert 0 <= row["accuracy"] <= row["top5"] <= 1
        losses = {e["client"]: e["loss"] for e in events if e["epoch"] == row["epoch"]}
        expected = sum(n * losses[str(k)] for k, n in enumerate(counts)) / sum(counts)
        assert row["train_loss"] == pytest.approx(expected)
        assert 0 < row["train_accuracy"] <= 1
        assert row["server_seconds"] >= 0
    summary = info["summary"]["average"]
    accuracies = [row["accuracy"] for row in rows(whole, "fedavg", "average")]
    assert summary["final"] == accuracies[-1]
    assert summary["best"] == max(accuracies)
    assert summary["stable"] == pytest.approx(sum(accuracies) / 3)


def test_the_train_accuracy_is_the_clients_mean(whole: Path) -> None:
    folder = trial(whole, "fedavg").round(3)
    uploads = [Upload.load(folder.upload(str(k), 6, last=True)).header for k in range(3)]
    total = sum(header.samples for header in uploads)
    known = [math.nan if h.train_accuracy is None else h.train_accuracy for h in uploads]
    expected = sum(h.samples * k for h, k in zip(uploads, known, strict=True)) / total
    assert rows(whole, "fedavg", "average")[-1]["train_accuracy"] == pytest.approx(expected)


def test_a_single_machine_trains_the_epochs_of_all_rounds(whole: Path) -> None:
    for recipe, fusion in (("central", "average"), ("mergenet-central", "outputs")):
        found = rows(whole, recipe, fusion)
        assert [(row["round"], row["epoch"]) for row in found] == [(1, 2), (1, 4), (1, 6)]
        assert {row["clients"] for row in found} == {1}
        config = trial(whole, recipe).info()["config"]
        assert config["budget"]["epochs"] == 6
        assert config["rounds"]["count"] == 1
    assert config["mergenet"]["start_round"] == 1  # there is no first round to wait for
    assert {row["fusion_applied"] for row in found} == {True}


def test_messages_hold_what_they_need_and_no_more(whole: Path) -> None:
    sizes = {row["recipe"]: row["download_bytes"] for row in Record(whole).rows()}
    assert sizes["fedavg"] == pytest.approx(sizes["mergenet-public"], rel=0.01)
    assert sizes["kd"] > 1.9 * sizes["fedavg"]  # the teacher, a net like the student
    teacher = unprefixed(TEACHER, Briefing.load(trial(whole, "kd").briefing).tensors)
    (trained,) = whole.glob("teachers/*")
    upload = Upload.load(TrialFolder(trained).round(1).upload("teacher", 2, last=True))
    assert same(teacher, unprefixed(NET, upload.tensors))
    fused = Briefing.load(trial(whole, "mergenet-client").briefing).tensors
    assert torch.equal(fused[SOURCE + "head.prototypes"], teacher["head.prototypes"])
    assert not (TrialFolder(trained).path / "features.safetensors").exists()  # nobody needs them


def test_logs_tell_what_happened(whole: Path) -> None:
    logs = trial(whole, "mergenet-public").path / "logs"
    server = (logs / "server.log").read_text()
    for words in (
        "The trial of recipe mergenet-public begins.",
        "Round 1: sent the briefing (0.45 MB) to 3 clients: 0, 1, 2.",
        "Round 1: 3 of 3 clients answered",
        "Round 1: merged 3 nets",
        "No fusion was due in this round.",
        "The adapter learnt from public images; its loss went from",
        "The fusion of knowledge changed the paired layers by",
        "% before the fusion), top-5",
        "Round 3: average after epoch 6: accuracy",
    ):
        assert words in server, words
    client = (logs / "client-1.log").read_text()
    for words in (
        "Round 1: received the briefing (0.45 MB) and began with",
        "Round 3: trained 2 epochs in",
        "accuracy on its own images",
    ):
        assert words in client, words
    for line in (*server.splitlines(), *client.splitlines()):
        assert line[:4].isdigit(), line
        assert line[21:].startswith(("Round ", "The trial ")), line
    pseudo = (trial(whole, "mergenet-pseudo").path / "logs/server.log").read_text()
    assert pseudo.count("learnt from the change of the clients' weights") == 1  # in round 3
    own = (trial(whole, "mergenet-client").path / "logs/server.log").read_text()
    assert own.count("The clients fused their nets with the teacher's layers.") == 1


def test_the_saved_model_is_the_servers_net(own: Path, tmp_path: Path) -> None:
    accord.fuse(
        own, ["server"], trial="mergenet-public", save=tmp_path / "model", workers=1, quiet=True
    )
    state = ServerState.load(trial(own, "mergenet-public").round(4).server_state)
    assert state.round == 4
    assert same(Predictor.load(tmp_path / "model").weights(0), unprefixed(NET, state.tensors))
    last = rows(own, "mergenet-public", "server")[-1]  # measured again, with the model
    assert last["accuracy_before"] == rows(own, "mergenet-public", "average")[-1]["accuracy"]


def test_the_server_net_of_averaging_is_the_average(own: Path) -> None:
    accord.fuse(own, ["server"], trial="fedavg", workers=1, quiet=True)
    (server,) = rows(own, "fedavg", "server")
    average = rows(own, "fedavg", "average")[-1]
    assert (server["accuracy"], server["loss"]) == (average["accuracy"], average["loss"])
    assert server["accuracy_before"] is None
    with pytest.raises(AccordError, match="clients cannot be left out of it"):
        accord.fuse(own, ["server"], trial="fedavg", without=["0"], workers=1, quiet=True)


def test_uploads_with_other_adapters_are_refused(whole: Path, tmp_path: Path) -> None:
    folder = trial(whole, "mergenet-client").round(3)
    upload = Upload.load(folder.upload("0", 6, last=True))
    name = "adapter.adapters.0.out.bias"
    changed = {
        "absent": {k: t for k, t in upload.tensors.items() if k != name},
        "shape": {**upload.tensors, name: torch.zeros(3)},
        "nan": {**upload.tensors, name: upload.tensors[name] * math.nan},
    }
    for title, tensors in changed.items():
        path = tmp_path / f"{title}.safetensors"
        Upload(upload.header, tensors).save(path)
        with pytest.raises(AccordError, match=name):
            UploadFiles([path], Briefing.load(folder.briefing)).load(0)


def test_workers_and_other_recipes_change_no_bit(whole: Path, tmp_path: Path) -> None:
    recipes = ("mergenet-public", "mergenet-client")
    run(tmp_path / "run", recipes=[*recipes], workers=2)
    for recipe in recipes:
        found, asked = (
            [row for row in timeless(out) if row["recipe"] == recipe]
            for out in (tmp_path / "run", whole)
        )
        assert found == asked
        one, two = (trial(out, recipe).round(3) for out in (tmp_path / "run", whole))
        for name in "012":
            paths = (folder.upload(name, 6, last=True) for folder in (one, two))
            assert same(*(Upload.load(path).tensors for path in paths))


# --- teachers ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A teacher of the study's public images, by the command's function."""

    def make(folder: Path) -> str:
        study = {**STUDY, "recipes": ["fedavg"]}
        out = folder / "run"
        accord.teacher(study, folder / "model", epochs=2, out=out, workers=1, quiet=True)
        return str(folder / "model")

    return Path(once(tmp_path_factory, "mergenet-teacher", make))


def test_a_saved_model_teaches(model: Path, tmp_path: Path) -> None:
    one: Raw = {"recipes": ["kd"], "rounds": {"count": 1}}
    run(tmp_path / "run", teacher={"model": str(model)}, **one)
    sent = unprefixed(TEACHER, Briefing.load(trial(tmp_path / "run", "kd").briefing).tensors)
    assert same(sent, SavedModel.load(model).weights(0))
    # A model that changes in between is noticed.
    broken = tmp_path / "model"
    broken.mkdir()
    for path in model.iterdir():
        (broken / path.name).write_bytes(path.read_bytes())
    run(tmp_path / "changed", teacher={"model": str(broken)}, **one)
    other = tmp_path / "other"
    accord.teacher(
        {**STUDY, "recipes": ["fedavg"]}, other, epochs=1, out=tmp_path / "o", workers=1, quiet=True
    )
    for path in other.iterdir():
        (broken / path.name).write_bytes(path.read_bytes())
    with pytest.raises(AccordError, match="not those this record was begun with"):
        run(tmp_path / "changed", teacher={"model": str(broken)}, seeds=[0, 1], **one)


def test_mistakes_are_told_before_anything_is_written(model: Path, tmp_path: Path) -> None:
    pairs = [["encoder.stages.stage4.0", "head"]]
    twice = [*pairs, ["encoder.stages.stage4.0.weight", "head"]]
    cases: dict[str, Raw] = {
        "the student has no layer 'nose'": {"mergenet": {"pairs": [["nose", "head"]]}},
        "the teacher has no layer 'nose'": {"mergenet": {"pairs": [[pairs[0][0], "nose"]]}},
        "has the shape \\(64,\\)": {"mergenet": {"pairs": [["encoder.stages.stage4.1", "head"]]}},
        "named twice": {"mergenet": {"pairs": twice}},
        "'mergenet.pairs': expected a list of pairs": {"mergenet": {"pairs": [["head"]]}},
        "'mergenet.layers': expected less": {"mergenet": {"layers": 10**6}},
        "mergenet.heads: expected at most \\d+ for the adapter paper": {
            "mergenet": {"adapter": "paper", "heads": 1000, "d_attention": 1000}
        },
        "unknown adapter 'papre'; did you mean 'paper'": {"mergenet": {"adapter": "papre"}},
        "'mergenet.train'": {"mergenet": {"train": "server"}},
        "'mergenet.start_round': expected greater": {"mergenet": {"start_round": 0}},
        "'mergenet.fusion_frequency': expected greater": {"mergenet": {"fusion_frequency": 0}},
        "'mergenet.f': expected greater": {"mergenet": {"f": 0}},
        "d_attention to be a multiple of heads": {"mergenet": {"d_attention": 10, "heads": 4}},
        "unknown key 'mergenet.layer'; did you mean 'layers'": {"mergenet": {"layer": 1}},
        "needs at least 2 public images; found 0": {"data": {"name": "digits", "train_limit": 60}},
        "no-such-model is no saved model": {"teacher": {"model": "no-such-model"}},
        "has the backbone conv4; expected teacher.backbone = resnet10": {
            "teacher": {"model": str(model), "backbone": "resnet10"}
        },
        "knows other classes": {
            "teacher": {"model": str(model)},
            "data": {**STUDY["data"], "classes": [0, 1, 2, 3]},
        },
        "unknown backbone 'resnet9'": {"teacher": {"backbone": "resnet9"}},
        "is for images with 1 channels; the study's images have 3": {
            "teacher": {"model": str(model)},
            "data": {**STUDY["data"], "image": {"channels": 3}},
        },
        "min_fit_clients': expected at most 3": {"rounds": {"count": 2, "min_fit_clients": 4}},
        "these settings are for the method mergenet": {
            "recipes": [{"use": "fedavg", "mergenet": {"f": 2}, "as": "x"}]
        },
        "no part of the recipe uses a teacher": {
            "recipes": [{"use": "fedavg", "teacher": {"epochs": 2}, "as": "x"}]
        },
        "recipes.x.mergenet: unknown key 'g'": {
            "recipes": [{"use": "mergenet-public", "mergenet": {"g": 2}, "as": "x"}]
        },
        "the adapter direct trains the layer itself": {
            "recipes": [{"use": "finetune-public", "mergenet": {"train": "pseudo"}, "as": "x"}]
        },
        "teacher.trainable: true is for recipes whose method uses the teacher": {
            "recipes": [{"use": "kd", "teacher": {"trainable": True}, "as": "x"}],
            "teacher": {"epochs": 1},
        },
        "into the sections mergenet and teacher": {
            "recipes": [{"use": "mergenet-public", "method": {"settings": {"f": 2}}, "as": "x"}]
        },
        "is the server's net after a round": {
            "recipes": [{"use": "ce-ensemble", "fusion": "server", "as": "x"}]
        },
    }
    for said, change in cases.items():
        with pytest.raises(AccordError, match=said):
            run(tmp_path / "run", **{"recipes": ["mergenet-public"], **change})
        assert not (tmp_path / "run").exists()


def test_without_public_images_a_teacher_must_be_given(model: Path, tmp_path: Path) -> None:
    alone: dict[str, Any] = {"data": {"name": "digits", "train_limit": 60, "test_limit": 20}}
    for recipe in ("kd", "mergenet-pseudo", "mergenet-client"):
        with pytest.raises(AccordError, match="it needs a teacher, and there is none"):
            run(tmp_path / "none", recipes=[recipe], **alone)
    random = {"model": "no-such-model", "allow_random": True, "backbone": "conv4"}
    given = {"kd": {"model": str(model)}, "mergenet-pseudo": random, "mergenet-client": random}
    for recipe, teacher in given.items():
        out = tmp_path / recipe
        assert run(out, recipes=[recipe], teacher=teacher, rounds={"count": 2}, **alone)


def test_a_grid_of_settings_and_recipes_that_do_not_use_them(tmp_path: Path) -> None:
    found = run(
        tmp_path / "run",
        recipes=["fedavg", "mergenet-public", "mergenet-central"],
        mergenet={**STUDY["mergenet"], "start_round": [1, 2]},
        rounds={"count": 2},
    )
    axis = {(row["recipe"], row["mergenet.start_round"]) for row in found}
    public = {("mergenet-public", 1), ("mergenet-public", 2)}
    assert axis == {("fedavg", None), ("mergenet-central", None), *public}
    lines = lines_of(read_runs([tmp_path / "run"]).measured, [0.6])
    pairs = paired(lines, Baseline.parse("fedavg"))
    assert all(pair.differences for pair in pairs), [pair.why for pair in pairs]


def test_a_random_teacher_is_like_the_model_it_is_compared_with(model: Path) -> None:
    study = {
        **STUDY,
        "net": {"backbone": "resnet10-narrow"},
        "teacher": {"model": str(model)},
        "recipes": ["mergenet-public", "mergenet-random-teacher"],
    }
    backbones = {one.recipe.name: random_or_loaded(one) for one in load_study(study).trials()}
    assert backbones == {"mergenet-public": "conv4", "mergenet-random-teacher": "conv4"}


def random_or_loaded(one: Trial) -> str:
    asked = one.setup.teacher
    if asked.model is None:
        return str(asked.backbone)
    return SavedModel.load(Path(asked.model)).header.net.backbone


def test_a_teacher_may_move(model: Path, tmp_path: Path) -> None:
    shutil.copytree(model, tmp_path / "a")
    one: Raw = {"recipes": ["kd"], "rounds": {"count": 1}}
    run(tmp_path / "run", teacher={"model": str(tmp_path / "a")}, **one)
    (tmp_path / "a").rename(tmp_path / "b")
    before = timeless(tmp_path / "run")
    run(tmp_path / "run", teacher={"model": str(tmp_path / "b")}, **one)
    assert timeless(tmp_path / "run") == before


def test_costs_stay_when_fusions_are_added(own: Path) -> None:
    def costs() -> list[Any]:
        found = [*rows(own, "mergenet-public", "server"), *rows(own, "fedavg", "average")]
        return [(row["server_seconds"], row["seconds"], row["accuracy_before"]) for row in found]

    before = costs()
    assert all(seconds > 0 for seconds, _, _ in before[:3])
    again = {"use": "server", "as": "again"}
    for recipe in ("mergenet-public", "fedavg"):
        accord.fuse(own, ["outputs", again], trial=recipe, workers=1, quiet=True)
    assert costs() == before
    (other,) = rows(own, "mergenet-public", "again")
    assert other["accuracy_before"] == before[2][2]


def test_the_average_is_measured_beside_the_servers_net() -> None:
    study = {**STUDY, "recipes": [{"use": "mergenet-public", "fusion": "server", "as": "x"}]}
    (only,) = load_study(study).trials()
    assert [fusion.label for fusion in only.fusions] == ["server", "average"]


def test_recipes_may_change_what_fits_the_study() -> None:
    study = {
        **STUDY,
        "mergenet": {"heads": 4},
        "budget": {**STUDY["budget"], "schedule": "multistep", "milestones": [1]},
        "recipes": [
            {"use": "mergenet-public", "mergenet": {"d_attention": 12}, "as": "x"},
            {"use": "mergenet-public", "budget": {"milestones": [2]}, "as": "y"},
        ],
    }
    one, other = load_study(study).trials()
    assert (one.setup.mergenet.d_attention, other.setup.budget.milestones) == (12, (2,))
    wrong = {"use": "mergenet-public", "mergenet": {"d_attention": 10}, "as": "x"}
    with pytest.raises(AccordError, match=r"recipes.x.mergenet.*multiple of heads"):
        load_study({**study, "recipes": [wrong]})


def test_rounds_without_any_fusion_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = {**STUDY, "recipes": ["mergenet-public"], "rounds": {"count": 1}}
    accord.run(study, out=tmp_path, workers=1)
    assert "none of its 1 rounds has a fusion of knowledge" in capsys.readouterr().err


def test_fewer_than_five_classes_have_no_top5(tmp_path: Path) -> None:
    data = {**STUDY["data"], "classes": [0, 1, 2]}
    for row in run(tmp_path, recipes=["fedavg"], data=data, rounds={"count": 1}):
        assert row["top5"] is None


def test_a_trainable_teacher_and_sampled_clients(tmp_path: Path) -> None:
    found = run(
        tmp_path,
        recipes=["mergenet-public", "mergenet-client"],
        teacher={"epochs": 1, "trainable": True, "backbone": "resnet10-narrow"},
        rounds={"count": 3, "fraction": 0.5, "min_fit_clients": 2},
    )
    assert {len(row["took_part"].split(", ")) for row in found} == {2}
    assert all(0 <= row["accuracy"] <= 1 for row in found)
