"""Turns without public images: random weights at the start, and a closed form at the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import accord
from accord.messages import MAP, NET, Briefing, ServerState, Upload, unprefixed
from accord.model.predictor import Predictor
from accord.record.folders import TrialFolder
from accord.record.record import Record
from federation.test_exchange import images
from tests_support import same

Raw = dict[str, Any]


def study(alpha: float, **data: Any) -> Raw:
    turns = {"use": "turns", "budget": {"epochs": 2, "batch": 64}, "method": {"turns": 2}}
    blocks = [
        {"use": "rounds", "recipe": "turns", "stages": 1, "grid": 2},
        {"use": "patches", "size": 3, "count": 10},
    ]
    return {
        "name": "turns",
        "data": {"name": "digits", "train_limit": 600, "test_limit": 200, **data},
        "partition": {"alpha": alpha, "clients": 3},
        "net": {"backbone": "conv4"},
        "recipes": [
            {**turns, "as": "turns"},
            {"use": "few-rounds", "map": {"blocks": blocks}, "as": "sums"},
            {"use": "closed-form", "map": {"blocks": blocks[1:]}, "as": "patches"},
        ],
        "references": False,
        "keep_checkpoints": True,
    }


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("turns") / "run"
    found = accord.run(study(0.05), out=out, workers=1, quiet=True)
    assert not found.failures
    return out


def trial(out: Path, recipe: str) -> TrialFolder:
    (found,) = [one for one in Record(out).trials() if one.id.startswith(f"{recipe}-")]
    return found


def test_the_first_net_is_random_and_nothing_public_is_sent(whole: Path) -> None:
    first = Briefing.load(trial(whole, "turns").briefing)
    assert first.header.teacher is None
    assert {name.split(".")[0] for name in first.tensors} == {"net"}
    assert {one.name.split("-")[0] for one in (whole / "teachers").iterdir()} == {"map"}
    head = first.tensors[NET + "head.prototypes"]
    assert 0.01 < float(head.std()) < 1


def test_each_client_goes_on_from_exactly_the_net_that_was_sent(whole: Path) -> None:
    """Without public images nobody measures the statistics of batch norm again."""
    folder = trial(whole, "turns")
    for number in range(1, 6):
        (path,) = (folder.round(number).path / "uploads").iterdir()
        sent = unprefixed(NET, Upload.load(path).tensors)
        told = unprefixed(NET, Briefing.load(folder.round(number + 1).briefing).tensors)
        assert same(sent, told)


def test_the_result_is_the_mean_of_the_last_turn_with_its_statistics(whole: Path) -> None:
    folder, nets = trial(whole, "turns"), []
    for number in (4, 5, 6):
        (path,) = (folder.round(number).path / "uploads").iterdir()
        nets.append(unprefixed(NET, Upload.load(path).tensors))
    final = unprefixed(NET, ServerState.load(folder.round(7).server_state).tensors)
    assert any("running_mean" in name for name in final)
    for name, tensor in final.items():
        mean = np.mean([net[name].double().numpy() for net in nets], axis=0)
        expected = mean if tensor.is_floating_point() else np.round(mean)
        np.testing.assert_allclose(tensor.numpy(), expected, rtol=1e-5, atol=1e-6)


def test_the_closed_form_makes_up_for_what_the_head_has_forgotten(whole: Path) -> None:
    """It beats its own net, and patches alone, in one exchange more."""
    rows = {(row["recipe"], int(row["round"])): row for row in Record(whole).rows()}
    net, sums, patches = rows["turns", 6], rows["sums", 7], rows["patches", 1]
    assert float(sums["accuracy"]) > float(net["accuracy"]) + 0.1
    assert float(sums["accuracy"]) > float(patches["accuracy"])
    assert (int(net["exchanges"]), int(sums["exchanges"])) == (2, 3)


def test_a_client_that_leaves_the_sums_stays_in_the_net_which_is_told(
    whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    above = trial(whole, "sums").id
    accord.fuse(whole, ["ridge"], trial=above, remove=["1"], workers=1)
    assert "warning: 1 also took part in turns, on whose result" in capsys.readouterr().err
    patches = trial(whole, "patches").id
    accord.fuse(whole, ["ridge"], trial=patches, remove=["1"], workers=1)
    assert "also took part" not in capsys.readouterr().err


def test_public_images_of_the_server_are_not_used(tmp_path: Path) -> None:
    """The first net is the same with and without them, and nobody measures batch norm on them."""
    finals = []
    for name, extra in (("without", {}), ("with", {"public": 0.2})):
        asked = study(10.0, **extra)
        asked["data"] |= {"train_limit": 250 if extra else 200}
        asked["recipes"] = [{**asked["recipes"][0], "method": {"turns": 1}}]
        out = tmp_path / name
        accord.run(asked, out=out, workers=1, quiet=True)
        folder = trial(out, "turns")
        briefings = [Briefing.load(folder.round(number).briefing) for number in (1, 2)]
        (path,) = (folder.round(1).path / "uploads").iterdir()
        finals.append((briefings, unprefixed(NET, Upload.load(path).tensors)))
    for briefings, sent in finals:
        assert same(unprefixed(NET, briefings[1].tensors), sent)
    first, second = (unprefixed(NET, briefings[0].tensors) for briefings, _ in finals)
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_by_files_all_five_exchanges_give_the_same_model(whole: Path, tmp_path: Path) -> None:
    """The net goes from client to client as files, and then they send sums of its features."""
    asked = study(0.05)
    turns, sums, _ = asked["recipes"]
    briefing = accord.brief(
        {**asked, "recipes": [turns]}, tmp_path / "1", record=tmp_path / "made", workers=1
    ).path
    clients, keep = images(whole, tmp_path / "images"), tmp_path / "keep"
    folder = trial(whole, "turns")
    for number in range(1, 7):
        (path,) = (folder.round(number).path / "uploads").iterdir()
        name = Upload.load(path).header.client
        sent = tmp_path / f"sent-{number}"
        accord.answer(briefing, clients[name], name, keep=keep).save(sent)
        assert same(Upload.load(sent).tensors, Upload.load(path).tensors), number
        if number < 6:
            found = accord.fuse_files(
                briefing, [sent], [], following=tmp_path / str(number + 1), clients=3
            )
            assert found.following is not None
            briefing = found.following.path
    accord.fuse_files(briefing, [sent], [], save=tmp_path / "net")
    last = accord.brief(
        {**asked, "recipes": [turns, sums]},
        tmp_path / "last",
        start_from=tmp_path / "net",
        record=tmp_path / "above",
        workers=1,
    ).path
    above = trial(whole, "sums")
    assert same(
        unprefixed(MAP, Briefing.load(last).tensors),
        unprefixed(MAP, Briefing.load(above.briefing).tensors),
    )
    answers = [tmp_path / f"sums-{name}" for name in clients]
    for name, path in zip(clients, answers, strict=True):
        accord.answer(last, clients[name], name).save(path)
    accord.fuse_files(last, answers, [], save=tmp_path / "model")
    accord.fuse(whole, ["ridge"], trial=above.id, workers=1, quiet=True, save=tmp_path / "local")
    by_files, local = (Predictor.load(tmp_path / name).weights(0) for name in ("model", "local"))
    assert same(by_files, local)
