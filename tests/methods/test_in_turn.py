"""Rounds in which one client trains at a time."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import accord
from accord.client.studied import public_images
from accord.core.errors import AccordError
from accord.core.files import read_json
from accord.federation.plan import Plan
from accord.fusion.average import recalibrated
from accord.fusion.base import Scene
from accord.fusion.uploads import UploadFiles
from accord.messages import NET, PUBLIC, Briefing, ServerState, Upload, unprefixed
from accord.messages.saved_model import SavedModel
from accord.methods.in_turn import MEAN, InTurn
from accord.methods.in_turn_from_teacher import InTurnFromTeacher
from accord.model.predictor import Predictor
from accord.record.folders import TrialFolder
from accord.record.record import Record
from accord.report.exchange import written_lines
from accord.study.study import load_study
from federation.test_exchange import images
from tests_support import CLASSES, same

Raw = dict[str, Any]
CLIENTS = ("a", "b", "c")
CLIENTS_OF_RUN = ("0", "1", "2")


def study(**changes: Any) -> Raw:
    turns = {
        "use": "public-turns",
        "as": "turns",
        "budget": {"epochs": 1, "batch": 64, "lr": 0.05},
        "method": {"turns": 2},
    }
    return {
        "name": "turns",
        "data": {"name": "digits", "train_limit": 200, "test_limit": 60, "public": 0.2},
        "partition": {"alpha": 0.1, "clients": 3},
        "net": {"backbone": "conv4"},
        "teacher": {"epochs": 1},
        "recipes": [turns],
        "references": False,
        **changes,
    }


def with_method(**method: Any) -> Raw:
    turns = study()["recipes"][0]
    return {"recipes": [{**turns, "method": {"use": "in-turn-from-teacher", **method}}]}


def trial(out: Path) -> TrialFolder:
    (found,) = [one for one in Record(out).trials() if one.id.startswith("turns-")]
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("turns") / "run"
    found = accord.run(study(keep_checkpoints=True), out=out, workers=1, quiet=True)
    assert not found.failures
    return out


def test_every_turn_visits_every_client_once_in_another_order() -> None:
    method = InTurn(merge={"use": "average"})
    asked = [method.chosen(CLIENTS, 3, number) for number in range(1, 31)]
    turns = [tuple(sum(asked[first : first + 3], ())) for first in range(0, 30, 3)]
    assert all(sorted(turn) == sorted(CLIENTS) for turn in turns)
    assert len(set(turns)) > 3
    assert asked == [method.chosen(CLIENTS, 3, number) for number in range(1, 31)]


def test_images_are_labelled_anew_after_each_turn_only() -> None:
    method = InTurnFromTeacher(merge={"use": "average"}, count=6, turns=2, relabel=True)
    assert [number for number in range(1, 7) if method.labels_anew(number)] == [3, 6]


def test_each_client_goes_on_from_the_net_of_the_one_before(whole: Path) -> None:
    """Batch norm's statistics are measured again; the other weights are the client's own."""
    folder = trial(whole)
    for number in range(1, 6):
        (path,) = (folder.round(number).path / "uploads").iterdir()
        sent = unprefixed(NET, Upload.load(path).tensors)
        told = Briefing.load(folder.round(number + 1).briefing).tensors
        next_one = unprefixed(NET, told)
        for name, tensor in sent.items():
            changes = "running" in name or "num_batches" in name
            assert torch.equal(tensor, next_one[name]) is not changes, name
        assert not any(name.startswith(MEAN) for name in told)


def test_the_result_is_the_mean_of_the_last_turn(whole: Path) -> None:
    folder = trial(whole)
    uploads = []
    for number in (4, 5, 6):
        (path,) = (folder.round(number).path / "uploads").iterdir()
        uploads.append(unprefixed(NET, Upload.load(path).tensors))
    final = unprefixed(NET, ServerState.load(folder.round(7).server_state).tensors)
    names = [name for name in final if "running" not in name and "num_batches" not in name]
    assert len(names) > 8
    for name in names:
        expected = np.mean([net[name].double().numpy() for net in uploads], axis=0)
        np.testing.assert_allclose(final[name].numpy(), expected, rtol=1e-5, atol=1e-6)


def test_its_batch_norms_have_the_statistics_of_the_public_images(whole: Path) -> None:
    folder = trial(whole)
    first = Briefing.load(folder.briefing)
    final = unprefixed(NET, ServerState.load(folder.round(7).server_state).tensors)
    public = public_images(first)
    assert public is not None
    scene = Scene(uploads=UploadFiles([], first), briefing=first, public=public)
    assert PUBLIC + "images" in first.tensors
    assert same(recalibrated(final, scene), final)


def test_by_files_the_net_is_that_of_the_local_engine(whole: Path, tmp_path: Path) -> None:
    """Every briefing goes to the client whose turn it is, and its upload makes the next one."""
    asked = study(keep_checkpoints=True)
    at = accord.brief(asked, tmp_path / "b1.safetensors", record=tmp_path / "made", workers=1)
    clients = images(whole, tmp_path / "images")
    for number in range(1, 7):
        (path,) = (trial(whole).round(number).path / "uploads").iterdir()
        local = Upload.load(path)
        name = local.header.client
        sent = tmp_path / f"sent-{number}.safetensors"
        accord.answer(at.path, clients[name], name, keep=tmp_path / "keep").save(sent)
        assert same(Upload.load(sent).tensors, local.tensors), number
        if number < 6:
            following = tmp_path / f"b{number + 1}.safetensors"
            found = accord.fuse_files(at.path, [sent], [], following=following, clients=3)
            assert found.following is not None
            at = found.following
    accord.fuse_files(at.path, [sent], [], save=tmp_path / "model")
    final = unprefixed(NET, ServerState.load(trial(whole).round(7).server_state).tensors)
    assert same(Predictor.load(tmp_path / "model").weights(0), final)


def test_the_end_of_each_turn_is_measured_with_the_exchanges_of_each_client(whole: Path) -> None:
    rows = sorted(Record(whole).rows(), key=lambda row: row["round"])
    assert [(row["round"], row["exchanges"]) for row in rows] == [(3, 1), (6, 2)]
    asked = Counter[str]()
    for number in range(1, 7):
        asked.update(read_json(trial(whole).round(number).report)["asked"])
    assert set(asked.values()) == {2}


def test_the_last_round_is_measured_also_where_it_ends_no_whole_turn() -> None:
    method = InTurn(merge={"use": "average"}, count=7, turns=2)
    assert [number for number in range(1, 8) if method.measured(number)] == [4, 7]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rounds": {"count": 3}}, "expected a multiple of 6, because each round asks one of 3"),
        ({"rounds": {"count": 9}}, "2 turns of equal length; found 9. Remove rounds.count"),
        ({"rounds": {"fraction": 0.5}}, "asks one client in each round. Remove rounds"),
        ({"rounds": {"min_fit_clients": 2}}, "asks one client in each round. Remove"),
        (with_method(turns=9_999), "9999 turns of 3 clients are 29997 rounds; expected at most"),
        (with_method(turns=2, merge="median"), "merge: expected average, .* found median"),
    ],
)
def test_settings_that_do_not_fit_are_refused(changes: Raw, message: str, tmp_path: Path) -> None:
    with pytest.raises(AccordError, match=message):
        accord.run(study(**changes), out=tmp_path / "run", workers=1, quiet=True)
    assert not (tmp_path / "run").exists()


def test_every_number_of_clients_has_whole_turns() -> None:
    """The number of rounds follows from it; a trial on pooled images counts turns only."""
    for clients in (1, 2, 5):
        asked = study(partition={"scheme": "iid", "clients": clients})
        turns = {**asked["recipes"][0], "use": "turns"}
        asked["recipes"] = [turns, {**turns, "use": "turns", "pooled": True, "as": "pooled"}]
        plan = Plan(load_study(asked), None, lambda _: None)
        one, pooled = plan.trials
        assert one.method.rounds == one.setup.rounds.count == 2 * clients
        assert (pooled.method.rounds, pooled.setup.budget.epochs) == (1, 2)
        plan.check()


def test_no_client_can_be_left_out_of_turns(whole: Path) -> None:
    for name in CLIENTS_OF_RUN:  # also the last one that was visited
        with pytest.raises(AccordError, match="each client has trained the net of the one before"):
            accord.fuse(whole, ["server"], without=[name], workers=1, quiet=True)


def test_no_fusion_uses_the_net_of_the_last_client_alone(whole: Path) -> None:
    for name in ("average", "classwise"):
        with pytest.raises(AccordError, match=r"have trained one net in turn\. Use --fusion serv"):
            accord.fuse(whole, [name], workers=1, quiet=True)
    asked = load_study(study(fusions=["classwise"], recipes=["ce-ensemble", *study()["recipes"]]))
    own = {trial.recipe.name: [one.label for one in trial.fusions] for trial in asked.trials()}
    assert own == {"ce-ensemble": ["outputs", "classwise"], "turns": ["server"]}


def test_by_files_a_round_takes_one_upload_and_tells_of_a_client_asked_twice(
    whole: Path, tmp_path: Path
) -> None:
    at = accord.brief(study(), tmp_path / "b1.safetensors", record=tmp_path / "made", workers=1)
    clients = images(whole, tmp_path / "images")
    first, second = list(clients)[:2]
    sent = {name: tmp_path / f"sent-{name}.safetensors" for name in (first, second)}
    for name, path in sent.items():
        accord.answer(at.path, clients[name], name).save(path)
    following, told = tmp_path / "b2.safetensors", list[str]()
    with pytest.raises(AccordError, match=r"expected one upload, because .* asks one client"):
        accord.fuse_files(at.path, list(sent.values()), [], following=following)
    found = accord.fuse_files(at.path, [sent[first]], [], following=following, tell=told.append)
    assert found.following is not None
    words = " ".join(written_lines(found.following))
    assert "Each of the 2 turns visits 3 clients, once each." in words
    assert "Send it to one client that has not answered in this turn" in words
    assert not [line for line in told if "no client has images" in line]  # others follow
    assert not [line for line in told if "turn" in line]
    again = tmp_path / "again.safetensors"
    accord.answer(found.following.path, clients[first], first).save(again)
    third = tmp_path / "b3.safetensors"
    accord.fuse_files(found.following.path, [again], [], following=third, tell=told.append)
    assert [line for line in told if "has answered before in turn 1 of 2" in line]
    accord.answer(third, clients[second], second).save(again)
    told.clear()
    end = accord.fuse_files(third, [again], [], save=tmp_path / "model", tell=told.append)
    assert end.trained == (first, second)
    assert SavedModel.load(tmp_path / "model").header.origin["clients"] == [first, second]
    # Classes are missing only if none of the clients so far has any images of them.
    counts = [Upload.load(path).tensors["label_counts"] for path in (sent[first], again)]
    absent = [
        name for name, n in zip(CLASSES, (counts[0] + counts[1]).tolist(), strict=True) if not n
    ]
    lines = [line for line in told if "no client has images of" in line]
    assert lines == [
        f"no client has images of {', '.join(absent)}: the model cannot recognise them"
    ] * bool(absent)


def test_by_files_a_damaged_file_of_the_server_is_refused(whole: Path, tmp_path: Path) -> None:
    at = accord.brief(study(), tmp_path / "b1.safetensors", record=tmp_path / "made", workers=1)
    clients = images(whole, tmp_path / "images")
    name = next(iter(clients))
    sent = tmp_path / "sent.safetensors"
    accord.answer(at.path, clients[name], name).save(sent)
    assert at.server is not None
    state = ServerState.load(at.server)
    nan = {MEAN + "weight": torch.tensor([torch.nan])}
    damaged = {
        "holds NaN or infinity": ServerState(state.header, {**state.tensors, **nan}),
        r"answered.*Restore it from a copy": state.with_own({"answered": 3}),
        r"answered\.0.*Restore": state.with_own({"answered": [3]}),
        "expected 10 label counts of each client": state.with_own({"label_counts": {"a": [1]}}),
    }
    for said, bad in damaged.items():
        bad.save(at.server)
        with pytest.raises(AccordError, match=said):
            accord.fuse_files(at.path, [sent], [], following=tmp_path / "b2.safetensors")
    assert not (tmp_path / "b2.safetensors").exists()


def test_without_the_mean_so_far_there_is_no_result(whole: Path) -> None:
    """The last turn has three rounds; the mean of its first net is part of the state."""
    folder, method = trial(whole), InTurnFromTeacher(merge={"use": "average"}, count=6, turns=2)
    state = ServerState.load(folder.round(5).server_state)
    without = {n: t for n, t in state.tensors.items() if not n.startswith(MEAN)}
    (path,) = (folder.round(5).path / "uploads").iterdir()
    briefing = Briefing.load(folder.round(5).briefing)
    uploads = UploadFiles([path], briefing)
    public = public_images(briefing)
    assert public is not None
    scene = Scene(uploads, briefing, public, public, torch.device("cpu"))
    method.advance(state, scene)
    with pytest.raises(AccordError, match="lacks the mean of the last turn"):
        method.advance(ServerState(state.header, without), scene)


def test_by_files_the_study_must_tell_the_number_of_clients(tmp_path: Path) -> None:
    asked = study(partition={"scheme": "sites"})
    with pytest.raises(AccordError, match=r"Set rounds\.count to their number times 2"):
        accord.brief(asked, tmp_path / "b1.safetensors", record=tmp_path / "made", workers=1)
    asked["rounds"] = {"count": 7}
    with pytest.raises(
        AccordError, match="expected a multiple of 2, because the method has 2 turn"
    ):
        accord.brief(asked, tmp_path / "b1.safetensors", record=tmp_path / "made", workers=1)
