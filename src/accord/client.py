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
from torch import Tensor, nn

from accord.balance import Readings, Setting, Weigher, balances
from accord.budget import Budget
from accord.data.imageset import ImageSet
from accord.data.views import augment, augmentations
from accord.errors import ClientError
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
from accord.objective import Batch, Term, terms
from accord.parts import make_part
from accord.randomness import torch_generator

Event = dict[str, Any]
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
        self.forward = torch.compile(self.net) if self.precision.compile else self.net
        self.local = _terms(header.training["objective"])
        self.align = _terms(header.training["align"])
        self.weigher = self._weigher()
        self.optimiser = torch.optim.SGD(
            [{"params": list(self.net.parameters())}, *self.weigher_groups()],
            lr=self.budget.lr,
            momentum=self.budget.momentum,
            weight_decay=self.budget.weight_decay,
        )
        self.base_lrs = [group["lr"] for group in self.optimiser.param_groups]
        self.anchors = _to(briefing.tensors.get("anchors"), device)
        self.held = (data.label_counts(self.classes) > 0).to(device)
        self.labels = torch.from_numpy(data.labels)
        # What sums are kept in; Apple's GPUs have no 64-bit floats.
        self.wide = torch.float32 if device.type == "mps" else torch.float64
        self.epoch = 0
        self.telemetry: list[Event] = []

    # --- where it stands -------------------------------------------------------------------

    @property
    def done(self) -> bool:
        return self.epoch >= self.budget.epochs

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
        names = ["loss", "loss_local", *_loss_names(self.local), *_loss_names(self.align)]
        sums = torch.zeros(len(names) + 1, dtype=self.wide, device=self.precision.device)
        draws = torch_generator(self.briefing.header.seed, self.client, "views", self.epoch)
        for step, positions in enumerate(self._batches()):
            progress = (self.epoch + step / self.steps_per_epoch) / self.budget.epochs
            losses, clipped = self._step(positions, progress, draws)
            sums[:-1] += len(positions) * losses
            sums[-1] += clipped
            if tell:
                tell((step + 1) / self.steps_per_epoch)
        self.epoch += 1
        means = dict(zip(names, (sums[:-1] / len(self.data)).tolist(), strict=True))
        event = self._event(means, sums[-1].item() / self.steps_per_epoch)
        event["seconds"] = time.perf_counter() - started
        self._stop_unless_finite(event)
        self.telemetry.append(event)
        return event

    def _batches(self) -> list[Tensor]:
        """Shuffled positions in batches of even size: none is dropped, none is a stray image."""
        shuffle = torch_generator(self.briefing.header.seed, self.client, "batches", self.epoch)
        order = torch.randperm(len(self.data), generator=shuffle)
        return list(torch.tensor_split(order, self.steps_per_epoch))

    def _step(
        self, positions: Tensor, progress: float, draws: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """One optimiser step. Returns the losses (total, local, each term) and whether clipped."""
        for group, lr in zip(self.optimiser.param_groups, self.base_lrs, strict=True):
            group["lr"] = lr * schedule(self.budget.schedule, progress)
        self.optimiser.zero_grad(set_to_none=True)
        batch = self._batch(positions, draws)
        local_terms = [term(batch) for term in self.local.values()]
        align_terms = [term(batch) for term in self.align.values()]
        local = torch.stack(local_terms).sum()
        if self.weigher is None:
            local.backward()  # type: ignore[no-untyped-call]
            total = local
        else:
            total = self.weigher.backward(local, torch.stack(align_terms).sum(), progress)
        clipped = self._clip()
        self.optimiser.step()
        losses = torch.stack([total, local, *local_terms, *align_terms]).detach()
        return losses.to(self.wide), clipped

    def _batch(self, positions: Tensor, draws: torch.Generator) -> Batch:
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
            features, logits = self.forward(seen)
        return Batch(
            features=features.float(),
            logits=logits.float(),
            labels=self.labels[positions].repeat(views).to(device),
            prototypes=self.net.head.prototypes,
            held=self.held,
            anchors=self.anchors,
        )

    def _clip(self) -> Tensor:
        """Clips the net's gradient norm; 1 where that changed anything."""
        if self.budget.clip is None:
            return torch.zeros((), device=self.precision.device)
        norm = nn.utils.clip_grad_norm_(self.net.parameters(), self.budget.clip)
        return (norm > self.budget.clip).to(self.wide)

    # --- balance -----------------------------------------------------------------------------

    def _weigher(self) -> Weigher | None:
        spec = self.briefing.header.training["balance"]
        if spec is None:
            return None
        setting = Setting(self.data.label_counts(self.classes), self.budget.lr)
        weigher = make_part(balances, spec, "balance").start(setting)
        return weigher.to(self.precision.device)

    def weigher_groups(self) -> list[dict[str, Any]]:
        return self.weigher.parameter_groups() if self.weigher else []

    # --- telemetry ---------------------------------------------------------------------------

    def _event(self, means: dict[str, float], clipped: float) -> Event:
        """An epoch's telemetry; the dials are read at p = e/E, where the epoch ends."""
        readings: Readings | None = None
        if self.weigher is not None:
            readings = self.weigher.readings(self.epoch / self.budget.epochs)
        align = [means[name] for name in _loss_names(self.align)]
        return {
            "epoch": self.epoch,
            **means,
            "loss_align": sum(align) if align else None,
            "lambda_raw": readings.lambda_raw if readings else None,
            "attenuation": readings.attenuation if readings else None,
            "lambda_effective": readings.lambda_effective if readings else None,
            "lr": self.optimiser.param_groups[0]["lr"],
            "clipped": clipped,
        }

    def _stop_unless_finite(self, event: Event) -> None:
        numbers = {key: v for key, v in event.items() if isinstance(v, float)}
        broken = {key: v for key, v in numbers.items() if not math.isfinite(v)}
        if broken:
            rule = (self.briefing.header.training["balance"] or {}).get("use", "none")
            shown = ", ".join(f"{key} = {value}" for key, value in broken.items())
            raise ClientError(
                f"epoch {self.epoch} gave {shown} (balance {rule}, lr {self.budget.lr}). "
                f"{self.remedy}"
            )

    @property
    def remedy(self) -> str:
        """What usually helps against a training that diverges."""
        tamer = [] if self.budget.clip else ["set budget.clip"]
        return f"{', '.join(['Lower budget.lr', *tamer])} or choose another balance."

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
                raise ClientError(f"epoch {self.epoch} left {name} NaN or infinite. {self.remedy}")
        return upload

    def state(self) -> State:
        """Everything the next epoch depends on; random draws are named, so none are kept."""
        momentum = {
            f"{MOMENTUM}{index}": self.optimiser.state[parameter]["momentum_buffer"]
            for index, parameter in enumerate(self._parameters())
            if self.optimiser.state[parameter].get("momentum_buffer") is not None
        }
        weigher = self.weigher.state_dict() if self.weigher else {}
        return State(
            StateHeader(
                client=self.client,
                epoch=self.epoch,
                briefing=self.briefing.digest,
                telemetry=tuple(self.telemetry),
            ),
            {**prefixed(NET, self.net.state_dict()), **prefixed(BALANCE, weigher), **momentum},
        )

    def restore(self, state: State) -> None:
        """Goes on from `state`, bit for bit as if never interrupted."""
        self.net.load_state_dict(unprefixed(NET, state.tensors))
        if self.weigher:
            self.weigher.load_state_dict(unprefixed(BALANCE, state.tensors))
        for index, parameter in enumerate(self._parameters()):
            buffer = state.tensors.get(f"{MOMENTUM}{index}")
            if buffer is not None:
                # Same memory layout as the parameter, as the optimiser would have made it.
                kept = torch.empty_like(parameter).copy_(buffer)
                self.optimiser.state[parameter]["momentum_buffer"] = kept
        self.epoch = state.header.epoch
        self.telemetry = [dict(event) for event in state.header.telemetry]

    def _parameters(self) -> list[nn.Parameter]:
        return [p for group in self.optimiser.param_groups for p in group["params"]]


MOMENTUM = "momentum."
BALANCE = "balance."


def schedule(kind: str, progress: float) -> float:
    """The factor on the lr at progress p: 1, ½(1 + cos πp) or 1 − p."""
    if kind == "cosine":
        return (1 + math.cos(math.pi * progress)) / 2
    return 1 - progress if kind == "linear" else 1.0


def _terms(specs: dict[str, dict[str, Any]]) -> dict[str, Term]:
    return {name: make_part(terms, {"use": name, **params}, name) for name, params in specs.items()}


def _loss_names(chosen: dict[str, Term]) -> list[str]:
    return [f"loss_{name.replace('-', '_')}" for name in chosen]


def _to(tensor: Tensor | None, device: torch.device) -> Tensor | None:
    return None if tensor is None else tensor.to(device)
