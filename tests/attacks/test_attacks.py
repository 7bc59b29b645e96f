"""Attacks: what a hostile client sends, by hand and as a real client."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch

from accord.attacks.base import attacks, make_attack
from accord.attacks.settings import NO_ATTACK, AttackConfig
from accord.checks import check_upload
from accord.core.config import parse
from accord.core.errors import AccordError
from accord.core.randomness import numpy_generator, torch_generator
from accord.data.allocation import allocate
from accord.data.allocation_keys import allocation_key
from accord.data.datasets import load
from accord.data.hostile import hostile_clients
from accord.data.schemes import make_scheme
from accord.data.settings import DataConfig
from accord.messages import AttackHeader, Briefing, Upload
from accord.study.study import load_study
from core.cases import case
from tests_support import brief_for, images_of, same, train

START = {"w": torch.tensor([1.0, 2.0])}
TRAINED = {"w": torch.tensor([1.5, 1.0])}
SUMS = (
    torch.tensor([2, 0, 3]),
    torch.tensor([[2.0], [0.0], [9.0]]).double(),
    torch.eye(1).double(),
)
NAMES = [str(k) for k in range(10)]
COUNTS = torch.tensor([2, 0, 3])


def sent(name: str, strength: float | None = None) -> list[float]:
    made = make_attack(name, strength)
    return made.weights(TRAINED, START, torch_generator(0))["w"].tolist()


def test_weights_by_hand() -> None:
    assert sent("scaled") == [51.0, -98.0]
    assert sent("scaled", 2.0) == [2.0, 0.0]
    assert sent("reversed") == [0.5, 3.0]
    for name in ("flipped", "inflated", "copied"):
        assert sent(name) == [1.5, 1.0], name
    assert sent("near-copied") == pytest.approx([1.5, 1.0], abs=2e-3)
    assert sent("near-copied") != [1.5, 1.0]
    many = {"w": 3 + 2 * torch.randn(10_000, generator=torch_generator(1))}
    drawn = make_attack("random", None).weights(many, many, torch_generator(2))["w"]
    assert drawn.mean().item() == pytest.approx(3, abs=0.1)
    assert drawn.std().item() == pytest.approx(2, abs=0.1)
    assert abs(torch.corrcoef(torch.stack([drawn, many["w"]]))[0, 1]) < 0.05


def test_sums_by_hand() -> None:
    found = {name: make_attack(name, None).sums(SUMS, torch_generator(0)) for name in attacks}
    told = {
        name: (sums.flatten().tolist(), scatter.item())
        for name, (_, sums, scatter) in found.items()
    }
    assert told["scaled"] == ([200.0, 0.0, 900.0], 10_000.0)
    assert told["inflated"] == ([20.0, 0.0, 90.0], 10.0)
    assert told["reversed"][0] == pytest.approx([2 * 2 * 2.2 - 2, 0.0, 2 * 3 * 2.2 - 9])
    assert told["near-copied"][0] == pytest.approx([2.0, 0.0, 9.0], rel=3e-3)
    assert 2 < told["near-copied"][0][0] < 2 * 2.2  # towards the mean of all, 11/5
    assert 9 > told["near-copied"][0][2] > 3 * 2.2
    for name in ("copied", "flipped", "random"):
        assert told[name] == ([2.0, 0.0, 9.0], 1.0), name


def test_labels_and_counts_fit_together() -> None:
    labels = torch.tensor([0, 0, 2, 2, 2])
    for name in attacks:
        for sums in (False, True):
            with case(name, sums):
                made = make_attack(name, None)
                told = made.labels(labels, 3, numpy_generator(0), sums=sums)
                factor = 10 if name == "inflated" else 1
                counted = factor * torch.bincount(told, minlength=3)
                assert made.counts(COUNTS).tolist() == counted.tolist()
    assert make_attack("flipped", None).labels(
        labels, 3, numpy_generator(0), sums=False
    ).tolist() == [2, 2, 0, 0, 0]


def test_hostile_clients_are_drawn_by_the_seed() -> None:
    for seed in range(20):
        drawn = [
            set(hostile_clients(AttackConfig(name="scaled", clients=n), seed, NAMES))
            for n in (1, 2, 5)
        ]
        assert [len(some) for some in drawn] == [1, 2, 5]
        assert all(few < more for few, more in combinations(drawn, 2))
        copied = hostile_clients(AttackConfig(name="copied", clients=3), seed, NAMES)
        assert not set(copied) & set(copied.values())  # only honest clients are copied
    ones = {next(iter(hostile_clients(AttackConfig(name="scaled"), s, NAMES))) for s in range(40)}
    assert len(ones) > 5
    named = AttackConfig(name="scaled", names=["7", "2"])
    assert hostile_clients(named, 0, NAMES) == {"7": "7", "2": "2"}
    assert named.clients == 2
    assert hostile_clients(NO_ATTACK, 0, NAMES) == {}


def test_mistakes_are_told() -> None:
    for values, word in (
        ({"name": "scald"}, "scaled"),
        ({"clients": 2}, "name"),
        ({"name": "scaled", "clients": 0}, "1 or more"),
        ({"name": "scaled", "strength": 0}, "greater than 0"),
        ({"name": "scaled", "names": ["1", "1"]}, "differ"),
        ({"name": "scaled", "how": 1}, "how"),
    ):
        with case(values), pytest.raises(AccordError, match=word):
            parse(AttackConfig, values, "attack")
    for asked, word in (
        (AttackConfig(name="scaled", clients=10), "fewer hostile"),
        (AttackConfig(name="scaled", clients=11), "fewer hostile"),
        (AttackConfig(name="scaled", names=["x"]), "no client 'x'"),
    ):
        with pytest.raises(AccordError, match=word):
            hostile_clients(asked, 0, NAMES)


def test_an_allocation_announces_what_hostile_clients_say() -> None:
    dataset, data = load("digits", tell=print), DataConfig(name="digits")
    scheme = make_scheme({"alpha": 0.5, "clients": 5})
    honest = allocate(dataset, data, scheme, 0)
    keys = {allocation_key(dataset, data, scheme, 0)}
    for name in attacks:
        with case(name):
            asked = AttackConfig(name=name)
            found = allocate(dataset, data, scheme, 0, attack=asked)
            keys.add(allocation_key(dataset, data, scheme, 0, attack=asked))
            assert found.partition.hash == honest.partition.hash
            ((hostile, source),) = found.hostile.items()
            place, victim = (found.partition.names.index(one) for one in (hostile, source))
            counts, true = found.partition.label_counts, honest.partition.label_counts
            expected = make_attack(name, None).counts(torch.from_numpy(true[victim])).tolist()
            assert counts[place].tolist() == expected
            others = [k for k in range(5) if k != place]
            assert np.array_equal(counts[others], true[others])
            assert np.array_equal(found.client(place).rows, honest.client(victim).rows)
    assert len(keys) == len(attacks.names()) + 1


def briefed(
    name: str, recipe: str = "ce-ensemble", backbone: str = "conv4", **hostile: str
) -> Briefing:
    plain = brief_for(recipe, backbone=backbone, epochs=1)
    header = AttackHeader(name=name, strength=None, hostile=hostile)
    return Briefing(plain.header.model_copy(update={"attack": header}), plain.tensors)


def test_a_hostile_client_sends_an_upload_that_is_accepted() -> None:
    data = images_of([0] * 12 + [1] * 20)
    honest = train(data, brief_for("ce-ensemble", epochs=1), "0").tensors
    for name in attacks:
        with case(name):
            briefing = briefed(name, **{"0": "0"})
            found = train(data, briefing, "0")
            found.check(briefing, name)
            assert found.header.samples == (320 if name == "inflated" else 32)
            weights = {n: t for n, t in found.tensors.items() if n.endswith("weight")}
            assert same(weights, {n: honest[n] for n in weights}) == (
                name in ("copied", "inflated")
            )
            other = train(data, briefing, "1")  # an honest client of the same study
            assert other.header.samples == 32
            steps = {int(t) for n, t in found.tensors.items() if n.endswith("_tracked")}
            assert steps == {10 if name == "inflated" else 1}  # batches of 32


def test_a_layer_that_is_never_trained_is_not_attacked() -> None:
    """The server would refuse another one, so that an attack could not be studied."""
    data = images_of([0] * 12 + [1] * 20)
    for name in ("random", "scaled", "reversed", "near-copied"):
        briefing = briefed(name, backbone="white7", **{"0": "0"})
        check_upload(train(data, briefing, "0"), briefing, name)


def test_a_copy_is_the_same_upload_under_another_name() -> None:
    data = images_of([0] * 12 + [1] * 20)
    briefing = briefed("copied", **{"1": "0"})
    original, copy = train(data, briefing, "0"), train(data, briefing, "1")
    assert copy.header.client == "1"
    assert same(original.tensors, copy.tensors)


def test_the_statistics_fit_the_net_that_is_sent() -> None:
    """They are measured on the changed net, so that no single number gives the client away."""
    data, briefing = images_of([0] * 12 + [1] * 20), briefed("random", **{"0": "0"})
    found: Upload = train(data, briefing, "0")
    from accord.client.statistics import measure_client
    from accord.messages import NET, unprefixed
    from accord.nets.net import loaded_net

    net = loaded_net(briefing.header.net, 1, 10, unprefixed(NET, found.tensors))
    accuracy, moments = measure_client(net, data, briefing.header, torch.device("cpu"))
    assert found.header.train_accuracy == accuracy
    assert all(
        torch.allclose(found.tensors[name], moments[name], rtol=1e-3, atol=1e-4) for name in moments
    )


def test_an_attack_is_in_every_table() -> None:
    """Its name and the number of hostile clients are axes, also if there is one value of each."""
    raw = {
        "name": "x",
        "data": {"name": "digits"},
        "attack": {"name": ["none", "scaled"], "clients": [1, 2]},
        "recipes": ["fafi", "central"],
    }
    study = load_study(raw)
    told = [(t.recipe.name, t.setup.attack.name, t.setup.attack.clients) for t in study.trials()]
    federated = [one for one in told if one[0] == "fafi"]
    assert federated == [("fafi", "none", 0), ("fafi", "scaled", 1), ("fafi", "scaled", 2)]
    assert {one[1] for one in told if one[0] == "central"} == {"none"}
    alone = load_study({**raw, "attack": {"name": "scaled"}})
    assert alone.axes == ("attack.name", "attack.clients")
    assert load_study({**raw, "attack": {"name": "none"}}).axes == ()
    sites = {"scheme": "sites", "names": ["a", "b"]}
    elsewhere = {"name": "x", "recipes": ["fafi"], "data": {"classes": ["0", "1"], "image": 8}}
    with pytest.raises(AccordError, match="'attack' is for simulated clients"):
        load_study({**elsewhere, "partition": sites, "attack": {"name": "scaled"}})
