"""Several rounds of averaging that start at the server's teacher instead of at random weights."""

from __future__ import annotations

from pydantic import Field

from accord.client.studied import public_images
from accord.core.errors import AccordError
from accord.data.imageset import ImageSet
from accord.fusion.base import Scene
from accord.messages import NET, PUBLIC, TEACHER, Briefing, ServerState, prefixed, unprefixed
from accord.methods.averaging import Averaging
from accord.methods.base import clients_ask_teacher, methods
from accord.nets.inference import predicted_labels
from accord.nets.net import loaded_net


@methods.register("from-teacher")
class FromTeacher(Averaging):
    """W_1 = the teacher's weights, W_{r+1} = merge(W_{r,1}, …, W_{r,K}).

    The server has trained the teacher on its public images, or has read it from a saved model. The
    teacher is a net like the clients'.
    """

    relabel: bool = Field(
        False,
        description="after every round, the net that came out labels the public images anew, for "
        "the clients' training in the next round",
    )

    @property
    def needs_teacher(self) -> bool:
        return True

    def labels_anew(self, number: int) -> bool:  # noqa: ARG002 - other methods skip rounds
        """Whether the public images are labelled anew after round `number`."""
        return self.relabel

    def advance(self, state: ServerState, scene: Scene) -> ServerState:
        following = super().advance(state, scene)
        if not self.labels_anew(scene.briefing.header.round):
            return following
        header, device = scene.briefing.header, scene.device
        weights = unprefixed(NET, following.tensors)
        net = loaded_net(header.net, header.channels, len(header.classes), weights).to(device)
        labels = predicted_labels(net, known_images(state, scene), header, device)
        changed = (labels != state.tensors[PUBLIC + "labels"]).double().mean()
        told = ServerState(following.header, {**following.tensors, PUBLIC + "labels": labels})
        return told.with_own({"told": {"labels_changed": float(changed)}})

    def start(self, opening: Briefing) -> ServerState:
        header, teacher = opening.header, opening.header.teacher
        if teacher is None:
            raise ValueError("the opening has no teacher")
        if teacher.net != header.net:
            raise AccordError(
                f"the method starts at the teacher's weights: expected a teacher with the clients' "
                f"net, {header.net.backbone} with {header.net.norm} norm and a "
                f"{header.net.head} head; found {teacher.net.backbone} with {teacher.net.norm} "
                f"norm and a {teacher.net.head} head. Make net.backbone and teacher.backbone alike."
            )
        if self.relabel and not opening.public_images:
            raise AccordError(
                "method.relabel: there are no labels to change, because the clients do not train "
                "on the public images. Set with_public: true, or remove relabel."
            )
        weights = unprefixed(TEACHER, opening.tensors)
        tensors = {**opening.tensors, **prefixed(NET, weights)}
        told = header.model_copy(update={"mean": teacher.mean, "std": teacher.std})
        if not clients_ask_teacher(header):
            told = told.model_copy(update={"teacher": None})
            tensors = {name: t for name, t in tensors.items() if not name.startswith(TEACHER)}
        return super().start(Briefing(told, tensors))


def known_images(state: ServerState, scene: Scene) -> ImageSet:
    """The public images that clients train on, if they do so, else those of the server."""
    found = public_images(state.briefing())
    return scene.public if found is None else found
