"""A recipe that stands on another one: the sums of the net that its rounds have made."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import accord
from accord.client.studied import public_images
from accord.closed_form.sums import Sums
from accord.core.errors import AccordError
from accord.data.imageset import ImageSet
from accord.federation.plan import Plan
from accord.messages import GIVEN_LABELS, MAP, NET, Briefing, Upload, unprefixed
from accord.messages.saved_model import SavedModel, save_model
from accord.model.predictor import Predictor
from accord.nets.inference import forward_all, predicted_labels
from accord.nets.net import loaded_net
from accord.record.folders import TrialFolder
from accord.record.record import Record
from accord.study.study import load_study
from records import assert_same_uploads, timeless
from tests_support import digits, same, train

Raw = dict[str, Any]
BASE = {"use": "public-rounds", "as": "base", "budget": {"epochs": 1, "batch": 64, "lr": 0.05}}
LINEAR = {"landmarks": 0, "gamma": 0.3}  # no kernel
TOP = {
    "use": "few-rounds-public",
    "as": "top",
    "map": {
        "blocks": [{"use": "rounds", "recipe": "base", "stages": 1, "grid": 2}],
        **LINEAR,
    },
}


def study(**changes: Any) -> Raw:
    return {
        "name": "standing",
        "data": {"name": "digits", "train_limit": 300, "test_limit": 120, "public": 0.2},
        "partition": {"alpha": 0.1, "clients": 3},
        "net": {"backbone": "conv4"},
        "rounds": {"count": 2},
        "teacher": {"epochs": 2},
        "recipes": [TOP, BASE],
        "references": False,
        **changes,
    }


def run(out: Path, **changes: Any) -> list[Raw]:
    found = accord.run(study(**changes), out=out, workers=1, quiet=True)
    assert not found.failures
    return found.rows


def folder_of(out: Path, recipe: str) -> TrialFolder:
    (found,) = [one for one in Record(out).trials() if one.id.startswith(f"{recipe}-")]
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("standing") / "run"
    run(out)
    return out


def test_the_clients_sum_the_features_of_the_net_that_the_rounds_made(whole: Path) -> None:
    """Its weights are Σ n_k W_k / Σ n_k over the uploads of round 2, by NumPy."""
    last = folder_of(whole, "base").round(2)
    uploads = [Upload.load(path) for path in sorted((last.path / "uploads").iterdir())]
    found = unprefixed(
        MAP + "blocks.0.encoders.0.", Briefing.load(folder_of(whole, "top").briefing).tensors
    )
    shares = np.array([upload.header.samples for upload in uploads])
    weights = [name for name in found if name.endswith((".weight", ".bias"))]
    assert len(weights) == 12
    for name in weights:
        each = np.stack([upload.tensors[MAP + name].double().numpy() for upload in uploads])
        expected = np.tensordot(shares / shares.sum(), each, axes=1)
        np.testing.assert_allclose(found[name].numpy(), expected, rtol=1e-5, atol=1e-7)


def test_it_can_use_the_net_of_each_client_instead(tmp_path: Path) -> None:
    """Round 2 asked two of the three clients: the merged net stands in for the third one."""
    block = {"use": "rounds", "recipe": "base", "of": "clients", "stages": 1, "grid": 1}
    top = {**TOP, "map": {"blocks": [block], **LINEAR}}
    run(tmp_path / "run", recipes=[top, BASE], rounds={"count": 2, "fraction": 0.7})
    last = folder_of(tmp_path / "run", "base").round(2)
    uploads = [Upload.load(path) for path in sorted((last.path / "uploads").iterdir())]
    assert len(uploads) == 2
    told = Briefing.load(folder_of(tmp_path / "run", "top").briefing).tensors
    nets = [unprefixed(f"{MAP}blocks.0.encoders.{index}.", told) for index in range(3)]
    for upload, net in zip(uploads, nets, strict=False):
        assert same(unprefixed(MAP, upload.tensors), net)
    shares = np.array([upload.header.samples for upload in uploads])
    name = "stages.stage4.0.weight"
    each = np.stack([upload.tensors[MAP + name].double().numpy() for upload in uploads])
    expected = np.tensordot(shares / shares.sum(), each, axes=1)
    np.testing.assert_allclose(nets[2][name].numpy(), expected, rtol=1e-5, atol=1e-7)
    assert told[NET + "head.prototypes"].shape == (10, 3 * 64)


def test_rounds_exchanges_and_bytes_count_on(whole: Path) -> None:
    rows = {(row["recipe"], row["round"]): row for row in Record(whole).rows()}
    assert {*rows} == {("base", 1), ("base", 2), ("top", 3)}
    base, top = rows["base", 2], rows["top", 3]
    assert (base["exchanges"], top["exchanges"]) == (2, 3)
    uploads = folder_of(whole, "top").path / "uploads"
    own = sum(path.stat().st_size for path in uploads.iterdir())
    assert top["upload_bytes"] == base["upload_bytes"] + own
    briefing = folder_of(whole, "top").briefing.stat().st_size
    assert top["download_bytes"] == base["download_bytes"] + 3 * briefing
    assert top["seconds"] > base["seconds"]


def test_it_can_be_added_later_and_gives_the_same(whole: Path, tmp_path: Path) -> None:
    run(tmp_path / "later", recipes=[BASE])
    run(tmp_path / "later")
    assert timeless(tmp_path / "later") == timeless(whole)
    assert_same_uploads(whole, tmp_path / "later")


def test_the_recipe_below_is_added_and_comes_first() -> None:
    names = [recipe.name for recipe in load_study(study(recipes=["few-rounds-public"])).recipes]
    assert names == ["public-turns", "few-rounds-public"]
    assert [recipe.name for recipe in load_study(study()).recipes] == ["base", "top"]


@pytest.mark.parametrize(
    ("below", "message"),
    [
        ("fafi", r"it stands on 'fafi', whose first fusion \(features\) makes no single net"),
        ("closed-form", r"\(ridge\) makes no single net of the clients' nets. Name.* fedavg"),
        ("central", "it stands on 'central'"),
        ("KD", "expected the name of the recipe that it stands on; found 'KD'.* named 'kd'"),
        ("publc-rounds", "unknown recipe 'publc-rounds'.*public-rounds"),
    ],
)
def test_only_a_recipe_that_makes_one_net_can_be_below(below: str, message: str) -> None:
    block = {"use": "rounds", "recipe": below}
    with pytest.raises(AccordError, match=message):
        load_study(study(recipes=[{**TOP, "map": {"blocks": [block], **LINEAR}}]))


def test_a_map_stands_on_one_recipe() -> None:
    blocks = [{"use": "rounds", "recipe": name} for name in ("fedavg", "public-rounds")]
    with pytest.raises(AccordError, match="a map can stand on one other recipe; found fedavg, pub"):
        load_study(study(recipes=[{**TOP, "map": {"blocks": blocks, **LINEAR}}]))


def test_what_cannot_stand_on_another_recipe_is_refused(tmp_path: Path) -> None:
    def top(*blocks: Raw, **more: Any) -> list[Raw]:
        return [{**TOP, "map": {"blocks": list(blocks), **LINEAR}, **more}, BASE]

    rounds = {"use": "rounds", "recipe": "base"}
    chain: list[Raw] = [{"use": "closed-form-small", "as": "c0"}]
    for number in range(1, 22):
        blocks = [{"use": "scores", "recipe": f"c{number - 1}"}, {"use": "patches", "count": 2}]
        chain.append({"use": "closed-form-small", "map": {"blocks": blocks}, "as": f"c{number}"})
    cases = {
        "found both in one map": top(rounds, {"use": "scores", "recipe": "base"}),
        "a recipe with `pooled` has no clients": top(rounds, pooled=True),
        "expected at most 20 recipes that stand on each other": chain[::-1],
        r"'map.blocks\[0\].weight': expected less than": top({**rounds, "weight": 1e300}),
    }
    for said, recipes in cases.items():
        with pytest.raises(AccordError, match=said):
            accord.run(study(recipes=recipes), out=tmp_path / "run", workers=1, quiet=True)
    assert not (tmp_path / "run").exists()


def test_by_files_a_model_of_other_images_is_refused(whole: Path, tmp_path: Path) -> None:
    rule = {"use": "average", "recalibrate": True}
    accord.fuse(whole, [rule], trial="base", workers=1, quiet=True, save=tmp_path / "model")
    saved = SavedModel.load(tmp_path / "model")
    weights, combiner = saved.weights(0), saved.combiner()
    other = {
        "classes": tuple(reversed(saved.header.classes)),
        "height": 16,
    }
    for key, value in other.items():
        header = saved.header.model_copy(update={key: value})
        save_model(tmp_path / "model", header, [weights], combiner)
        out = tmp_path / "briefing.safetensors"
        with pytest.raises(AccordError, match=f"--from: the model .* has {key}"):
            accord.brief(study(), out, start_from=tmp_path / "model", record=tmp_path / "made")
        assert not out.exists()
    blocks = [{"use": "scores", "recipe": "below"}, {"use": "patches", "size": 3, "count": 2}]
    below = {"use": "closed-form-small", "as": "below"}
    asked = study(recipes=[{**TOP, "map": {"blocks": blocks, **LINEAR}}, below], rounds={})
    with pytest.raises(AccordError, match=r"expected a model of a closed form.*'below'.*trained n"):
        accord.brief(asked, out, start_from=tmp_path / "model", record=tmp_path / "made")


def test_by_files_a_saved_model_takes_the_place_of_the_rounds(whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "briefing.safetensors"
    with pytest.raises(AccordError, match=r"'top' stands on 'base'.*--from MODEL"):
        accord.brief(study(), out, record=tmp_path / "made")
    rule = {"use": "average", "recalibrate": True}
    accord.fuse(whole, [rule], trial="base", workers=1, quiet=True, save=tmp_path / "model")
    accord.brief(study(), out, start_from=tmp_path / "model", record=tmp_path / "made")
    net = MAP + "blocks.0.encoders.0."
    for name, tensor in Briefing.load(folder_of(whole, "top").briefing).tensors.items():
        if name.startswith(net):
            assert torch.equal(Briefing.load(out).tensors[name], tensor), name
    assert str(tmp_path) not in Briefing.load(out).header.model_dump_json()


def test_by_files_a_model_of_several_nets_takes_the_place_of_the_clients(
    whole: Path, tmp_path: Path
) -> None:
    accord.fuse(whole, ["outputs"], trial="base", workers=1, quiet=True, save=tmp_path / "model")
    block = {"use": "rounds", "recipe": "base", "of": "clients", "stages": 1, "grid": 1}
    asked = study(recipes=[{**TOP, "map": {"blocks": [block], **LINEAR}}, BASE])
    out = tmp_path / "briefing.safetensors"
    accord.brief(asked, out, start_from=tmp_path / "model", record=tmp_path / "made")
    tensors = Briefing.load(out).tensors
    last = folder_of(whole, "base").round(2)
    for index, path in enumerate(sorted((last.path / "uploads").iterdir())):
        found = unprefixed(f"{MAP}blocks.{index}.encoders.0.", tensors)
        assert same(found, unprefixed(MAP, Upload.load(path).tensors))


# --- public images without labels --------------------------------------------------------------

CLOSED = {
    "use": "closed-form-public",
    "as": "closed",
    "packing": "float32",
    "map": {"blocks": [{"use": "patches", "size": 3, "count": 2}], "landmarks": 4},
}
RELABEL = {"use": "from-teacher", "relabel": True}
PSEUDO = {**BASE, "labels_from": "closed", "method": RELABEL}


def test_the_labels_are_those_of_the_recipe_below_and_then_of_the_rounds(tmp_path: Path) -> None:
    rows = run(tmp_path / "run", recipes=[TOP, PSEUDO, CLOSED])
    found = {(row["recipe"], row["round"]) for row in rows}
    assert found == {("closed", 1), ("base", 2), ("base", 3), ("top", 4)}
    accord.fuse(
        tmp_path / "run", ["ridge"], trial="closed", workers=1, quiet=True, save=tmp_path / "model"
    )
    first = Briefing.load(folder_of(tmp_path / "run", "base").briefing)
    images = public_images(first)
    assert images is not None
    said = torch.from_numpy(images.labels)
    assert torch.equal(said, Predictor.load(tmp_path / "model").scores(images).argmax(dim=1))
    assert not torch.equal(said, true_labels(images))
    (teacher,) = (tmp_path / "run" / "teachers").glob("teacher-*")
    given = Briefing.load(teacher / "briefing.safetensors").tensors[GIVEN_LABELS]
    assert torch.equal(given, said)
    # After round 1 its average labels them anew. The teacher and the clients never see others.
    later = Briefing.load(folder_of(tmp_path / "run", "base").round(2).briefing)
    anew = public_images(later)
    assert anew is not None
    net = loaded_net(later.header.net, 1, 10, unprefixed(NET, later.tensors))
    labels = predicted_labels(net, anew, later.header, torch.device("cpu"))
    assert torch.equal(torch.from_numpy(anew.labels), labels)


def true_labels(images: ImageSet) -> Tensor:
    """The labels of images of digits, found by their pixels."""
    pictures, labels = digits()
    known = {picture.tobytes(): int(label) for picture, label in zip(pictures, labels, strict=True)}
    return torch.tensor([known[image.tobytes()] for image in images.images])


def test_the_teacher_learns_the_given_labels_only(tmp_path: Path) -> None:
    """With every label changed in the data, the closed form's labels lead to the same teacher."""
    run(tmp_path / "run", recipes=[PSEUDO, CLOSED])
    (teacher,) = (tmp_path / "run" / "teachers").glob("teacher-*")
    briefing = Briefing.load(teacher / "briefing.safetensors")
    given = briefing.tensors[GIVEN_LABELS]
    public = public_images(Briefing.load(folder_of(tmp_path / "run", "base").briefing))
    assert public is not None
    relabelled = ImageSet(public.images, public.rows, given.numpy())
    expected = train(relabelled, briefing, "teacher")
    (path,) = (teacher / "uploads").iterdir()
    assert same(unprefixed(NET, Upload.load(path).tensors), unprefixed(NET, expected.tensors))


@pytest.mark.parametrize(
    ("recipe", "changes", "message"),
    [
        (
            {**TOP, "map": {"blocks": [{"use": "scores", "recipe": "fedavg"}], **LINEAR}},
            {},
            r"\(average\) makes no single net of the clients' sums. Name a recipe such as closed-f",
        ),
        (
            {"use": "fedavg", "labels_from": "closed-form-small"},
            {},
            "labels_from and labels_model are",
        ),
        (PSEUDO, {"teacher": {"allow_random": True}}, "labels_from and labels_model are"),
        ({**PSEUDO, "labels_from": "fafi"}, {}, "makes no single net of the clients"),
        ({**PSEUDO, "labels_from": "base"}, {}, "it stands on itself: base → base"),
    ],
)
def test_labels_need_a_teacher_and_a_recipe_that_makes_them(
    recipe: Raw, changes: Raw, message: str, tmp_path: Path
) -> None:
    with pytest.raises(AccordError, match=message):
        run(tmp_path / "run", recipes=[recipe, CLOSED], **changes)
    assert not (tmp_path / "run").exists()


def test_by_files_a_saved_model_labels_the_images(tmp_path: Path) -> None:
    """Teacher and labels are those of the same recipes in one study."""
    run(tmp_path / "run", recipes=[PSEUDO, CLOSED])
    model, out = tmp_path / "model", tmp_path / "briefing.safetensors"
    accord.fuse(tmp_path / "run", ["ridge"], trial="closed", workers=1, quiet=True, save=model)
    accord.brief(
        study(recipes=[PSEUDO, CLOSED]), out, start_from=model, record=tmp_path / "made", workers=1
    )
    first = Briefing.load(folder_of(tmp_path / "run", "base").briefing).tensors
    found = Briefing.load(out).tensors
    assert same(found, first)
    larger = {"name": "digits", "image": 16, "public": 0.2}
    with pytest.raises(AccordError, match=r"labels_model: the model .* has height 8; the study ha"):
        run(tmp_path / "larger", recipes=[{**PSEUDO, "labels_model": str(model)}], data=larger)


# --- closed forms that stand on closed forms ---------------------------------------------------


def test_a_chain_of_closed_forms_sums_the_scores_of_the_one_before(tmp_path: Path) -> None:
    patches = {"use": "patches", "size": 3, "count": 5}
    first = {"use": "boosted-1", "map": {"blocks": [patches]}, "as": "first"}
    scores = {"use": "scores", "recipe": "first"}
    second = {**first, "map": {"blocks": [scores, {**patches, "variant": 1}]}, "as": "second"}
    third = {**second, "map": {"blocks": [{**scores, "recipe": "second"}, patches]}, "as": "third"}
    cells = {"scheme": "dirichlet", "alpha": [0.1, 10.0], "clients": 3}
    rows = run(tmp_path / "run", recipes=[third, second, first], partition=cells, rounds={})
    assert {(row["recipe"], row["round"]) for row in rows} == {
        ("first", 1),
        ("second", 2),
        ("third", 3),
    }
    for name in ("first", "second", "third"):  # the partition does not matter
        found = {round(row["accuracy"], 6) for row in rows if row["recipe"] == name}
        assert len(found) == 1, name
    folders = {
        one.id.split("-")[0]: one for one in Record(tmp_path / "run").trials() if "a10" in one.id
    }
    model = tmp_path / "model"
    accord.fuse(
        tmp_path / "run", ["ridge"], trial=folders["first"].id, workers=1, quiet=True, save=model
    )
    out = tmp_path / "briefing.safetensors"
    asked = study(recipes=[second, first], rounds={})
    accord.brief(asked, out, start_from=model, record=tmp_path / "made", workers=1)
    by_files = unprefixed(MAP, Briefing.load(out).tensors)
    assert same(by_files, unprefixed(MAP, Briefing.load(folders["second"].briefing).tensors))
    predictor, totals = Predictor.load(model), torch.zeros(10, 10, dtype=torch.float64)
    study_of = load_study(study(recipes=[first], partition={**cells, "alpha": 10.0}, rounds={}))
    _, allocation = Plan(study_of, None, lambda _: None).allocation(study_of.trials()[0])
    net = loaded_net(predictor.header.net, 1, 10, predictor.weights(0))
    header = Briefing.load(folders["first"].briefing).header
    for client in range(3):
        for _, logits, labels in forward_all(
            net, allocation.client(client), header, torch.device("cpu")
        ):
            totals.index_add_(0, labels, logits.double())
    sent = [Upload.load(path) for path in (folders["second"].path / "uploads").iterdir()]
    summed = torch.stack([Sums.of(upload.tensors).sums for upload in sent]).sum(dim=0)
    torch.testing.assert_close(summed[:, :10], totals, rtol=1e-3, atol=1e-2)


# --- what people see ---------------------------------------------------------------------------


def test_the_report_draws_all_exchanges_in_one_figure(whole: Path, tmp_path: Path) -> None:
    accord.write_report(whole, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert re.search(r"Accuracy over rounds,[^<]*top \(ridge\) [\d.]+ % at round 3", page)
    assert re.search(r"base \(average\) from [\d.]+ % at round 1 to [\d.]+ % at round 2", page)
    assert "Accuracy over epochs" not in page
