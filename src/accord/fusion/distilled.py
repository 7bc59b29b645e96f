"""Distillation into one net: a student learns from the fused clients on the server's images."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, Self

import torch
from pydantic import Field, field_validator, model_validator
from torch import Tensor
from torch.nn import functional as F

from accord.client.base import Precision
from accord.client.training import Training
from accord.core.budget import MOST_BATCH, MOST_EPOCHS, Budget
from accord.core.errors import AccordError
from accord.core.parts import make_part
from accord.core.randomness import torch_generator
from accord.data.imageset import ImageSet
from accord.data.unlabelled import image_files, picture, read_images
from accord.fusion.average import Average, one_net
from accord.fusion.base import (
    Merge,
    Outputs,
    ReferenceRule,
    Scene,
    Uploads,
    Vote,
    client_weights,
    fusions,
)
from accord.fusion.evaluate import combiner_of, merged_files, summed_votes, voting
from accord.fusion.outputs import OutputEnsemble
from accord.messages import NET, Briefing, Message, TrainingSpec, Upload, prefixed
from accord.nets.net import fresh_net

REHEARSED = 3  # epochs of a rehearsal; the teacher's answers are computed once for all epochs
RARE = 0.5  # the mean probability of a class counts as at least this share of 1/C


@fusions.register("distilled")
class Distilled(Merge):
    """A student with the study's net imitates a fusion (`teacher`) on images without labels.

    The student starts at the mean of the clients' weights. If clients upload sums (the closed form,
    `teacher: ridge`), it starts at initial weights. It minimises
    CE(softmax(student), t) + γ(1 − cos(f, t_f)). The target is t = softmax(β·ŝ(x)), where ŝ are the
    teacher's scores divided by their mean standard deviation over classes, because rules have
    different scales. t_f is the clients' fused feature norm(Σ_k (n_k/n) z_k). With `calibrated`,
    t_c is divided by the mean of t_c over all these images, so that the student does not learn a
    teacher's preference for some classes (logit adjustment, FEDIC).
    """

    teacher: dict[str, Any] = Field({"use": "classwise"}, description="the fusion to imitate")
    images: str | None = Field(
        None, description="folder of images that replace the study's public images"
    )
    start: Literal["average", "fresh"] | None = Field(
        None,
        description="initial weights: the mean of the clients' weights, or fresh ones; null means "
        "the mean if clients upload nets",
    )
    epochs: int = Field(30, ge=1, le=MOST_EPOCHS, description="training epochs over these images")
    lr: float = Field(0.05, gt=0, description="learning rate of SGD, which falls as a cosine")
    batch: int = Field(64, ge=2, le=MOST_BATCH, description="number of images per step")
    sharpness: float = Field(4.0, gt=0, description="β, the factor of the teacher's scores")
    features: float = Field(
        0.0, ge=0, description="γ, the weight of imitating the clients' fused features"
    )
    calibrated: bool = Field(
        False, description="divide the targets by the teacher's mean probability of each class"
    )

    @field_validator("teacher", mode="before")
    @classmethod
    def _a_rule(cls, value: Any) -> Any:
        spec = {"use": value} if isinstance(value, str) else value
        rule = make_part(fusions, spec, "teacher")
        after = isinstance(rule, Merge) and rule.after_advance
        if isinstance(rule, ReferenceRule | Distilled) or after:
            raise ValueError(
                "expected a fusion of the uploads to imitate, not a reference, another student or "
                "the server's own net"
            )
        return spec

    @model_validator(mode="after")
    def _nets_to_start_at(self) -> Self:
        """Refuses settings that need clients' nets: sums have no weights and other features."""
        if self.of == "sums" and (self.start == "average" or self.features):
            key = "start: average" if self.start == "average" else "features"
            raise ValueError(
                f"clients of a closed form have no nets: `{key}` cannot be used. Remove it"
            )
        return self

    @property
    def of(self) -> Literal["nets", "sums"]:
        return make_part(fusions, self.teacher, "teacher").of

    def described(self, briefing: Briefing) -> Briefing:
        if self.of == "nets":
            return briefing
        header = briefing.header
        net = header.net.model_copy(update={"map": None})
        fresh = fresh_net(
            net, header.channels, len(header.classes), torch_generator(header.seed, "net")
        )
        told = header.model_copy(update={"net": net})
        return Briefing(told, prefixed(NET, fresh.state_dict()))

    def require(self, norm: str, public: int) -> None:
        if self.images is not None:
            for file in image_files([Path(self.images)]):
                picture(file)  # raises an error before training if the file cannot be read
        elif not public:
            raise AccordError(
                "'distilled' needs images to learn from, found none: set data.public, for example "
                "to 0.1, or name a folder with `images`."
            )
        make_part(fusions, self.teacher, "teacher").require(norm, public)

    def asked(self) -> Vote:
        return OutputEnsemble()

    def work(self, public: int) -> float:
        images = public if self.images is None else len(image_files([Path(self.images)]))
        return float(images * self.epochs)

    def shortened(self) -> Self:
        return self.model_copy(update={"epochs": min(self.epochs, REHEARSED)})

    def merge(self, scene: Scene) -> Iterator[Upload]:
        header = scene.briefing.header
        self.require(header.net.norm, len(scene.public))
        images = scene.public
        if self.images is not None:
            images = read_images(image_files([Path(self.images)]), header)
        with teaching_nets(self.teacher, scene) as teacher:
            lesson = self.lesson(teacher, images, scene.device)
        briefing = self.briefing(scene, lesson)
        name = "student" if header.round == 1 else f"student-{header.round}"
        student = Training(images, briefing, name, Precision(scene.device))
        while not student.done:
            student.run_epoch(lambda share: scene.tell(student.share_done(share)))
        weights = {name: tensor.cpu() for name, tensor in student.net.state_dict().items()}
        yield one_net("distilled", weights, scene)

    def lesson(self, teacher: Uploads, images: ImageSet, device: torch.device) -> dict[str, Tensor]:
        """The teacher's probabilities for every image and, if needed, its features."""
        combiner = combiner_of(voting(self.teacher), teacher)
        weights = client_weights(teacher.summaries(), "count").float()

        def both(client: int, outputs: Outputs) -> Tensor:
            seen = weights[client] * F.normalize(outputs.features, dim=1)
            return torch.cat([seen, combiner.vote(client, outputs)], dim=1)

        total = summed_votes(teacher, images, both, str(device))
        width = teacher.summaries()[0].prototypes.shape[1]
        lesson = {"targets": self.probabilities(combiner.decide(total[:, width:]))}
        if self.features:
            lesson["target_features"] = total[:, :width].contiguous()
        return lesson

    def probabilities(self, scores: Tensor) -> Tensor:
        """The targets t of every image."""
        spread = scores.std(dim=1).mean().clamp(min=1e-6)
        t = (self.sharpness * scores / spread).softmax(dim=1)
        if self.calibrated:
            t = t / t.mean(dim=0).clamp(min=RARE / t.shape[1])
            t = t / t.sum(dim=1, keepdim=True)
        return t

    def briefing(self, scene: Scene, lesson: dict[str, Tensor]) -> Briefing:
        """The student's briefing: its initial weights, its budget and the teacher's outputs."""
        plain = self.described(scene.briefing)
        header = plain.header
        budget = Budget(epochs=self.epochs, batch=self.batch, lr=self.lr, schedule="cosine")
        terms: dict[str, Any] = {"imitation": {}}
        if self.features:
            terms["feature-imitation"] = {"weight": self.features}
        training = TrainingSpec(head=header.net.head, objective=terms)
        alone = {"training": training, "budget": budget, "round": 1, "rounds": 1}
        told = header.model_copy(update=alone)
        first: Message = plain
        if self.of == "nets" and self.start != "fresh":
            first = next(Average().merge(scene))
        net = {name: t for name, t in first.tensors.items() if name.startswith(NET)}
        return Briefing(told, {**net, **{name: t.float() for name, t in lesson.items()}})


@contextmanager
def teaching_nets(teacher: dict[str, Any], scene: Scene) -> Iterator[Uploads]:
    """The nets that a teacher uses: the clients' own nets, or those that it merges from them."""
    rule = make_part(fusions, teacher, "teacher")
    if not isinstance(rule, Merge):
        yield scene.uploads
        return
    with TemporaryDirectory(prefix="accord-teacher-") as folder:
        paths = []
        for index, upload in enumerate(rule.merge(scene)):
            paths.append(Path(folder) / f"net-{index}.safetensors")
            upload.save(paths[-1])
        yield merged_files(teacher, paths, scene.briefing)
