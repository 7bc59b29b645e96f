"""The briefing, server → client: everything that a client needs besides its own images."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from accord.closed_form.packing import Packing
from accord.core.budget import MOST_ROUNDS, Budget
from accord.core.config import Config
from accord.core.mergenet import MergeNetConfig
from accord.messages.base import PUBLIC, Message

Spec = dict[str, Any]
DIGEST = r"^[0-9a-f]{64}$"  # it is used in file names
LARGEST = 1_024  # pixels of a side, as in a study
MOST_CLASSES = 100_000


def _settled(spec: Spec | None) -> Spec | None:
    """Refuses a map with a block that would read a saved model where the message is read."""
    given = (spec or {}).get("blocks")
    for block in given if isinstance(given, list | tuple) else (given,):  # one needs no list
        if isinstance(block, dict):
            if "model" in block and not block.get("digest"):
                raise ValueError("a block names a saved model and does not say its digest")
            _settled(block.get("map") if isinstance(block.get("map"), dict) else None)
    return spec


Mean = tuple[Annotated[float, Field(ge=-100, le=100)], ...]  # of pixels from 0 to 1
Std = tuple[Annotated[float, Field(ge=1e-4, le=100)], ...]
MapSpec = Annotated[Spec, AfterValidator(_settled)]


class NetHeader(Config):
    """The net to build: the study's backbone and norm, the recipe's head, and its map if any."""

    backbone: str
    norm: Literal["batch", "group"]
    head: str
    map: MapSpec | None = None  # a map of fixed features that replaces the encoder


class TeacherHeader(Config):
    """The server's teacher: its net, and the normalisation of the images that it expects."""

    net: NetHeader
    mean: Mean
    std: Std


class TrainingSpec(Config):
    """The part of a recipe that a client uses to train a net."""

    views: int = Field(1, ge=1, le=8, description="augmented views per image and step")
    batches: Literal["shuffled", "balanced"] = Field(
        "shuffled",
        description="shuffled uses every image once per epoch, balanced every class equally often",
    )
    head: str = Field(
        "linear", description="linear, prototypes (z Pᵀ), or anchors (z Aᵀ, never trained)"
    )
    objective: dict[str, Spec] = Field(
        default={}, description="local loss terms; their sum is L_loc"
    )
    anchors: Spec | None = Field(
        None, description="fixed vectors that the prototypes are aligned to"
    )
    align: dict[str, Spec] = Field(
        default={}, description="alignment terms, each with a balance that weighs it against L_loc"
    )
    single_class: tuple[str, ...] = Field(
        (), description="local terms of a client that holds one class; an empty list means all"
    )
    alignment_epochs: int = Field(
        0, ge=0, description="number of first epochs that minimise only the alignment terms"
    )
    with_public: bool = Field(
        False,
        description="clients train on the labelled public images too, which every briefing carries",
    )


class SummingSpec(Config):
    """The part of a recipe that a client uses to sum fixed features."""

    map: MapSpec
    packing: Packing = Field("float32", description="number format of the scatter in an upload")


class AttackHeader(Config):
    """The attack of a simulated federation. No briefing that leaves the machine has one."""

    name: str
    strength: float | None
    hostile: dict[str, str]  # hostile client → the client whose random draws it uses


class Origin(Config):
    """Where a briefing comes from: for people, and for the server that fuses the answers."""

    study: str
    recipe: str
    fusions: tuple[Spec, ...] = Field(min_length=1)  # the recipe's fusions, the main one first
    method: Spec  # what the server does after each round


class BriefingHeader(Config):
    """Everything that a client needs besides its own data and the tensors.

    The type of `training` decides what the client does: it trains a net or sums fixed features.
    """

    round: int = Field(1, ge=1)
    rounds: int = Field(1, ge=1, le=MOST_ROUNDS)  # of the method; schedules run over all of them
    seed: int
    height: int = Field(gt=0, le=LARGEST)
    width: int = Field(gt=0, le=LARGEST)
    channels: int = Field(gt=0, le=3)
    classes: tuple[str, ...] = Field(min_length=2, max_length=MOST_CLASSES)
    mean: Mean
    std: Std
    augment: str
    net: NetHeader
    training: TrainingSpec | SummingSpec
    budget: Budget
    teacher: TeacherHeader | None = None  # the teacher that clients learn from
    mergenet: MergeNetConfig | None = None  # the adapter that clients train, if they do
    first: str | None = Field(None, pattern=DIGEST)  # of round 1's briefing, in all later rounds
    origin: Origin | None = None  # in a briefing that is sent as a file
    attack: AttackHeader | None = None  # in a simulation with hostile clients

    @property
    def uploads(self) -> Literal["nets", "sums"]:
        """What the clients send back."""
        return "nets" if isinstance(self.training, TrainingSpec) else "sums"

    @property
    def first_epoch(self) -> int:
        """The number of local epochs of all rounds before this one."""
        return (self.round - 1) * self.budget.epochs

    @model_validator(mode="after")
    def _consistent(self) -> BriefingHeader:
        if self.round > self.rounds:
            raise ValueError(f"round {self.round} of {self.rounds} rounds does not exist")
        if (self.net.map is None) != isinstance(self.training, TrainingSpec):
            raise ValueError("clients that sum have a map, and clients that train have none")
        if not len(self.mean) == len(self.std) == self.channels:
            raise ValueError(
                f"expected {self.channels} values in mean and std, one per channel; found "
                f"{len(self.mean)} and {len(self.std)}"
            )
        return self

    @model_serializer(mode="wrap")
    def _only_what_is_used(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leaves out the number of rounds if it is 1, and settings that are not used."""
        unused: dict[str, Any] = {"rounds": 1}
        unused |= dict.fromkeys(("teacher", "mergenet", "first", "origin", "attack"))
        values: dict[str, Any] = dump(self)
        return {k: v for k, v in values.items() if k not in unused or v != unused[k]}


@dataclass(frozen=True)
class Briefing(Message):
    """Server → client: initial weights, anchors and bank; recipe, net, budget, data constants."""

    header: BriefingHeader
    kind: ClassVar[str] = "briefing"
    header_type: ClassVar[type[Config]] = BriefingHeader

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(self.to_bytes()).hexdigest()

    @property
    def public_images(self) -> int:
        """The number of public images that it carries for the clients' training."""
        labels = self.tensors.get(PUBLIC + "labels")
        return 0 if labels is None else labels.numel()

    @property
    def federation(self) -> str:
        """The same value in all rounds of a federation: the digest of its first briefing."""
        return self.header.first or self.digest
