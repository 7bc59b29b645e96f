"""The local training loop of all recipes whose clients train a net."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from accord.balance import Mixture, balances
from accord.client.base import Client, Precision, Tell
from accord.client.batches import KINDS
from accord.client.control import ControlVariate
from accord.client.enriching import Enriching
from accord.client.optimiser import Optimiser
from accord.client.statistics import measure_client
from accord.client.step_inputs import StepInputs
from accord.client.studied import studied_images
from accord.client.telemetry import Event, LossSums, advice, trouble
from accord.core.errors import ClientError
from accord.core.parts import make_part
from accord.core.randomness import torch_generator
from accord.data.imageset import ImageSet
from accord.messages import (
    CONTROL,
    NET,
    Briefing,
    Memory,
    MemoryHeader,
    State,
    StateHeader,
    TrainingSpec,
    Upload,
    UploadHeader,
    prefixed,
    unprefixed,
)
from accord.nets.net import loaded_net
from accord.objective import Term, make_alignment, make_term
from accord.objective.queue import Queue

BALANCE = "balance."
QUEUE = "queue."


class Training(Client):
    """One client's local training."""

    def __init__(
        self,
        data: ImageSet,
        briefing: Briefing,
        name: str,
        precision: Precision | None = None,
        memory: Memory | None = None,
    ) -> None:
        super().__init__(data, briefing, name, precision or Precision())
        header = briefing.header
        if not isinstance(header.training, TrainingSpec):
            raise ValueError("the briefing asks for sums, not for training")
        self.asked = header.training
        device = self.precision.device
        weights = unprefixed(NET, briefing.tensors)
        self.net = loaded_net(header.net, header.channels, self.classes, weights)
        self.net = self.net.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.studied = studied_images(self.data, briefing)
        objective, align = self._objective(), self.asked.align
        self.local = {name: make_term(name, spec, name) for name, spec in objective.items()}
        self.align = {name: make_alignment(name, spec, name) for name, spec in align.items()}
        self.mixture = self._mixture()
        self.parameters = [p for p in self.net.parameters() if p.requires_grad]
        self.optimiser = Optimiser(self.parameters, self.mixture.groups(), self.budget)
        self.queue = self._queue().to(device)
        self.inputs = StepInputs(self.studied, briefing, self.asked, self.net, self.precision)
        self.control = ControlVariate.of(self.net, briefing, memory)
        self.enriching = Enriching.of(self.net, briefing, device)
        self.looking = True  # whether gradients are measured every `look_every` steps
        if memory is not None:
            self.mixture.load_state_dict(unprefixed(BALANCE, memory.tensors))

    # --- progress --------------------------------------------------------------------------

    @property
    def stage(self) -> int | None:
        """1 while only the alignment terms train, then 2; None for a recipe with one stage."""
        epochs = self.asked.alignment_epochs
        return (1 if self.epoch < epochs else 2) if epochs else None

    @property
    def steps_per_epoch(self) -> int:
        return math.ceil(len(self.studied) / self.budget.batch)

    def progress(self, of_epoch: float) -> float:
        """p over the local training of all rounds; `of_epoch` is the share of this epoch done."""
        return (self.epoch + of_epoch) / (self.briefing.header.rounds * self.budget.epochs)

    # --- one epoch ---------------------------------------------------------------------------

    def one_epoch(self, tell: Tell | None = None) -> Event:
        self.net.train()
        sums = LossSums(_loss_names(self.local), _loss_names(self.align), self.precision.device)
        draws = torch_generator(self.briefing.header.seed, self.draws_as, "views", self.epoch)
        for step, positions in enumerate(self._batches()):
            progress = self.progress(step / self.steps_per_epoch)
            self._step(step, positions, progress, draws, sums)
            if tell:
                tell((step + 1) / self.steps_per_epoch)
        event = self._event(sums.event())
        self.epoch += 1
        self._stop_unless_finite(event)
        return event

    def _batches(self) -> list[Tensor]:
        """The positions of the images of each step."""
        draws = torch_generator(self.briefing.header.seed, self.draws_as, "batches", self.epoch)
        return KINDS[self.asked.batches](self.inputs.labels, self.steps_per_epoch, draws)

    def _step(
        self,
        step: int,
        positions: Tensor,
        progress: float,
        draws: torch.Generator,
        sums: LossSums,
    ) -> None:
        """Does one optimiser step and adds its losses to `sums`; `step` counts in the epoch."""
        if self.enriching is not None:
            self.enriching.begin(self.epoch * self.steps_per_epoch + step)
        self.optimiser.begin(progress, self.epoch)
        batch = self.inputs.batch(positions, progress, draws, self.queue.rows())
        local = {name: term.weight * term(batch) for name, term in self.local.items()}
        align = {name: term(batch) for name, term in self.align.items()}
        total = self.mixture.backward(
            local,
            align,
            progress,
            self.parameters,
            self._looks_at(step),
            align_alone=self.stage == 1,
        )
        if self.enriching is not None:
            self.enriching.learn()
        self.queue.push(batch.directions, batch.labels)
        if self.control is not None:
            self.control.correct()
        sums.clipped += self.optimiser.finish()
        if self.control is not None:
            self.control.observe()
        each, others = ([loss.detach() for loss in found.values()] for found in (local, align))
        sums.add(total, each, others, len(positions))

    def _looks_at(self, step: int) -> bool:
        """Whether a step measures gradients: every N steps, and at the end of shorter epochs."""
        if not self.looking:
            return False
        every, steps = self.budget.look_every, self.steps_per_epoch
        if (self.epoch * steps + step) % every == 0:
            return True
        return steps < every and step == steps - 1

    # --- parts of the recipe -----------------------------------------------------------------

    def _objective(self) -> dict[str, Any]:
        """The local terms; at a client with one class, only the terms of `single_class`."""
        chosen, few = self.asked.objective, self.asked.single_class
        if few and int((self.studied.label_counts(self.classes) > 0).sum()) == 1:
            return {name: chosen[name] for name in few}
        return chosen

    def _queue(self) -> Queue:
        """The queue of past features, as long as the terms need; most terms need none."""
        sizes = [term.queue_size() for term in (*self.local.values(), *self.align.values())]
        return Queue(max(sizes), self.net.encoder.width)

    def _mixture(self) -> Mixture:
        counts = self.studied.label_counts(self.classes)
        weighers = {
            name: make_part(balances, spec["balance"], name).start(counts)
            for name, spec in self.asked.align.items()
        }
        return Mixture(weighers).to(self.precision.device)

    # --- telemetry ---------------------------------------------------------------------------

    def _event(self, losses: Event) -> Event:
        """The telemetry of an epoch; dials are read at the progress p of the epoch's end."""
        align = zip(self.align, _loss_names(self.align), strict=True)
        pairs = {name: (losses["loss_local"], losses[key]) for name, key in align}
        return {
            "epoch": self.epoch + 1,
            "stage": self.stage,
            **losses,
            **self.mixture.dials(pairs, self.progress(1), align_alone=self.stage == 1),
            "lr": self.optimiser.lr,
        }

    def _stop_unless_finite(self, event: Event) -> None:
        found = trouble(event, self.telemetry)
        if found:
            raise ClientError(f"{found} {advice(self.budget, self.asked.align)}")

    # --- messages ----------------------------------------------------------------------------

    def upload(self) -> Upload:
        header = self.briefing.header
        net, device = self.net, self.precision.device
        images = int(self.said.sum())
        if self.hostile is not None:
            seen = images + self.briefing.public_images
            steps = (self.epoch - header.first_epoch) * math.ceil(seen / self.budget.batch)
            net = self.hostile.net(net, self.data, steps, device)
        accuracy, statistics = measure_client(net, self.data, header, device, images)
        upload = Upload(
            UploadHeader(
                client=self.name,
                epoch=self.epoch,
                samples=images,
                train_accuracy=accuracy,
                briefing=self.briefing.digest,
                telemetry=tuple(self.telemetry),
            ),
            {
                **prefixed(NET, net.state_dict()),
                "label_counts": self.said,
                **statistics,
                **(prefixed(CONTROL, self.control.change()) if self.control else {}),
                **(self.enriching.values() if self.enriching else {}),
            },
        )
        # The last step may have made values NaN or infinite that the losses do not show.
        for name, tensor in upload.tensors.items():
            if not bool(torch.isfinite(tensor).all()):
                found = f"epoch {self.epoch} left {name} NaN or infinite"
                raise ClientError(f"{found} {advice(self.budget, self.asked.align)}")
        return upload

    def state(self) -> State:
        """Everything that the next epoch depends on; named random draws need no saved state."""
        return State(
            StateHeader(
                client=self.name,
                epoch=self.epoch,
                briefing=self.briefing.digest,
                telemetry=tuple(self.telemetry),
            ),
            {
                **prefixed(NET, self.net.state_dict()),
                **prefixed(BALANCE, self.mixture.state_dict()),
                **prefixed(QUEUE, self.queue.state_dict()),
                **self.optimiser.momentum(),
                **(prefixed(CONTROL, self.control.state_dict()) if self.control else {}),
                **(self.enriching.state_dict() if self.enriching else {}),
            },
        )

    def restore(self, state: State) -> None:
        self.net.load_state_dict(unprefixed(NET, state.tensors))
        self.mixture.load_state_dict(unprefixed(BALANCE, state.tensors))
        self.queue.load_state_dict(unprefixed(QUEUE, state.tensors))
        self.optimiser.restore(state.tensors)
        if self.control is not None:
            self.control.load_state_dict(unprefixed(CONTROL, state.tensors))
        if self.enriching is not None:
            self.enriching.load_state_dict(state.tensors)
        self.epoch = state.header.epoch
        self.telemetry = [dict(event) for event in state.header.telemetry]

    def memory(self) -> Memory | None:
        """The learnt values of its balances, and its control variate; None for most recipes."""
        tensors = prefixed(BALANCE, self.mixture.state_dict())
        if self.control is not None:
            tensors |= prefixed(CONTROL, self.control.own())
        if not tensors:
            return None
        header = self.briefing.header
        kept = MemoryHeader(client=self.name, round=header.round, briefing=self.briefing.digest)
        return Memory(kept, tensors)


def _loss_names(chosen: dict[str, Term]) -> list[str]:
    return [f"loss_{name.replace('-', '_')}" for name in chosen]
