"""The server's two functions: brief clients, and measure what their uploads fuse to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from accord.bank import choose, stand_in
from accord.data.deal import Deal
from accord.data.imageset import ImageSet
from accord.errors import AccordError, ClientError
from accord.fusion.base import Combiner, Outputs, Vote, fusions
from accord.messages import BANK, NET, Briefing, BriefingHeader, NetHeader, prefixed, unprefixed
from accord.metrics import Tally
from accord.moments import forward_all
from accord.nets.backbones import build_encoder
from accord.nets.prototypes import fresh_net, loaded_net
from accord.objective import anchor_kinds, make_alignment
from accord.objective.negatives import Rows
from accord.parts import make_part
from accord.randomness import torch_generator
from accord.study import Trial
from accord.uploads import UploadFiles


def brief(trial: Trial, deal: Deal, public: Rows | None = None) -> Briefing:
    """The one message to every client: initial weights, anchors, bank, and all constants.

    Weights and anchors depend on the seed and the net alone, so that recipes start alike.
    `public`: unit features of all public images, for a recipe with a bank.
    """
    dataset, setup, recipe = deal.dataset, trial.setup, trial.recipe
    _, height, width, channels = dataset.train.images.shape
    augment = setup.data.augment
    header = BriefingHeader(
        seed=trial.seed,
        height=height,
        width=width,
        channels=channels,
        classes=deal.classes,
        mean=dataset.mean,
        std=dataset.std,
        augment=dataset.augment if augment == "auto" else augment,
        net=NetHeader(backbone=setup.net.backbone, norm=setup.net.norm, head=recipe.head),
        training=recipe.training,
        budget=setup.budget.model_dump(mode="json"),
    )
    _refuse_short_queue(trial)
    classes = len(deal.classes)
    net = fresh_net(header.net, channels, classes, torch_generator(trial.seed, "net"))
    tensors = prefixed(NET, net.state_dict())
    if recipe.anchors:
        kind = make_part(anchor_kinds, recipe.anchors, "anchors")
        draws = torch_generator(trial.seed, "anchors")
        tensors["anchors"] = kind.make(classes, net.encoder.width, draws)
    if recipe.bank:
        if public is None:
            raise ValueError(f"recipe {recipe.name} needs public features")
        bank = choose(public, recipe.bank, trial.seed)
        tensors |= {BANK + "features": bank.features, BANK + "labels": bank.labels}
    return Briefing(header, tensors)


def rehearse(trial: Trial, deal: Deal) -> Briefing:
    """A briefing as it will be, with made-up public features: to check and to time a trial."""
    if not trial.recipe.bank:
        return brief(trial, deal)
    setup, channels = trial.setup, deal.dataset.train.images.shape[3]
    width = build_encoder(setup.net.backbone, channels, setup.net.norm).width
    return brief(trial, deal, stand_in(deal.part("public").labels, width))


def _refuse_short_queue(trial: Trial) -> None:
    """A queue shorter than a batch would hold nothing but the batch before."""
    rows = trial.setup.budget.batch * trial.recipe.views
    for name, spec in (*trial.recipe.objective.items(), *trial.recipe.align.items()):
        size = make_alignment(name, spec, name).queue_size()
        if 0 < size < rows:
            raise AccordError(
                f"the queue of {name!r} should hold at least a batch, "
                f"budget.batch × views = {rows} rows; found {size}. Make it longer, or the batch "
                "smaller."
            )


def measure_block(
    briefing: Briefing,
    images: ImageSet,
    clients: UploadFiles,
    votes: Mapping[str, Any],
    merged: Mapping[str, UploadFiles],
    device: str,
    tell: Callable[[float], None],
) -> dict[str, Any]:
    """Tallies of every fusion and of every client's own net on `images`.

    Each client's net runs once, for all rules. Rules in `merged` have one net of their own.
    """
    classes = len(briefing.header.classes)
    labels = torch.from_numpy(images.labels)
    combiners = {name: _combiner(spec, clients) for name, spec in votes.items()}
    totals: dict[str, torch.Tensor] = {}
    alone = []
    for index in range(len(clients)):
        outputs = run_net(clients, index, images, device)
        _require_finite(outputs.logits, str(clients.paths[index]))
        alone.append(Tally.of(outputs.logits, labels, classes).to_json())
        for name, combiner in combiners.items():
            vote = combiner.vote(index, outputs)
            totals[name] = totals[name] + vote if name in totals else vote
        tell((index + 1) / (len(clients) + len(merged)))
    scores = {name: combiners[name].decide(total) for name, total in totals.items()}
    for name, files in merged.items():
        scores[name] = run_net(files, 0, images, device).logits
    for name, values in scores.items():
        _require_finite(values, f"fusion {name!r}")
    fused = {name: Tally.of(values, labels, classes).to_json() for name, values in scores.items()}
    return {"fusions": fused, "clients": alone}


def _require_finite(scores: torch.Tensor, what: str) -> None:
    if not bool(torch.isfinite(scores).all()):
        raise ClientError(f"{what} gave scores that are NaN or infinite. Lower budget.lr.")


def run_net(files: UploadFiles, index: int, images: ImageSet, device: str) -> Outputs:
    """A client's net on `images`: features and logits."""
    header = files.briefing.header
    weights = unprefixed(NET, files.load(index).tensors)
    net = loaded_net(header.net, header.channels, len(header.classes), weights)
    net = net.to(torch.device(device), memory_format=torch.channels_last)  # type: ignore[call-overload]
    batches = list(forward_all(net, images, header, torch.device(device)))
    return Outputs(
        features=torch.cat([features for features, _, _ in batches]),
        logits=torch.cat([logits for _, logits, _ in batches]),
    )


def _combiner(spec: Any, clients: UploadFiles) -> Combiner:
    rule = make_part(fusions, spec, "fusion")
    if not isinstance(rule, Vote):
        raise TypeError(f"{spec} does not vote")
    return rule.combiner(clients.summaries())
