"""What the rules advise for a federation: a recipe with the changes that fit it, and its size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from accord.advice.facts import Facts
from accord.advice.sizes import (
    LANDMARKS,
    allowed,
    map_width,
    most_features,
    net_bytes,
    sums_bytes,
)
from accord.closed_form.packing import Packing

Spec = dict[str, Any]
Maker = Callable[[Facts], "Choice"]
PER_ROW = 16  # features for each row of both dictionaries: two patch sizes, ±, a grid of 2×2
MOST_ROUNDS = 20  # as in studies/rounds.yaml
SHORT, LONG, ON_GPU = 10, 20, 100  # local epochs
VISITS, VISIT_LANDMARKS = 4, 1_800  # of few-rounds-public and few-rounds-unlabelled
VISIT_EPOCHS = {"public-turns": 2, "unlabelled-turns": 2, "turns": 3}
FEW_IMAGES = 5_000  # up to here, LONG epochs


@dataclass(frozen=True)
class Choice:
    """A recipe with its changes. `upload` are the bytes that one client sends in all rounds."""

    entry: str | Spec  # as in a study's list of recipes
    fusion: str
    upload: int
    features: int | None = None  # d, if clients send sums of features
    rounds: int = 1
    epochs: int | None = None  # of local training in each round; None: no net is trained
    backbone: str | None = None  # the net that the study needs
    visits: int | None = None  # of one net at each client, if a round asks one client

    @property
    def recipe(self) -> str:
        """The name of the recipe that comes with Accord."""
        return self.entry if isinstance(self.entry, str) else str(self.entry["use"])

    @property
    def label(self) -> str:
        """Its name in the study."""
        return self.entry if isinstance(self.entry, str) else str(self.entry["as"])


def sums(recipe: str, width: int) -> Maker:
    """A closed form as it comes with Accord."""
    return lambda facts: Choice(recipe, "ridge", sums_bytes(facts, width, "float32"), width)


def fewer(packing: Packing, wanted: int) -> Maker:
    """closed-form-small with as many features as the limits allow, at most `wanted`."""

    def make(facts: Facts) -> Choice:
        rows = max(1, most_features(facts, wanted, packing) // PER_ROW)
        width = PER_ROW * rows
        blocks = [{"use": "patches", "size": size, "count": rows} for size in (5, 9)]
        short = "" if packing == "float32" else f"-{packing}"
        entry: Spec = {
            "use": "closed-form-small",
            **({"packing": packing} if short else {}),
            "map": {"blocks": blocks},
            "as": f"closed-form-{width}{short}",
        }
        return Choice(entry, "ridge", sums_bytes(facts, width, packing), width)

    return make


def landmarks(facts: Facts) -> int:
    """The landmarks of a kernel: at most the public images, and as the limits allow."""
    return most_features(facts, min(LANDMARKS, facts.public), "float16")


def kernel(recipe: str) -> Maker:
    """A closed form with a kernel of as many landmarks as there can be."""

    def make(facts: Facts) -> Choice:
        count = landmarks(facts)
        entry: str | Spec = recipe
        if count < LANDMARKS:
            entry = {"use": recipe, "map": {"landmarks": count}, "as": f"{recipe}-{count}"}
        upload = sums_bytes(facts, count, "float16")
        taught = recipe == "closed-form-teacher"
        backbone = (facts.backbone or "white7-wide") if taught else None
        return Choice(entry, "ridge", upload, count, backbone=backbone)

    return make


def student(facts: Facts) -> Choice:
    """closed-form-public, and a net that imitates it."""
    count = landmarks(facts)
    entry = {
        "use": "closed-form-public",
        "map": {"landmarks": count},
        "fusion": [{"use": "distilled", "teacher": "ridge"}, "ridge"],
        "as": "closed-form-student",
    }
    upload = sums_bytes(facts, count, "float16")
    return Choice(entry, "distilled", upload, count, backbone=net_for(facts, SHORT))


def nets(recipe: str, fusion: str | None = None) -> Maker:
    """A recipe that trains nets in one exchange, with its own fusion or another one."""

    def make(facts: Facts) -> Choice:
        epochs = LONG if facts.images <= FEW_IMAGES else SHORT
        backbone = net_for(facts, epochs)
        entry: str | Spec = recipe
        if fusion is not None:
            rules = [fusion, "classwise"] if fusion == "distilled" else fusion
            entry = {"use": recipe, "fusion": rules, "as": f"{recipe}-{fusion}"}
        upload = net_bytes(facts, backbone, epochs)
        used = fusion or OWN_FUSION[recipe]
        return Choice(entry, used, upload, epochs=epochs, backbone=backbone)

    return make


OWN_FUSION = {"etf-balanced": "classwise", "fedavg-once": "average"}


def large_nets(facts: Facts) -> Choice:
    """etf-balanced with a large net and a long training, for clients with a GPU."""
    backbone = facts.backbone or "resnet18"
    upload = net_bytes(facts, backbone, ON_GPU)
    return Choice("etf-balanced", "classwise", upload, epochs=ON_GPU, backbone=backbone)


def rounds(recipe: str, factor: int) -> Maker:
    """A method with several rounds of one local epoch; messages are `factor` nets large."""

    def make(facts: Facts) -> Choice:
        backbone = net_for(facts, 1, 4 * factor)
        each = factor * net_bytes(facts, backbone, 1)
        count = min(facts.exchanges, MOST_ROUNDS)
        if facts.megabytes is not None:
            count = max(4, min(count, int(facts.megabytes * 1e6 // each)))
        method = {"count": count}
        entry = {"use": recipe, "budget": {"epochs": 1}, "method": method, "as": recipe}
        return Choice(entry, "average", count * each, rounds=count, epochs=1, backbone=backbone)

    return make


def visited_net(facts: Facts) -> Choice:
    """public-turns: one net visits every client four times."""
    return _visited(facts, "public-turns", VISITS, "white7-wide")


def _visited(facts: Facts, recipe: str, visits: int, backbone: str) -> Choice:
    backbone, epochs = facts.backbone or backbone, VISIT_EPOCHS[recipe]
    return Choice(
        recipe,
        "server",
        visits * net_bytes(facts, backbone, epochs),
        rounds=visits,
        epochs=epochs,
        backbone=backbone,
        visits=visits,
    )


def visits(facts: Facts) -> Choice:
    """few-rounds-public: the same, and then clients send sums of the features of this net."""
    return _with_sums(facts, "few-rounds-public", visited_net(facts), VISIT_LANDMARKS, "float32")


def unlabelled_visits(facts: Facts) -> Choice:
    """few-rounds-unlabelled: first the sums of closed-form-public, then three visits and sums."""
    net = _visited(facts, "unlabelled-turns", VISITS - 1, "white7-wide")
    found = _with_sums(facts, "few-rounds-unlabelled", net, VISIT_LANDMARKS, "float32")
    first = sums_bytes(facts, LANDMARKS, "float16")
    return replace(found, upload=found.upload + first, features=LANDMARKS, rounds=found.rounds + 1)


def turns(facts: Facts) -> Choice:
    """few-rounds: four visits of one net, without public images, and sums."""
    net = _visited(facts, "turns", VISITS, "white7")
    width = map_width(facts, "few-rounds", net.backbone or "white7")
    return _with_sums(facts, "few-rounds", net, width, "factor")


def _with_sums(facts: Facts, recipe: str, net: Choice, width: int, packing: Packing) -> Choice:
    """The recipe that ends with sums of the features of the net of `net`.

    With validation images, its confidences are calibrated.
    """
    rules = ["ridge-calibrated", "ridge"]
    return replace(
        net,
        entry={"use": recipe, "fusion": rules, "as": recipe} if facts.validation else recipe,
        fusion=rules[0] if facts.validation else "ridge",
        upload=net.upload + sums_bytes(facts, width, packing),
        features=width,
        rounds=net.rounds + 1,
    )


def net_for(facts: Facts, epochs: int, copies: int = 1) -> str:
    """The user's net, or resnet10, or a narrower one if `copies` of it are too large to send."""
    if facts.backbone is not None:
        return facts.backbone
    fits = allowed(facts, copies * net_bytes(facts, "resnet10", epochs))
    return "resnet10" if fits else "resnet10-narrow"
