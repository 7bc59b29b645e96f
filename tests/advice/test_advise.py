"""`accord advise` from images to a study that runs as it is."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import accord
from accord.core.errors import AccordError
from accord.federation.plan import Plan
from accord.study.study import load_study
from command_line import Here, Refused
from imagefiles import pixels, save_image, save_npz
from tests_support import digits

Raw = dict[str, Any]
SITES = ("north", "south", "west")


@pytest.fixture
def scans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Digits of three hospitals: the first two have two digits in common, the third has others."""
    monkeypatch.chdir(tmp_path)
    images, labels = digits()
    wanted = {"north": (0, 1), "south": (1, 2), "west": (3,)}
    rows, sites, taken = [], [], dict.fromkeys(range(10), 0)
    for site, held in wanted.items():
        for label in held:
            start = taken[label]
            taken[label] += 40
            rows += np.flatnonzero(labels == label)[start : start + 40].tolist()
            sites += [site] * 40
    return save_npz(
        tmp_path / "scans.npz", images=images[rows], labels=labels[rows], hospital=sites
    )


def test_the_written_study_runs_as_it_is(scans: Path, here: Here) -> None:
    """With small changes on the command line that make it shorter, and no others."""
    done = here("advise", "--data", scans, "--column", "hospital", "--no-cost")
    assert done.code == 0, done.error
    for said in (
        "3 (north, south, west)",
        "closed-form-small, fusion ridge",
        "docs/rounds.md",
        "Only one client",
    ):
        assert said in done.out
    assert "1 of 3 clients hold a single class" in done.out
    assert done.out.rstrip().endswith("next: accord run advised.yaml")
    text = Path("advised.yaml").read_text()
    assert "# Recommendation: closed-form-small" in text
    study = load_study("advised.yaml")
    assert study.options.seeds == (0, 1, 2)
    assert study.setups[0].data.validation == 0.1
    quick = ["seeds=[0]", "budget.epochs=1", "net.backbone=conv4"]
    results = accord.run("advised.yaml", overrides=quick, workers=1, quiet=True)
    assert not results.failures
    found = {row["recipe"]: row for row in results.rows}
    assert set(found) == {*(r.name for r in study.recipes)} == {*found, "central", "local-only"}
    assert found["closed-form-small"]["accuracy"] > 0.9
    assert found["closed-form-small"]["clients"] == 3


def test_the_function_gives_facts_and_costs(scans: Path) -> None:
    found = accord.advise(data=scans, column="hospital", cost=True, workers=1)
    assert found.facts.clients == SITES
    # Of 200 images, a fifth of each site is for the test, and a tenth of the others for validation.
    kept = 200 * 0.8 * 0.9
    assert found.facts.images == pytest.approx(kept, abs=len(SITES))
    assert found.study["data"]["validation"] == 0.1
    assert "test_per_client" not in found.study["data"]  # the test images tell their site
    assert found.facts.single_class == 1
    assert (found.recipe, found.facts.simulated) == ("closed-form-small", False)
    first, second = found.costs
    assert first.megabytes_up == pytest.approx(found.picks[0].choice.upload / 1e6, rel=0.05)
    assert second.megabytes_up == pytest.approx(found.picks[1].choice.upload / 1e6, rel=0.05)
    assert min(first.seconds, second.seconds, first.gigabytes, first.megabytes_down) > 0
    assert not Path("advised.yaml").exists()
    content = json.loads(found.to_json())
    assert content["facts"]["smallest"] == 29
    assert content["counts"]["west"] == {**dict.fromkeys("012", 0), "3": 29}
    assert content["recommendation"]["cost"]["megabytes_up"] == first.megabytes_up
    assert load_study(content["study"]).trials()


def test_a_study_keeps_its_images_clients_and_net(
    study: Raw, tmp_path: Path, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    study["partition"]["alpha"] = [0.5, 0.1]
    study["rounds"] = {"count": 6}
    study["recipes"] = ["fedavg"]
    Path("mine.yaml").write_text(yaml.safe_dump(study))
    done = here("advise", "mine.yaml", "--no-cost", "--json", "--public", "0.1")
    assert done.code == 0, done.error
    content = json.loads(done.out)
    written = load_study("advised.yaml")
    assert yaml.safe_load(Path("advised.yaml").read_text()) == content["study"]
    assert written.name == "tiny-advised"
    assert content["study"]["partition"] == study["partition"]
    assert content["study"]["net"] == study["net"]
    assert content["study"]["data"]["public"] == 0.1
    assert "(partition.alpha)" in content["warnings"][0]
    assert any("6 exchanges are allowed" in warning for warning in content["warnings"])
    assert any("The 15 public images are not used" in w for w in content["warnings"])


def test_no_file_of_somebody_is_replaced(scans: Path, here: Here, refused: Refused) -> None:
    words = ("advise", "--data", scans, "--no-cost")
    assert here(*words).code == 0
    before = Path("advised.yaml").read_text()
    assert here(*words, "--clients", "3").code == 0  # its own file is replaced
    own = Path("advised.yaml")
    assert own.read_text() != before
    own.write_text(own.read_text().replace("seeds: [0, 1, 2]", "seeds: [0]"))
    kept = own.read_text()
    refused(*words, said="has been changed")
    assert own.read_text() == kept
    Path("photo.yaml").write_bytes(b"\xff\xd8")
    refused(*words, "--out", "photo.yaml", said="was not written by")
    refused(*words, "--out", ".", said="is a folder")


def test_mistakes_are_explained(scans: Path, refused: Refused) -> None:
    Path("empty").mkdir()
    Path("elsewhere.yaml").write_text(
        "name: far\ndata: {classes: [a, b], image: 8}\npartition: {scheme: sites, names: [x, y]}\n"
    )
    Path("bare.yaml").write_text("name: bare\n")
    for section in ("data", "partition", "net", "rounds"):
        values = {"data": {"name": "digits"}, "name": "odd", section: 3}
        Path(f"odd-{section}.yaml").write_text(yaml.safe_dump(values))
        refused("advise", f"odd-{section}.yaml", said="expected a mapping of keys, found 3")
    data = ("--data", scans)
    for words, said in (
        ((), "found neither"),
        (("bare.yaml", *data), "found both"),
        (("bare.yaml",), "expected a section `data`"),
        (("nowhere.yaml",), "does not exist"),
        (("elsewhere.yaml",), "are at its clients"),
        (("elsewhere.yaml", "--clients", "3"), "--clients is for --data"),
        (("--data", "nowhere"), "does not exist"),
        (("--data", "empty"), "found no image"),
        ((*data, "--column", "hospitel"), "did you mean 'hospital'?"),
        ((*data, "--column", "hospital", "--clients", "2"), "already name the clients"),
        ((*data, "--clients", "-1"), "--clients: expected 1 or more"),
        ((*data, "--exchanges", "0"), "--exchanges: expected 1 or more"),
        ((*data, "--megabytes", "nan"), "--megabytes: expected a number above 0"),
        ((*data, "--megabytes", "-3"), "--megabytes: expected a number above 0"),
        ((*data, "--megabytes", "inf"), "--megabytes: expected a number above 0"),
        ((*data, "--public", "nan"), "--public: expected a fraction"),
        ((*data, "--public", "-0.1"), "--public: expected a fraction"),
        ((*data, "--image", "2"), "--image: expected a size"),
        ((*data, "--megabytes", "0.001"), "no recipe stays within"),
    ):
        refused("advise", *words, "--no-cost", said=said)
    assert not Path("advised.yaml").exists()


def test_numbers_of_the_function_are_checked_too() -> None:
    with pytest.raises(AccordError, match="--megabytes"):
        accord.advise(data=".", megabytes=math.nan)


def test_folders_and_files_of_sites(tmp_path: Path) -> None:
    """The same images give the same facts, as folders of sites and as a file for each site."""
    images, labels = digits()
    for site, held in (("north", (0, 1)), ("south", (1, 2))):
        rows = np.concatenate(
            [np.flatnonzero(labels == label)[site == "south" :: 2][:30] for label in held]
        )
        for row in rows:
            save_image(tmp_path / f"sites/{site}/{labels[row]}/{row}.png", images[row])
        save_npz(tmp_path / f"files/{site}.npz", images=images[rows], labels=labels[rows])
    found = [accord.advise(data=tmp_path / name, cost=False) for name in ("sites", "files")]
    for one in found:
        assert one.facts.clients == ("north", "south")
        assert one.facts.at_one_client() == ["0", "2"]
        assert one.study["partition"] == {"scheme": "by-folder"}
        assert any("Only one client holds 0, 2" in warning for warning in one.warnings)
    assert found[0].facts.counts.tolist() == found[1].facts.counts.tolist()
    found[0].write(tmp_path / "mine.yaml")
    changes = ["seeds=[0]", "references=false", "recipes=[closed-form-small]"]
    results = accord.run(
        tmp_path / "mine.yaml", overrides=changes, out=tmp_path / "run", workers=1, quiet=True
    )
    assert not results.failures
    assert min(row["accuracy"] for row in results.rows) > 0.9


def test_large_images_become_smaller_and_columns_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    labels, sites = np.repeat([0, 1], 30), ["a", "b"] * 30
    path = save_npz(tmp_path / "large.npz", images=pixels(60, 70, 80, 3), labels=labels, town=sites)
    found = accord.advise(data=path, clients=2, cost=False)
    assert found.study["data"]["image"] == found.facts.side == 64
    assert "64×64 pixels. If smaller" in found.warnings[0]
    assert "these columns: town" in found.warnings[1]
    same = accord.advise(data=path, clients=2, image=16, cost=False)
    assert same.study["data"]["image"] == same.facts.side == 16


def test_tiny_images_become_larger_and_one_class_is_refused(tmp_path: Path) -> None:
    labels = np.repeat([0, 1], 30)
    for shape in ((1, 1), (3, 9)):
        path = save_npz(tmp_path / "tiny.npz", images=pixels(60, *shape, 1), labels=labels)
        found = accord.advise(data=path, clients=2, cost=False)
        assert found.study["data"]["image"] == found.facts.height == found.facts.width == 8
        found.write(tmp_path / "tiny.yaml")
        Plan(load_study(tmp_path / "tiny.yaml"), None, lambda _: None).check()
    path = save_npz(tmp_path / "one.npz", images=pixels(60, 8, 8, 1), labels=0 * labels)
    with pytest.raises(AccordError, match="two or more classes; found only the class '0'"):
        accord.advise(data=path, clients=2, cost=False)


def test_the_facts_are_those_of_the_seed_with_the_smallest_client(
    study: Raw, tmp_path: Path
) -> None:
    """So that a limit of privacy holds for every seed of the study that is written."""
    path = tmp_path / "mine.yaml"
    study["partition"] = {"alpha": 0.3, "clients": 3}
    path.write_text(yaml.safe_dump(study))
    found = accord.advise(path, private=True, cost=False)
    checked = load_study({**found.study, "references": False})
    smallest = [
        int(Plan(checked, None, print).allocation(trial)[1].partition.label_counts.sum(1).min())
        for trial in checked.trials()[:3]
    ]
    assert len(set(smallest)) > 1
    assert found.facts.smallest == min(smallest)
    width = found.picks[0].choice.features
    assert width is None or width <= min(smallest)


def test_the_studies_of_all_kinds_of_limits_can_begin(tmp_path: Path) -> None:
    """All checks before a run pass: images, maps, landmarks, teachers, fusions and rounds."""
    path = tmp_path / "digits.yaml"
    path.write_text(yaml.safe_dump({"name": "all", "data": {"name": "digits"}}))
    public: Raw = {"public": 0.8}
    advised = set()
    for limits in (
        {"private": True},
        {"megabytes": 0.5},
        {"megabytes": 0.1},
        {"gpu": True},
        public,
        {**public, "unlabelled": True},
        {**public, "one_net": True},
        {"one_net": True, "exchanges": 5},
        {"one_net": True},
    ):
        found = accord.advise(path, cost=False, **limits)
        Plan(load_study(found.study), None, lambda _: None).check()
        advised |= {pick.choice.recipe for pick in found.picks}
    assert advised == {
        *("closed-form-small", "closed-form-public", "closed-form-teacher", "etf-balanced"),
        *("scaffold", "fedavg", "fedetf", "fedavg-once"),
    }
