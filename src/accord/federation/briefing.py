"""The opening of a trial: the briefing that its method starts from."""

from __future__ import annotations

import torch
from torch import Tensor

from accord.core.errors import AccordError
from accord.core.parts import make_part
from accord.core.randomness import torch_generator
from accord.core.reading import megabytes, memory
from accord.data.allocation import Allocation
from accord.data.augmentations import augmentations
from accord.federation.teaching import Teacher, teacher_from
from accord.messages import (
    BANK,
    NET,
    PUBLIC,
    TEACHER,
    AttackHeader,
    Briefing,
    BriefingHeader,
    NetHeader,
    ServerState,
    prefixed,
)
from accord.nets.backbones import build_encoder
from accord.nets.maps import Around, FeatureMap, MapConfig, made_up
from accord.nets.net import fresh_net, net_with_map
from accord.objective import anchor_kinds
from accord.objective.bank import choose, stand_in
from accord.objective.negatives import Rows
from accord.study.recipe import ClosedFormRecipe, TrainingRecipe
from accord.study.study import Trial


def opening(
    trial: Trial,
    allocation: Allocation,
    public: Rows | None = None,
    values: dict[str, Tensor] | None = None,
    teacher: Teacher | None = None,
    labels: Tensor | None = None,
) -> Briefing:
    """The first message to every client: initial weights, anchors, bank, and all constants.

    The weights and anchors depend only on the seed and the net, so that all recipes start from the
    same values. `public` holds the unit features of all public images, for a recipe with a bank.
    `values` holds the values of the map, for a closed form, and `teacher` the server's teacher.
    `labels` are those of the public images, if an earlier trial has made them.
    """
    recipe = trial.recipe
    if isinstance(recipe, TrainingRecipe):
        found = _of_training(trial, recipe, allocation, public)
        if recipe.with_public:
            found = Briefing(found.header, {**found.tensors, **_public_images(allocation, labels)})
        return found if teacher is None else _with_teacher(found, teacher)
    if isinstance(recipe, ClosedFormRecipe) and values is not None:
        return _of_closed_form(trial, recipe, allocation, values)
    raise ValueError(f"recipe {recipe.name} needs the values of its map")


def _of_training(
    trial: Trial, recipe: TrainingRecipe, allocation: Allocation, public: Rows | None
) -> Briefing:
    _refuse_short_queue(recipe, trial.setup.budget.batch)
    net_config = trial.setup.net
    header = _header(
        trial,
        allocation,
        NetHeader(backbone=net_config.backbone, norm=net_config.norm, head=recipe.head),
    )
    classes = len(allocation.classes)
    net = fresh_net(header.net, header.channels, classes, torch_generator(trial.seed, "net"))
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


def public_studied(trial: Trial, allocation: Allocation) -> int:
    """The number of public images that every client of the trial trains on as well."""
    recipe = trial.recipe
    uses = isinstance(recipe, TrainingRecipe) and recipe.with_public
    return len(allocation.split.public) if uses else 0


def _public_images(allocation: Allocation, labels: Tensor | None) -> dict[str, Tensor]:
    """The public images, for clients that train on them too, with their own or other labels."""
    public = allocation.part("public")
    if not len(public):
        raise AccordError("with_public: it needs public images; found none. Set data.public.")
    images = public.batch(torch.arange(len(public)))
    labels = torch.from_numpy(public.labels) if labels is None else labels
    return {PUBLIC + "images": images, PUBLIC + "labels": labels}


def _with_teacher(briefing: Briefing, teacher: Teacher) -> Briefing:
    header = briefing.header.model_copy(update={"teacher": teacher.header})
    return Briefing(header, {**briefing.tensors, **prefixed(TEACHER, teacher.weights)})


def _of_closed_form(
    trial: Trial, recipe: ClosedFormRecipe, allocation: Allocation, values: dict[str, Tensor]
) -> Briefing:
    """The briefing of a closed form. Its net is the map and a linear head, solved by the server."""
    net_config, fixed = trial.setup.net, settled_map(trial, recipe, allocation)
    header = _header(
        trial,
        allocation,
        NetHeader(
            backbone=net_config.backbone,
            norm=net_config.norm,
            head="linear",
            map=fixed.sent().model_dump(mode="json"),
        ),
    )
    classes, draws = len(allocation.classes), torch_generator(trial.seed, "net")
    net = net_with_map(header.net, header.channels, classes, values, draws)
    return Briefing(header, prefixed(NET, net.state_dict()))


def _header(trial: Trial, allocation: Allocation, net: NetHeader) -> BriefingHeader:
    dataset, setup = allocation.dataset, trial.setup
    _, height, width, channels = dataset.train.images.shape
    return BriefingHeader(
        seed=trial.seed,
        height=height,
        width=width,
        channels=channels,
        classes=allocation.classes,
        mean=dataset.mean,
        std=dataset.std,
        augment=_augmentation(trial, allocation),
        net=net,
        training=trial.recipe.training,
        budget=setup.budget,
        attack=_attack(trial, allocation),
    )


def _attack(trial: Trial, allocation: Allocation) -> AttackHeader | None:
    asked = trial.setup.attack
    if not allocation.hostile:
        return None
    return AttackHeader(name=asked.name, strength=asked.strength, hostile=allocation.hostile)


def _augmentation(trial: Trial, allocation: Allocation) -> str:
    asked = trial.setup.data.augment
    return allocation.dataset.augment if asked == "auto" else asked


def rehearse(trial: Trial, allocation: Allocation) -> Briefing:
    """The first briefing with made-up values, used to check a trial and to know its size."""
    return trial.method.brief(rehearsed_state(trial, allocation))


def rehearsed_state(
    trial: Trial, allocation: Allocation, values: dict[str, Tensor] | None = None
) -> ServerState:
    """The first state with made-up public features; the `values` of a map are zeros by default."""
    recipe, net = trial.recipe, trial.setup.net
    channels = allocation.dataset.train.images.shape[3]
    if isinstance(recipe, ClosedFormRecipe):
        if values is None:
            values = made_up(settled_map(trial, recipe, allocation), channels)
        return trial.method.start(opening(trial, allocation, values=values))
    public = None
    if isinstance(recipe, TrainingRecipe) and recipe.bank:
        width = build_encoder(net.backbone, channels, net.norm).width
        public = stand_in(allocation.part("public").labels, width)
    teacher = teacher_from(trial, allocation) if trial.needs_teacher else None
    return trial.method.start(opening(trial, allocation, public, teacher=teacher))


def settled_map(trial: Trial, recipe: ClosedFormRecipe, allocation: Allocation) -> MapConfig:
    """The recipe's map, with everything that a client needs to build it."""
    flips = augmentations.get(_augmentation(trial, allocation)).flip > 0
    side = min(allocation.dataset.train.images.shape[1:3])
    below = None
    if trial.before is not None and isinstance(trial.before.recipe, ClosedFormRecipe):
        below = settled_map(trial.before, trial.before.recipe, allocation).model_dump(mode="json")
    clients, classes = len(allocation.partition.names), len(allocation.classes)
    return recipe.map.settled(Around(trial.setup.net, side, clients, classes, below), flips)


def check_map(trial: Trial, allocation: Allocation) -> None:
    """Refuses a map that cannot encode these images."""
    if not isinstance(trial.recipe, ClosedFormRecipe):
        return
    config = settled_map(trial, trial.recipe, allocation)
    public = len(allocation.split.public)
    if config.needs_public and not public:
        raise AccordError("its map needs public images; found none. Set data.public, e.g. 0.1.")
    if config.landmarks > public:
        raise AccordError(
            f"map.landmarks: expected at most the {public} public images there are; found "
            f"{config.landmarks}. Make it smaller, or set a larger data.public."
        )
    _, height, width, channels = allocation.dataset.train.images.shape
    _refuse_wide(config, channels)
    found = FeatureMap(config, channels).eval()
    found.load_state_dict(made_up(config, channels))
    with torch.inference_mode():
        found(torch.zeros(1, channels, height, width))


def _refuse_wide(config: MapConfig, channels: int) -> None:
    """Refuses a map with so many features that their sums do not fit into memory."""
    with torch.device("meta"):
        features = config.width(channels)
    needed, room = 8 * features**2, memory() // 2
    if needed > room:
        raise AccordError(
            f"its map has {features:,} features, whose sums need {megabytes(needed)}; this machine "
            f"can give {megabytes(room)}. Use smaller blocks (count, grid) or fewer landmarks."
        )


def _refuse_short_queue(recipe: TrainingRecipe, batch: int) -> None:
    """Refuses a queue that cannot hold all rows of a batch."""
    rows = batch * recipe.views
    for name, spec in (*recipe.objective.items(), *recipe.align.items()):
        size = spec.get("queue", 0)
        if 0 < size < rows:
            raise AccordError(
                f"the queue of {name!r} should hold at least a batch, "
                f"budget.batch × views = {rows} rows; found {size}. Make the queue longer or the "
                "batch smaller."
            )
