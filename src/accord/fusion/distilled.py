"""One model to deploy: a student that learns from the fused clients on the server's own images."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from pydantic import Field, field_validator
from torch import Tensor

from accord.budget import Budget
from accord.client import Precision, Training
from accord.errors import AccordError
from accord.evaluate import combiner_of, summed_votes, voting
from accord.fusion.average import one_net
from accord.fusion.base import Merge, Scene, Vote, fusions
from accord.fusion.outputs import OutputEnsemble
from accord.messages import NET, Briefing, Upload, unprefixed
from accord.uploads import UploadFiles

CALIBRATED = 0.5  # what a class's share must exceed, of 1/C, to be divided by in full


@fusions.register("distilled")
class Distilled(Merge):
    """A student of the clients' net imitates a fusion (`teacher`) on the public images.

    Their labels are not used. It minimises CE(softmax(student), t), t = softmax(β·ŝ(x)), ŝ the
    teacher's scores, over the mean of their spread over classes: rules speak on different scales.
    With `calibrated`, t_c is divided by the mean of t_c over all public images before, so that
    classes which the teacher favours everywhere do not swallow the others (logit adjustment).
    """

    teacher: dict[str, Any] = Field({"use": "classwise"}, description="the fusion to imitate")
    epochs: int = Field(30, ge=1, description="over the public images")
    lr: float = Field(0.05, gt=0, description="of SGD, falling as a cosine")
    batch: int = Field(64, ge=2, description="images per step")
    sharpness: float = Field(2.0, gt=0, description="β")
    calibrated: bool = Field(False, description="divide by how often the teacher says each class")

    @field_validator("teacher", mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        return {"use": value} if isinstance(value, str) else value

    def asked(self) -> Vote:
        return OutputEnsemble()

    def work(self, public: int) -> float:
        return float(public * self.epochs)

    def merge(self, scene: Scene) -> Iterator[Upload]:
        if not len(scene.public):
            raise AccordError("'distilled' needs public images, found none: set data.public.")
        briefing = self.briefing(scene, self.targets(scene))
        student = Training(scene.public, briefing, "student", Precision(scene.device))
        while not student.done:
            student.run_epoch(lambda share: scene.tell((student.epoch + share) / self.epochs))
        yield one_net("distilled", unprefixed(NET, student.upload().tensors), scene)

    def targets(self, scene: Scene) -> Tensor:
        """The teacher's probabilities of every public image."""
        files = scene.uploads
        if not isinstance(files, UploadFiles):
            raise TypeError("a teacher is made of upload files")
        combiner = combiner_of(voting(self.teacher), files)
        total = summed_votes(files, scene.public, combiner.vote, str(scene.device))
        return self.probabilities(combiner.decide(total))

    def probabilities(self, scores: Tensor) -> Tensor:
        spread = scores.std(dim=1).mean().clamp(min=1e-6)
        t = (self.sharpness * scores / spread).softmax(dim=1)
        if self.calibrated:
            share = t.mean(dim=0).clamp(min=CALIBRATED / t.shape[1])
            t = t / share
            t = t / t.sum(dim=1, keepdim=True)
        return t

    def briefing(self, scene: Scene, targets: Tensor) -> Briefing:
        """The student's: the clients' start, this rule's budget, the teacher's answers."""
        header = scene.briefing.header
        budget = Budget(epochs=self.epochs, batch=self.batch, lr=self.lr, schedule="cosine")
        training = {
            **{"views": 1, "batches": "shuffled", "anchors": None, "align": {}},
            **{"head": header.net.head, "objective": {"imitation": {}}},
            **{"single_class": (), "alignment_epochs": 0},
        }
        told = header.model_copy(
            update={"training": training, "budget": budget.model_dump(mode="json")}
        )
        net = {name: t for name, t in scene.briefing.tensors.items() if name.startswith(NET)}
        return Briefing(told, {**net, "targets": targets.to(torch.float32)})
