"""The server's first word: the briefing."""

from __future__ import annotations

import torch
from torch import Tensor

from accord.bank import choose, stand_in
from accord.data.deal import Deal
from accord.data.views import augmentations
from accord.errors import AccordError
from accord.maps import FeatureMap, MapConfig, made_up
from accord.messages import BANK, NET, Briefing, BriefingHeader, NetHeader, prefixed
from accord.nets.backbones import build_encoder
from accord.nets.prototypes import fresh_net, net_with_map
from accord.objective import anchor_kinds
from accord.objective.negatives import Rows
from accord.parts import make_part
from accord.randomness import torch_generator
from accord.study import Trial


def brief(
    trial: Trial,
    deal: Deal,
    public: Rows | None = None,
    values: dict[str, Tensor] | None = None,
) -> Briefing:
    """The one message to every client: initial weights, anchors, bank, and all constants.

    Weights and anchors depend on the seed and the net alone, so that recipes start alike.
    `public`: unit features of all public images, for a recipe with a bank. `values`: those of its
    map, for a recipe with one.
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
        net=_net_header(trial, deal),
        training=recipe.training,
        budget=setup.budget.model_dump(mode="json"),
    )
    _refuse_short_queue(trial)
    classes = len(deal.classes)
    draws = torch_generator(trial.seed, "net")
    if values is None:
        net = fresh_net(header.net, channels, classes, draws)
    else:
        net = net_with_map(header.net, channels, classes, values, draws)
    tensors = prefixed(NET, net.state_dict())
    if recipe.anchors:
        kind = make_part(anchor_kinds, recipe.anchors, "anchors")
        draws = torch_generator(trial.seed, "anchors")
        tensors["anchors"] = kind.make(classes, net.encoder.width, draws)
    if recipe.head == "anchors":
        tensors[NET + "head.prototypes"] = tensors["anchors"].clone()
    if recipe.bank:
        if public is None:
            raise ValueError(f"recipe {recipe.name} needs public features")
        bank = choose(public, recipe.bank, trial.seed)
        tensors |= {BANK + "features": bank.features, BANK + "labels": bank.labels}
    return Briefing(header, tensors)


def rehearse(trial: Trial, deal: Deal) -> Briefing:
    """A briefing as it will be, with made-up public features: to check and to time a trial."""
    setup, channels = trial.setup, deal.dataset.train.images.shape[3]
    if trial.recipe.map:
        return brief(trial, deal, values=made_up(settled_map(trial, deal), channels))
    if not trial.recipe.bank:
        return brief(trial, deal)
    width = build_encoder(setup.net.backbone, channels, setup.net.norm).width
    return brief(trial, deal, stand_in(deal.part("public").labels, width))


def settled_map(trial: Trial, deal: Deal) -> MapConfig:
    """The recipe's map with all that a client needs to build it."""
    if trial.recipe.map is None:
        raise ValueError(f"recipe {trial.recipe.name} has no map")
    asked = trial.setup.data.augment
    flips = augmentations.get(deal.dataset.augment if asked == "auto" else asked).flip > 0
    side = min(deal.dataset.train.images.shape[1:3])
    return trial.recipe.map.settled(trial.setup.net, flips, side)


def check_map(trial: Trial, deal: Deal) -> None:
    """Refuses a map that these images cannot be seen through."""
    if trial.recipe.map is None:
        return
    config, public = settled_map(trial, deal), len(deal.split.public)
    if config.needs_public and not public:
        raise AccordError("its map needs public images, found none: set data.public, e.g. 0.1.")
    if config.landmarks > public:
        raise AccordError(
            f"map.landmarks: expected at most the {public} public images there are; found "
            f"{config.landmarks}. Ask for fewer, or set a larger data.public."
        )
    _, height, width, channels = deal.dataset.train.images.shape
    found = FeatureMap(config, channels).eval()
    found.load_state_dict(made_up(config, channels))
    with torch.inference_mode():
        found(torch.zeros(1, channels, height, width))


def _net_header(trial: Trial, deal: Deal) -> NetHeader:
    net, recipe = trial.setup.net, trial.recipe
    fixed = settled_map(trial, deal).model_dump(mode="json") if recipe.map else None
    return NetHeader(backbone=net.backbone, norm=net.norm, head=recipe.head, map=fixed)


def _refuse_short_queue(trial: Trial) -> None:
    """A queue shorter than a batch would hold nothing but the batch before."""
    rows = trial.setup.budget.batch * trial.recipe.views
    for name, spec in (*trial.recipe.objective.items(), *trial.recipe.align.items()):
        size = spec.get("queue", 0)
        if 0 < size < rows:
            raise AccordError(
                f"the queue of {name!r} should hold at least a batch, "
                f"budget.batch × views = {rows} rows; found {size}. Make it longer, or the batch "
                "smaller."
            )
