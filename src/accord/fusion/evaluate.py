"""Evaluation of the uploads on images, of each client's net alone and of every fusion."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from accord.core.errors import ClientError
from accord.core.metrics import Tally
from accord.core.parts import make_part
from accord.data.imageset import ImageSet
from accord.fusion.base import Combiner, Merge, Outputs, Uploads, Vote, fusions
from accord.fusion.details import (
    MOST_CLIENTS,
    NO_DETAILS,
    Details,
    examples_of,
    hits_without_each,
    neighbour_accuracy,
)
from accord.fusion.homes import NO_SITES, Homes
from accord.fusion.uploads import UploadFiles
from accord.messages import NET, Briefing, unprefixed
from accord.nets.folding import folded
from accord.nets.inference import forward_all
from accord.nets.net import loaded_net

Tell = Callable[[float], None]


def measure_block(
    images: ImageSet,
    clients: UploadFiles,
    votes: Mapping[str, Any],
    merged: Mapping[str, tuple[Any, UploadFiles]],
    device: str,
    tell: Tell,
    homes: Homes = NO_SITES,
    details: Details = NO_DETAILS,
) -> dict[str, Any]:
    """Tallies of every fusion, of every client's own net, and of every net that a rule has merged.

    Each client's net runs once for all rules that vote (`votes`: name → spec). A rule that merges
    (`merged`: name → spec and files) has its own nets. `sites` of the answer holds, for each site
    with images in the block, the short tallies of every fusion and of the site's own net. Its other
    keys are the `details` that are wanted: `examples` and `without` of fusions, and `neighbours` of
    each client.
    """
    steps = len(clients) + sum(len(files) for _, files in merged.values())
    done = 0

    def told() -> None:
        nonlocal done
        done += 1
        tell(done / steps)

    asked = _Asked()
    if clients.briefing.header.uploads == "nets":  # a client that sends sums has no net
        rules = {name: voting(spec) for name, spec in votes.items()}
        asked = _ask(images, clients, rules, device, told, homes, details)
    scores, personal = asked.scores, {}
    for name, (spec, files) in merged.items():
        nets = _ask(images, files, {name: voting(spec)}, device, told)
        personal[name] = nets.alone
        scores |= nets.scores
    labels = torch.from_numpy(images.labels)
    classes = len(clients.briefing.header.classes)
    fused = {name: Tally.of(values, labels, classes).to_json() for name, values in scores.items()}
    at_sites = {name: homes.tallies(values, labels) for name, values in scores.items()}
    shown = scores if details.examples else {}
    return {
        "fusions": fused,
        "clients": asked.alone,
        "personal": personal,
        "sites": {"fusions": at_sites, "own": asked.own},
        "examples": {name: examples_of(values, images) for name, values in shown.items()},
        "neighbours": asked.neighbours,
        "without": asked.without,
    }


def voting(spec: Any) -> Vote:
    """The rule that combines outputs: the fusion itself, or the one it names for merged nets."""
    rule = make_part(fusions, spec, "fusion")
    if isinstance(rule, Merge):
        return rule.asked()
    if not isinstance(rule, Vote):
        raise TypeError(f"{spec} does not vote")
    return rule


def merged_files(spec: Any, paths: Sequence[str | Path], briefing: Briefing) -> UploadFiles:
    """The nets at `paths` that a fusion merged from the uploads to `briefing`."""
    rule = make_part(fusions, spec, "fusion")
    if not isinstance(rule, Merge):
        raise TypeError(f"{spec} does not merge")
    return UploadFiles(paths, rule.described(briefing), own=True)


def combiner_of(rule: Vote, files: Uploads) -> Combiner:
    return rule.combiner(files.summaries(), files.briefing)


def summed_votes(
    files: Uploads, images: ImageSet, vote: Callable[[int, Outputs], Tensor], device: str
) -> Tensor:
    """Σ_k vote(k, outputs_k) on `images`. The nets run one after the other."""
    votes = (vote(k, run_net(files, k, images, device)) for k in range(len(files)))
    return reduce(torch.add, votes)


@dataclass
class _Asked:
    """The answers of several nets, and what rules make of them."""

    scores: dict[str, Tensor] = field(default_factory=dict)  # of each rule
    alone: list[Any] = field(default_factory=list)  # the tally of each net
    own: dict[str, Any] = field(default_factory=dict)  # site → tally of its own net
    neighbours: list[float | None] = field(default_factory=list)  # of each net, if wanted
    without: dict[str, list[int | None]] = field(default_factory=dict)  # hits of each rule


def _ask(
    images: ImageSet,
    files: UploadFiles,
    rules: Mapping[str, Vote],
    device: str,
    told: Callable[[], None],
    homes: Homes = NO_SITES,
    details: Details = NO_DETAILS,
) -> _Asked:
    """Runs the nets one after the other.

    Their outputs are kept only if each client is left out once, for at most MOST_CLIENTS clients.
    """
    labels = torch.from_numpy(images.labels)
    combiners = {name: combiner_of(rule, files) for name, rule in rules.items()}
    leave = details.leave_one_out and 2 <= len(files) <= MOST_CLIENTS
    totals: dict[str, Tensor] = {}
    kept: list[Outputs] = []
    asked = _Asked()
    for index in range(len(files)):
        outputs = run_net(files, index, images, device)
        _require_finite(outputs.logits, str(files.paths[index]))
        asked.alone.append(Tally.of(outputs.logits, labels, outputs.logits.shape[1]).to_json())
        asked.own |= homes.own(index, outputs.logits, labels)
        if details.neighbours:
            asked.neighbours.append(neighbour_accuracy(outputs.features, labels))
        for name, combiner in combiners.items():
            vote = combiner.vote(index, outputs)
            totals[name] = totals[name] + vote if name in totals else vote
        if leave:
            kept.append(outputs)
        told()
    for name, total in totals.items():
        asked.scores[name] = combiners[name].decide(total)
        _require_finite(asked.scores[name], f"fusion {name!r}")
    if leave:
        asked.without = {
            name: hits_without_each(rule, files, kept, labels) for name, rule in rules.items()
        }
    return asked


def _require_finite(scores: Tensor, what: str) -> None:
    if not bool(torch.isfinite(scores).all()):
        raise ClientError(f"{what} gave scores that are NaN or infinite. Set a lower budget.lr.")


def run_net(files: Uploads, index: int, images: ImageSet, device: str) -> Outputs:
    """Features and logits of a client's net on `images`."""
    header = files.briefing.header
    weights = unprefixed(NET, files.load(index).tensors)
    net = loaded_net(header.net, header.channels, len(header.classes), weights)
    net = folded(net).to(torch.device(device), memory_format=torch.channels_last)  # type: ignore[call-overload]
    batches = list(forward_all(net, images, header, torch.device(device)))
    return Outputs(
        features=torch.cat([features for features, _, _ in batches]),
        logits=torch.cat([logits for _, logits, _ in batches]),
    )
