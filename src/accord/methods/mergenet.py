"""Federated MergeNet: the averaged net is enriched with what a teacher's weights hold.

After federated averaging, an adapter φ looks up the teacher's layers Y for chosen layers W̄ of the
averaged net: Ŵ = A_φ(W̄, Y) (MergeNet, Li et al., 2024, arXiv:2404.13322).
"""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field
from torch import Tensor

from accord.core.errors import AccordError
from accord.core.mergenet import MergeNetConfig
from accord.core.parts import AUTOMATIC, set_by_hand
from accord.core.randomness import torch_generator
from accord.fusion.average import weighted_mean
from accord.fusion.base import Scene, client_weights
from accord.messages import (
    ADAPTER,
    NET,
    SOURCE,
    TEACHER,
    Briefing,
    ServerState,
    TeacherHeader,
    prefixed,
    unprefixed,
)
from accord.messages.server_state import SERVER
from accord.methods.averaging import Averaging
from accord.methods.base import clients_ask_teacher, methods
from accord.methods.public_training import train_teacher
from accord.methods.server_fusion import ServerFusion
from accord.nets.adapters import Enrichment, adapters
from accord.nets.adapters.enrichment import resolve_pairs
from accord.nets.net import loaded_net
from accord.nets.settings import TeacherConfig

Tensors = dict[str, Tensor]
BEFORE = SERVER + "before."  # prefix of the paired layers before the fusion that was sent
REHEARSED = 3  # steps of a rehearsal
STEP = 0.4  # cost of a step that trains an adapter, where a step that trains the net costs 1


@methods.register("mergenet")
class MergeNet(Averaging):
    """FedAvg whose average is enriched from a teacher, from round `start_round` on.

    The adapter φ is trained in one of three ways. `public`: by the server, through the enriched net
    on its public images. `pseudo`: by the server without any image,
    φ ← φ − η·J_φᵀ(Ŵ_sent − W̄_returned)/lr. `client`: by the clients, which fuse every f batches;
    the server averages their nets and their φ.
    """

    settings: MergeNetConfig | None = Field(None, description=AUTOMATIC)
    trainable: bool = Field(False, description=AUTOMATIC)

    def with_settings(self, mergenet: MergeNetConfig, teacher: TeacherConfig) -> Self:
        return self.model_copy(update={"settings": mergenet, "trainable": teacher.trainable})

    def filled(self, fusion: dict[str, Any], where: str) -> Self:
        if set_by_hand(self):
            raise AccordError(
                f"{where}.method: write the settings of MergeNet into the sections mergenet and "
                "teacher of the recipe or of the study, not into `method`."
            )
        return super().filled(fusion, where)

    @property
    def asked(self) -> MergeNetConfig:
        return self.settings or MergeNetConfig()

    @property
    def needs_teacher(self) -> bool:
        return adapters.get(self.asked.adapter).uses_teacher

    @property
    def starts_from(self) -> dict[str, Any] | None:
        return self.merge

    def fusion_applied(self, number: int) -> bool | None:
        return self.asked.due(number)

    def require(self, norm: str, public: int) -> None:
        super().require(norm, public)
        needs = {
            "mergenet.train: public": self.asked.train == "public",
            "mergenet.bn_recalibrate: true": bool(self.asked.bn_recalibrate),
            "teacher.trainable: true": self.trainable,
        }
        for key, needed in needs.items():
            least = 1 if norm == "group" else 2  # a batch norm needs two images
            if needed and public < least:
                raise AccordError(
                    f"{key} needs at least {least} public images; found {public}. Set data.public, "
                    "for example to 0.1."
                )
        if self.trainable and (not self.needs_teacher or self.rounds == 1):
            raise AccordError(
                "teacher.trainable: true needs a method with several rounds that uses the teacher; "
                f"found {self.rounds} rounds and the adapter {self.asked.adapter}. Set it to "
                "false for this recipe."
            )

    def work(self, public: int) -> float:
        images = self.asked.steps * min(self.asked.batch, public)
        return super().work(public) + (STEP * images if self.asked.train == "public" else 0)

    def shortened(self) -> Self:
        """With few steps, and with a fusion in every round: its memory must be known too."""
        few = {"steps": min(self.asked.steps, REHEARSED), "start_round": 1, "fusion_frequency": 1}
        settings = self.asked.model_copy(update=few)
        return super().shortened().model_copy(update={"settings": settings})

    # --- the first round -----------------------------------------------------------------------

    def start(self, opening: Briefing) -> ServerState:
        header, tensors = opening.header, dict(opening.tensors)
        student, teacher = _trained(opening), unprefixed(TEACHER, tensors)
        pairs = resolve_pairs(self.asked, student, teacher if self.needs_teacher else None)
        settings = self.asked.model_copy(update={"pairs": pairs})
        source = teacher if self.needs_teacher else student
        enrichment = Enrichment(pairs, student, source, settings)
        enrichment.initialise(torch_generator(header.seed, "adapter"))
        own: dict[str, Any] = {"pairs": [list(pair) for pair in pairs]}
        if header.teacher is not None:
            own["teacher"] = header.teacher.model_dump(mode="json")
        if not clients_ask_teacher(header):
            header = header.model_copy(update={"teacher": None})
            tensors = {n: t for n, t in tensors.items() if not n.startswith(TEACHER)}
            tensors |= prefixed(SERVER + TEACHER, teacher)
        values = prefixed(ADAPTER, enrichment.state_dict())
        if self.asked.train == "client":
            header = header.model_copy(update={"mergenet": settings})
            tensors |= values | prefixed(SOURCE, {other: source[other] for _, other in pairs})
        else:
            tensors |= prefixed(SERVER, values)
        state = super().start(Briefing(header, tensors))
        return ServerState(state.header.model_copy(update={"own": own}), state.tensors)

    # --- the next round ------------------------------------------------------------------------

    def advance(self, state: ServerState, scene: Scene) -> ServerState:
        """W̄ of the clients; then the teacher trains, φ learns, and W̄ is enriched, as asked."""
        fuses = self.asked.due(state.round)
        pairs = tuple((own, other) for own, other in state.header.own["pairs"])
        settings = self.asked.model_copy(update={"pairs": pairs})
        averaged = self.merged(scene)
        if self.asked.train == "client":
            changed = averaged | self._averaged_adapters(scene)
            if self.trainable and fuses:
                taught = self._taught(state, scene)
                changed |= prefixed(_place(state), taught)
                changed |= prefixed(SOURCE, {other: taught[other] for _, other in settings.pairs})
            return state.next(changed, scene.answered, told={"fused": fuses})
        fusion = self._fusion(state, scene, settings, unprefixed(NET, averaged))
        teacher = self._teacher(state, averaged)
        fusion.told["fused"] = fuses
        if self.asked.train == "pseudo" and state.header.own.get("sent"):
            sent, before = unprefixed(NET, state.tensors), unprefixed(BEFORE, state.tensors)
            fusion.learn_from_clients(before, sent, teacher, _local_lr(state))
        changed = averaged
        if fuses:
            if self.trainable:
                teacher = self._taught(state, scene)
                changed |= prefixed(_place(state), teacher)
            if self.asked.train == "public":
                fusion.learn_from_public(teacher, _teacher_header(state))
            changed |= prefixed(NET, fusion.fused(teacher))
            changed |= prefixed(BEFORE, {own: fusion.weights[own] for own, _ in settings.pairs})
        changed |= prefixed(SERVER + ADAPTER, fusion.enrichment.state_dict())
        return state.next(changed, scene.answered, told=fusion.told, sent=fuses)

    def _fusion(
        self, state: ServerState, scene: Scene, settings: MergeNetConfig, weights: Tensors
    ) -> ServerFusion:
        source = self._teacher(state, prefixed(NET, weights))
        enrichment = Enrichment(settings.pairs, weights, source, settings)
        enrichment.load_state_dict(unprefixed(SERVER + ADAPTER, state.tensors))
        return ServerFusion(settings, enrichment, weights, scene)

    def _teacher(self, state: ServerState, averaged: Tensors) -> Tensors:
        """The weights that the adapters read: the teacher's, or for a control the student's."""
        if not self.needs_teacher:
            return unprefixed(NET, averaged)
        return unprefixed(_place(state), state.tensors)

    def _taught(self, state: ServerState, scene: Scene) -> Tensors:
        """The weights of the teacher after its training in this round."""
        header, weights = _teacher_header(state), unprefixed(_place(state), state.tensors)
        if header is None:
            raise ValueError("there is no teacher to train")
        return train_teacher(header, weights, scene, self.asked)

    def _averaged_adapters(self, scene: Scene) -> Tensors:
        """φ = Σ_k w_k φ_k, with the weights of the clients' nets."""
        weights = client_weights(scene.uploads.summaries(), self.weighing).tolist()
        uploads = (scene.uploads.load(index) for index in range(len(scene.uploads)))
        values = (unprefixed(ADAPTER, upload.tensors) for upload in uploads)
        return prefixed(ADAPTER, weighted_mean(values, weights))


def _trained(opening: Briefing) -> Tensors:
    """The weights that clients train."""
    header, weights = opening.header, unprefixed(NET, opening.tensors)
    net = loaded_net(header.net, header.channels, len(header.classes), weights)
    return {name: p.detach() for name, p in net.named_parameters() if p.requires_grad}


def _place(state: ServerState) -> str:
    """The prefix of the teacher's weights: clients receive them only if they ask for them."""
    return TEACHER if state.header.briefing.teacher is not None else SERVER + TEACHER


def _teacher_header(state: ServerState) -> TeacherHeader | None:
    found = state.header.own.get("teacher")
    return None if found is None else TeacherHeader.model_validate(found)


def _local_lr(state: ServerState) -> float:
    """The clients' learning rate at the start of the round."""
    header = state.briefing().header
    budget, epoch = header.budget, header.first_epoch
    return budget.lr * budget.lr_factor(epoch / (header.rounds * budget.epochs), epoch)
