"""The one local training loop, for every recipe.

`Training` is a client at work: it advances epoch by epoch, can be saved and restored between any
two of them, and gives an upload after any of them. It knows nothing of engines, files or other
clients.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from accord.balance import Mixture, balances
from accord.batches import KINDS
from accord.budget import Budget
from accord.data.imageset import ImageSet
from accord.data.views import augment, augmentations
from accord.descent import Descent
from accord.errors import ClientError
from accord.given import given
from accord.messages import (
    NET,
    Briefing,
    State,
    StateHeader,
    Upload,
    UploadHeader,
    prefixed,
    unprefixed,
)
from accord.moments import measure_client
from accord.nets.prototypes import loaded_net
from accord.objective import Batch, Term, make_alignment, make_term
from accord.objective.queue import Queue
from accord.parts import make_part
from accord.randomness import torch_generator
from accord.telemetry import Event, LossSums, advice, trouble

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Precision:
    """How this machine computes; never part of a message."""

    device: torch.device = CPU
    autocast: bool = False
    compile: bool = False


def train(data: ImageSet, briefing: Briefing, client: str) -> Upload:
    """`train(data, briefing) → Upload` of the design, from start to end."""
    training = Training(data, briefing, client)
    while not training.done:
        training.run_epoch()
    return training.upload()


class Training:
    """One client's local training."""

    def __init__(
        self, data: ImageSet, briefing: Briefing, client: str, precision: Precision | None = None
    ) -> None:
        header = briefing.header
        self.data, self.briefing, self.client = data, briefing, client
        self.precision = precision or Precision()
        self.budget = Budget.model_validate(header.budget)
        self.classes = len(header.classes)
        device = self.precision.device
        weights = unprefixed(NET, briefing.tensors)
        self.net = loaded_net(header.net, header.channels, self.classes, weights)
        self.net = self.net.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.encode: Callable[[Tensor], Tensor] = self.net.encoder
        if self.precision.compile:
            # A look at the gradients walks the graph before the backward pass needs it again.
            torch._functorch.config.donated_buffer = False
            self.encode = torch.compile(self.net.encoder)
        objective, align = self._objective(), self._align_specs
        self.local = {name: make_term(name, spec, name) for name, spec in objective.items()}
        self.align = {name: make_alignment(name, spec, name) for name, spec in align.items()}
        self.mixture = self._mixture()
        self.parameters = [p for p in self.net.parameters() if p.requires_grad]
        self.descent = Descent(self.parameters, self.mixture.groups(), self.budget)
        self.queue = self._queue().to(device)
        self.given = given(briefing, data.label_counts(self.classes), self.net, device)
        self.labels = torch.from_numpy(data.labels)
        self.looking = True  # at gradients, now and then
        self.epoch = 0
        self.telemetry: list[Event] = []

    # --- where it stands -------------------------------------------------------------------

    @property
    def done(self) -> bool:
        return self.epoch >= self.budget.epochs

    @property
    def stage(self) -> int | None:
        """1 while alignment terms train alone, then 2; None for a recipe without such a stage."""
        epochs = self.briefing.header.training["alignment_epochs"]
        return (1 if self.epoch < epochs else 2) if epochs else None

    @property
    def at_checkpoint(self) -> bool:
        return self.epoch in self.budget.checkpoints

    @property
    def steps_per_epoch(self) -> int:
        return math.ceil(len(self.data) / self.budget.batch)

    # --- one epoch ---------------------------------------------------------------------------

    def run_epoch(self, tell: Callable[[float], None] | None = None) -> Event:
        """Trains one epoch; `tell` hears the share of it that is done. Returns its telemetry."""
        started = time.perf_counter()
        self.net.train()
        sums = LossSums(_loss_names(self.local), _loss_names(self.align), self.precision.device)
        draws = torch_generator(self.briefing.header.seed, self.client, "views", self.epoch)
        for step, positions in enumerate(self._batches()):
            progress = (self.epoch + step / self.steps_per_epoch) / self.budget.epochs
            self._step(positions, progress, draws, sums, look=self._looks_at(step))
            if tell:
                tell((step + 1) / self.steps_per_epoch)
        event = self._event(sums.event())
        self.epoch += 1
        event["seconds"] = time.perf_counter() - started
        self._stop_unless_finite(event)
        self.telemetry.append(event)
        return event

    def _batches(self) -> list[Tensor]:
        """Positions of images, step by step."""
        header = self.briefing.header
        draws = torch_generator(header.seed, self.client, "batches", self.epoch)
        return KINDS[header.training["batches"]](self.labels, self.steps_per_epoch, draws)

    def _step(
        self,
        positions: Tensor,
        progress: float,
        draws: torch.Generator,
        sums: LossSums,
        look: bool,
    ) -> None:
        """One optimiser step, whose losses go to `sums`."""
        self.descent.begin(progress)
        batch = self._batch(positions, progress, draws)
        local = {name: term.weight * term(batch) for name, term in self.local.items()}
        align = {name: term(batch) for name, term in self.align.items()}
        total = self.mixture.backward(
            local, align, progress, self.parameters, look, align_alone=self.stage == 1
        )
        self.queue.push(batch.directions, batch.labels)
        sums.clipped += self.descent.finish()
        each, others = ([loss.detach() for loss in found.values()] for found in (local, align))
        sums.add(total, each, others, len(positions))

    def _looks_at(self, step: int) -> bool:
        """Every N steps of all training, and at the end of an epoch that is shorter than that."""
        if not self.looking:
            return False
        every, steps = self.budget.look_every, self.steps_per_epoch
        if (self.epoch * steps + step) % every == 0:
            return True
        return steps < every and step == steps - 1

    def _batch(self, positions: Tensor, progress: float, draws: torch.Generator) -> Batch:
        header = self.briefing.header
        views = header.training["views"]
        if views * len(positions) < 2:
            # Batch norm needs two rows: a lone image is seen in two views.
            positions = positions.repeat(2)
        device = self.precision.device
        images = self.data.batch(positions).to(device)
        seen = augment(
            images, augmentations.get(header.augment), views, draws, header.mean, header.std
        )
        with torch.autocast(device.type, torch.bfloat16, enabled=self.precision.autocast):
            features = self.encode(seen)
            logits = self.net.head(features)
        return Batch(
            features=features.float(),
            logits=logits.float(),
            labels=self.labels[positions].repeat(views).to(device),
            lesson={
                name: self.briefing.tensors[name][positions].repeat(views, 1).to(device)
                for name in LESSON.intersection(self.briefing.tensors)
            },
            prototypes=self.net.head.prototypes,
            queue=self.queue.rows(),
            progress=progress,
            **self.given,
        )

    def _objective(self) -> dict[str, Any]:
        """The local terms, or those that make sense at a client with one class."""
        training = self.briefing.header.training
        chosen: dict[str, Any] = training["objective"]
        few = training["single_class"]
        if few and int((self.data.label_counts(self.classes) > 0).sum()) == 1:
            chosen = {name: chosen[name] for name in few}
        return chosen

    def _queue(self) -> Queue:
        """Past features, as many as a term asks for; none is the usual number."""
        sizes = [term.queue_size() for term in (*self.local.values(), *self.align.values())]
        return Queue(max(sizes), self.net.encoder.width)

    # --- balance -----------------------------------------------------------------------------

    def _mixture(self) -> Mixture:
        counts = self.data.label_counts(self.classes)
        specs = {name: spec["balance"] for name, spec in self._align_specs.items()}
        weighers = {
            name: make_part(balances, spec, name).start(counts) for name, spec in specs.items()
        }
        return Mixture(weighers).to(self.precision.device)

    @property
    def _align_specs(self) -> dict[str, dict[str, Any]]:
        specs: dict[str, dict[str, Any]] = self.briefing.header.training["align"]
        return specs

    # --- telemetry ---------------------------------------------------------------------------

    def _event(self, losses: Event) -> Event:
        """An epoch's telemetry; the dials are read at p = e/E, where the epoch ends."""
        align = zip(self.align, _loss_names(self.align), strict=True)
        pairs = {name: (losses["loss_local"], losses[key]) for name, key in align}
        progress = (self.epoch + 1) / self.budget.epochs
        return {
            "epoch": self.epoch + 1,
            "stage": self.stage,
            **losses,
            **self.mixture.dials(pairs, progress, align_alone=self.stage == 1),
            "lr": self.descent.lr,
        }

    def _stop_unless_finite(self, event: Event) -> None:
        found = trouble(event, self.telemetry)
        if found:
            raise ClientError(f"{found} {advice(self.budget, self._align_specs)}")

    # --- messages ----------------------------------------------------------------------------

    def upload(self) -> Upload:
        """The message to the server, as training stands now."""
        header = self.briefing.header
        accuracy, moments = measure_client(self.net, self.data, header, self.precision.device)
        upload = Upload(
            UploadHeader(
                client=self.client,
                epoch=self.epoch,
                samples=len(self.data),
                train_accuracy=accuracy,
                briefing=self.briefing.digest,
                telemetry=tuple(self.telemetry),
            ),
            {
                **prefixed(NET, self.net.state_dict()),
                "label_counts": self.data.label_counts(self.classes),
                **moments,
            },
        )
        # The last step may have broken what the losses before it did not show.
        for name, tensor in upload.tensors.items():
            if not bool(torch.isfinite(tensor).all()):
                found = f"epoch {self.epoch} left {name} NaN or infinite"
                raise ClientError(f"{found} {advice(self.budget, self._align_specs)}")
        return upload

    def state(self) -> State:
        """Everything the next epoch depends on; random draws are named, so none are kept."""
        return State(
            StateHeader(
                client=self.client,
                epoch=self.epoch,
                briefing=self.briefing.digest,
                telemetry=tuple(self.telemetry),
            ),
            {
                **prefixed(NET, self.net.state_dict()),
                **prefixed(BALANCE, self.mixture.state_dict()),
                **prefixed(QUEUE, self.queue.state_dict()),
                **self.descent.momentum(),
            },
        )

    def restore(self, state: State) -> None:
        """Goes on from `state`, bit for bit as if never interrupted."""
        self.net.load_state_dict(unprefixed(NET, state.tensors))
        self.mixture.load_state_dict(unprefixed(BALANCE, state.tensors))
        self.queue.load_state_dict(unprefixed(QUEUE, state.tensors))
        self.descent.restore(state.tensors)
        self.epoch = state.header.epoch
        self.telemetry = [dict(event) for event in state.header.telemetry]


LESSON = frozenset({"targets", "target_features"})  # rows of a briefing, one for each image
BALANCE = "balance."
QUEUE = "queue."


def _loss_names(chosen: dict[str, Term]) -> list[str]:
    return [f"loss_{name.replace('-', '_')}" for name in chosen]
