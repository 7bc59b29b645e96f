"""Warnings about a federation and about what is advised for it, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from accord.advice.conditions import FEWEST_LANDMARKS, TRAINABLE, kernel
from accord.advice.facts import Facts
from accord.advice.rule import Pick

FEW = 5  # images of a class: with fewer, a client tells little about it, and reveals much
SHOWN = 3  # names in a list
MEASURED_CLASSES, MEASURED_SIDE = 10, 32  # the most that studies in the documentation have


def warnings(facts: Facts, advised: Pick) -> list[str]:
    return [
        *_privacy(facts, advised),
        *_clients(facts),
        *_classes(facts),
        *_limits(facts, advised),
        *_measured(facts),
    ]


def _privacy(facts: Facts, advised: Pick) -> Iterator[str]:
    features = advised.choice.features
    few = facts.below(features) if features is not None else 0
    if few:
        yield (
            f"Privacy: {few} of {len(facts.clients)} clients hold fewer images than there are "
            f"features ({features:,}). The server could find the space of their images' features, "
            "and with effort single images (docs/closed-form.md). Add the sums by secure "
            "aggregation (with packing: float32) before anyone reads them, or use --private."
        )
    if facts.private and advised.choice.epochs is not None:
        turns = advised.choice.visits is not None
        yield (
            "Privacy: the weights of nets also tell something about the images that they were "
            "trained on (`accord show UPLOAD` says what)."
            + (" Every client's net goes to the next client." if turns else "")
            + " No recipe adds noise for differential privacy."
        )
    single = facts.scarce(2)
    if single:
        yield (
            f"Privacy: {_places(single)}: a single image of a class. What the client sends about "
            "this class describes this image alone."
        )


def _clients(facts: Facts) -> Iterator[str]:
    if facts.simulated:
        yield (
            "The clients are simulated: the data name no sites. Real sites also differ in other "
            "ways than their labels."
        )
    if len(facts.clients) == 1:
        yield "There is one client. A federation needs two or more."
    lonely = int((facts.sizes == 1).sum())
    if lonely:
        yield f"{lonely} of {len(facts.clients)} clients hold one image only."
    if facts.single_class:
        yield (
            f"{facts.single_class} of {len(facts.clients)} clients hold a single class. The closed "
            "form is not affected; nets of such clients are weak (docs/fusion.md)."
        )
    if facts.median < TRAINABLE:
        yield (
            f"A typical client holds {facts.median:g} images: too few to train a net well. Compare "
            "with trained recipes only with care."
        )


def _classes(facts: Facts) -> Iterator[str]:
    missing = facts.missing()
    if missing:
        yield f"No client holds images of {_some(missing)}: the model cannot learn it."
    alone = facts.at_one_client()
    if alone:
        yield (
            f"Only one client holds {_some(alone)}: without this client the model cannot learn it."
        )
    few = [place for place in facts.scarce(FEW) if place[2] > 1]
    if few:
        yield f"Some classes have too few images to learn from: {_places(few)}."


def _limits(facts: Facts, advised: Pick) -> Iterator[str]:
    if facts.public > 0 and not kernel(facts) and not facts.one_net:
        yield (
            f"The {facts.public:,} public images are not used: a kernel needs {FEWEST_LANDMARKS:,} "
            "or more of them as landmarks, within the limits of bytes and privacy."
        )
    if facts.exchanges > 1 and not facts.one_net and advised.choice.rounds == 1:
        yield (
            f"{facts.exchanges} exchanges are allowed, and the advice needs one. Averaging in "
            "rounds was not better: on CIFAR-10, 20 rounds of SCAFFOLD reach 43.8 % where "
            "closed-form-small reaches 71.0 % in one exchange (docs/rounds.md). With five "
            "exchanges, at most 20 clients and 10,000 images, few-rounds is better "
            "(docs/few-exchanges.md)."
        )


def _measured(facts: Facts) -> Iterator[str]:
    if len(facts.classes) > MEASURED_CLASSES:
        yield (
            f"There are {len(facts.classes)} classes. The studies behind this advice have "
            f"{MEASURED_CLASSES}, so their accuracies say little about yours."
        )
    if facts.side > MEASURED_SIDE:
        yield (
            f"The images have {facts.height}×{facts.width} pixels. The studies behind this advice "
            f"have at most {MEASURED_SIDE}×{MEASURED_SIDE}; the cost grows with the area."
        )
    yield (
        "The figures above are from other images than yours. Run the study: one seed is not "
        "conclusive, and three seeds show large differences only."
    )


def _places(places: Sequence[tuple[str, str, int]]) -> str:
    shown = [f"{client} has {n} of class {name}" for client, name, n in places[:SHOWN]]
    return _listed(shown, len(places) - SHOWN)


def _some(names: Sequence[str]) -> str:
    return _listed(list(names[:SHOWN]), len(names) - SHOWN)


def _listed(shown: list[str], more: int) -> str:
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")
