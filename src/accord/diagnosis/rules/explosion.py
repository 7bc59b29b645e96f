"""λ that explodes (note 003): how strongly prototypes are pulled grows without a bound.

Three signs, from docs/balance.md: the learnt λ is far above its first value; the effective λ is
above (1 + m)·C·d/lr, where SGD cannot follow the pull any more; the effective λ is above
λ_tip = C·d·‖g‖²/(4·L_loc), from where each step of a learnt λ makes the next λ larger.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from accord.diagnosis.finding import Finding
from accord.diagnosis.reading import (
    amount,
    balances_of,
    client,
    course,
    images_measured,
    images_of,
    margin,
    number,
    own_fusion,
    percent,
)
from accord.diagnosis.remedies import run_recipes
from accord.diagnosis.rule import on_trials
from accord.report.evidence import Evidence, RunEvidence

TIMES_START = 100  # × its first value. A λ that settles overshoots this value at most tenfold.
HARMFUL = 50.0  # λ = 50 lost up to 7.5 points in studies/lambda-sweep.yaml, λ ≤ 20 did not
RISING = 2.0  # factor by which λ has grown in the epochs above λ_tip; a settling λ grows less
ABOVE_TIP = 3  # epochs above λ_tip in a row; fewer can be the noise of ‖g‖
MOST_CLIENTS = 4  # clients in the evidence

REPAIR = "etf-stabilised"  # bounds λ by γ; the repair of note 003


@dataclass(frozen=True)
class Onset:
    """A client whose λ has passed a bound: when, and its λ then and at the end."""

    client: str
    epoch: int
    bound: float
    values: dict[int, float]

    @property
    def last(self) -> float:
        return list(self.values.values())[-1]

    @property
    def excess(self) -> float:
        return max(self.values.values()) / self.bound


@on_trials("lambda-explosion")
def lambda_explosion(run: RunEvidence, trial: Evidence) -> Iterator[Finding]:
    """The learnt λ is beyond 100 × its first value."""
    found = exploded(trial)
    if not found:
        return
    first = found[0]
    fall, told = _accuracy_since(trial, first.epoch)
    evidence = [f"λ_raw of {client(one.client)}: {_told(one)}." for one in found[:MOST_CLIENTS]]
    evidence += told + _local_loss(trial, first)
    evidence += [_beyond(one) for one in beyond_bound(trial)[:1]]
    yield Finding(
        rule="lambda-explosion",
        weight=95 if fall else 85,
        title=f"λ explodes ({trial.recipe})",
        trials=[trial.id],
        evidence=evidence,
        meaning=(
            "The closer the prototypes are to their anchors, the larger λ becomes, and the closer "
            "they get. Their gradient then uses up the clipping norm, and the encoder hardly "
            "learns any more."
        ),
        remedy="Bound λ with γ (etf-stabilised), or use a constant λ (etf-fixed).",
        override=run_recipes(run, REPAIR) or run_recipes(run, "etf-fixed"),
        strength=max(one.excess for one in found),
    )


@on_trials("lambda-bound")
def lambda_bound(run: RunEvidence, trial: Evidence) -> Iterator[Finding]:
    """λ is beyond (1 + m)·C·d/lr, although it did not grow to this value."""
    found = beyond_bound(trial)
    if not found or exploded(trial):
        return
    yield Finding(
        rule="lambda-bound",
        weight=80,
        title=f"λ is too large for the learning rate ({trial.recipe})",
        trials=[trial.id],
        evidence=[_beyond(one) for one in found[:MOST_CLIENTS]],
        meaning=(
            "Above this bound, steps of SGD overshoot the anchors. Without clipping the training "
            "diverges; with clipping the prototypes circle around their anchors and take the "
            "encoder's steps away."
        ),
        remedy="Use a λ between 2.5 and 20, or lower the learning rate.",
        override=run_recipes(run, "etf-fixed"),
        strength=found[0].excess,
    )


@on_trials("lambda-tip")
def lambda_tip(run: RunEvidence, trial: Evidence) -> Iterator[Finding]:
    """A learnt λ is above its tipping point and rises."""
    found = beyond_tip(trial)
    if not found or exploded(trial):
        return
    worst = found[0]
    yield Finding(
        rule="lambda-tip",
        weight=50,
        title=f"λ is above its tipping point and rises ({trial.recipe})",
        trials=[trial.id],
        evidence=[
            f"λ_effective of {client(one.client)} is above λ_tip = {amount(one.bound)} since epoch "
            f"{one.epoch} and has grown from {amount(one.values[one.epoch])} to {amount(one.last)}."
            for one in found[:MOST_CLIENTS]
        ],
        meaning=(
            "Above λ_tip each step of λ towards its equilibrium moves the equilibrium further "
            "away. A longer training would probably end in an explosion of λ."
        ),
        remedy="Bound λ with γ before you train for longer (etf-stabilised).",
        override=run_recipes(run, REPAIR),
        strength=worst.excess,
    )


def exploded(trial: Evidence) -> list[Onset]:
    """The clients with λ_raw beyond 100 × its first value, the earliest first."""
    found = []
    for dial in trial.dials("lambda_raw"):
        for name, values in trial.series(dial).items():
            bound = max(TIMES_START * next(iter(values.values())), HARMFUL)
            epoch = next((epoch for epoch, value in values.items() if value > bound), None)
            if epoch is not None:
                found.append(Onset(name, epoch, bound, values))
    return sorted(found, key=lambda one: (one.epoch, -one.last))


def beyond_bound(trial: Evidence) -> list[Onset]:
    """The clients with λ_effective beyond (1 + m)·C·d/lr, the largest excess first."""
    term, dial = _anchors(trial)
    if term is None:
        return []
    momentum = number(trial.config.get("budget", {}).get("momentum")) or 0.0
    wide, rates = width(trial), trial.series("lr")
    found = []
    for name, values in trial.series(dial).items():
        bound = (1 + momentum) * aligned(trial, name, term) * wide / max(rates[name].values())
        epoch = next((epoch for epoch, value in values.items() if value > bound), None)
        if epoch is not None:
            found.append(Onset(name, epoch, bound, values))
    return sorted(found, key=lambda one: -one.excess)


def beyond_tip(trial: Evidence) -> list[Onset]:
    """The clients whose learnt, unbounded λ is above λ_tip until the end and has at least doubled.

    λ_tip is computed in each epoch; the last one is shown.
    """
    term, dial = _anchors(trial)
    if term is None or not trial.series(dial.replace("effective", "star")):
        return []
    gamma = trial.series(dial.replace("lambda_effective", "gamma"))
    norms, losses = trial.series("gradient_norm_local"), trial.series("loss_local")
    wide, found = width(trial), []
    for name, effective in trial.series(dial).items():
        if name in gamma:
            continue
        values = {e: value for e, value in effective.items() if value > 0}  # at p = 1, s can be 0
        size = aligned(trial, name, term) * wide
        tips = {e: size * norms[name][e] ** 2 / (4 * losses[name][e]) for e in values}
        above = []
        for epoch in reversed(values):
            if values[epoch] <= tips[epoch]:
                break
            above.append(epoch)
        rising = len(above) >= ABOVE_TIP and values[above[0]] > RISING * values[above[-1]]
        if rising:
            found.append(Onset(name, above[-1], tips[above[0]], values))
    return sorted(found, key=lambda one: -one.excess)


def aligned(trial: Evidence, name: str, term: Mapping[str, Any]) -> int:
    """The number of classes that a client aligns: those it holds, or all."""
    counts = images_of(trial).get(name, [])
    held = sum(count > 0 for count in counts)
    return held if term.get("over", "held") == "held" and held else len(trial.classes)


def width(trial: Evidence) -> int:
    """The width of the encoder."""
    for name in trial.clients:
        tensors = trial.tensors(name, ["net.head.prototypes"])
        if tensors:
            return int(tensors["net.head.prototypes"].shape[1])
    import torch

    from accord.nets.backbones import backbones

    with torch.device("meta"):  # the shapes alone
        return backbones.get(trial.config["net"]["backbone"])(1, "batch").width


def _anchors(trial: Evidence) -> tuple[Mapping[str, Any] | None, str]:
    """The term that aligns prototypes with anchors, and the dial of its effective λ."""
    terms = trial.config.get("recipe", {}).get("align") or {}
    several = len(balances_of(trial)) > 1
    return terms.get("anchors"), f"{'anchors_' * several}lambda_effective"


def _told(one: Onset) -> str:
    epochs = list(one.values)
    before = [epoch for epoch in epochs if epoch < one.epoch][-1:]
    told = course(one.values, [epochs[0], *before, one.epoch, epochs[-1]])
    return f"{told}; above {amount(one.bound)} since epoch {one.epoch}"


def _beyond(one: Onset) -> str:
    return (
        f"λ_effective of {client(one.client)} is beyond (1+m)·C·d/lr = {amount(one.bound)} since "
        f"epoch {one.epoch}: {amount(max(one.values.values()))} at its largest."
    )


def _accuracy_since(trial: Evidence, onset: int) -> tuple[bool, list[str]]:
    """Whether the accuracy has fallen since the onset, and a sentence about it."""
    own = own_fusion(trial)
    if own is None:
        return False, []
    name, figures = own
    accuracies = trial.accuracies(name)
    before = [epoch for epoch in accuracies if epoch <= onset][-1:]
    since = {e: a for e, a in accuracies.items() if e >= onset or e in before}
    if len(since) < 2:
        return False, []
    best = max(since, key=lambda epoch: since[epoch])
    last = list(since)[-1]
    fell = since[best] - since[last]
    if fell > margin(since[best], since[last], images_measured(figures)):
        told = f"fell from {percent(since[best])} (epoch {best}) to {percent(since[last])}"
        return True, [f"The accuracy of {name} {told} (epoch {last})."]
    told = ", ".join(f"{percent(value)} (epoch {epoch})" for epoch, value in since.items())
    return False, [f"The accuracy of {name} has not fallen clearly since then: {told}."]


def _local_loss(trial: Evidence, onset: Onset) -> list[str]:
    losses = trial.series("loss_local").get(onset.client, {})
    if onset.epoch not in losses:
        return []
    told = course(losses, [next(iter(losses)), onset.epoch, list(losses)[-1]])
    return [f"L_loc of {client(onset.client)}: {told}."]
