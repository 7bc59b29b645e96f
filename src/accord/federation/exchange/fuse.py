"""Fuses uploads that arrived as files: to a model, or to the briefing of the next round."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from accord.core.errors import AccordError, ClientError
from accord.core.metrics import Metrics, Tally
from accord.core.names import natural, shown
from accord.core.parts import make_part
from accord.core.randomness import numpy_generator
from accord.core.threads import one_thread
from accord.data.imageset import ImageSet
from accord.data.raw import Progress
from accord.federation.answering import labelled_images
from accord.federation.exchange.asked import asked_fusions, require, without_validation
from accord.federation.exchange.brief import Written, refuse_to_brief, server_file, write_round
from accord.federation.exchange.inbox import Inbox, read_inbox
from accord.federation.exchange.kept import Answers, Kept, read_kept
from accord.federation.exchange.turn import check_turn
from accord.federation.measuring.scope import after_advance
from accord.federation.modelling import model_of
from accord.federation.pooled_sums import total_of
from accord.fusion.base import Merge, Scene
from accord.fusion.evaluate import run_net
from accord.fusion.named import NamedFusion
from accord.messages import Briefing, ServerState
from accord.messages.briefing import Origin
from accord.messages.saved_model import refuse_to_save
from accord.methods import Method, methods
from accord.methods.in_turn import InTurn
from accord.model.predictor import Predictor
from accord.study.syntax import Spec

Tell = Callable[[str], None]
PROBES = 4  # images of noise on which every net must give finite answers


@dataclass(frozen=True)
class Fused:
    """The result of one exchange of files."""

    inbox: Inbox
    metrics: dict[str, Metrics]  # fusion → its metrics on the test images
    tested: int  # number of test images
    trained: tuple[str, ...]  # the clients that the result has learnt from
    following: Written | None = None  # the files of the next round


def fuse_files(
    path: Path,
    uploads: Sequence[Path],
    asked: Sequence[str | Spec],
    *,
    without: Sequence[str] = (),
    save: Path | None = None,
    test: Path | None = None,
    public: Path | None = None,
    validation: Path | None = None,
    following: Path | None = None,
    clients: int | None = None,
    tell: Tell = lambda _: None,
) -> Fused:
    """Fuses the uploads that answer the briefing at `path`.

    `asked` are fusions, by default those of the recipe; the first one is saved. `test` are labelled
    images to measure on, `public` are labelled images of the server that a fusion or a method may
    use, and `validation` others on which nobody has trained. `following` is the file of the next
    round's briefing. `clients` is the number of all clients of the federation, if more than have
    answered.
    """
    briefing = Briefing.load(path)
    work = _Work(path, briefing, tell)
    fusions = asked_fusions(path, briefing.header, asked)
    if validation is None and not asked:
        fusions = without_validation(fusions, tell)
    if save is not None and len(fusions) > 1 and asked:
        tell(f"the model of {fusions[0].label!r}, the first fusion, is saved")
    work.refuse_mistakes(save, test, following)
    inbox = read_inbox(path, briefing, uploads, without, tell)
    kept = read_kept(path)
    before = Answers() if kept is None else kept.answers
    inbox.refuse_other_counts(before.label_counts)
    trained = work.checked_turn(inbox, before)
    lost = inbox.unseen_classes(before.label_counts)
    if lost and not work.goes_on(following):
        tell(f"no client has images of {', '.join(lost)}: the model cannot recognise them")
    own = work.images(public, "--public") or _none(briefing)
    held = work.images(validation, "--validation") or _none(briefing)
    measured = work.images(test, "--test")
    if measured is not None and len(held) and np.array_equal(held.images, measured.images):
        raise AccordError(
            f"--validation {validation} and --test {test} are the same images, so that the figures "
            "would be too good. Use different images."
        )
    with one_thread():
        work.refuse_useless(inbox)
        scene = replace(work.scene(inbox, own, clients), validation=held)
        require(fusions, briefing.header, len(own), len(held))
        needs_state = following is not None or any(after_advance(f.rule) for f in fusions)
        state = work.advanced(scene, kept) if needs_state else None
        metrics = {}
        for fusion in fusions:
            with work.model(fusion, inbox, trained, replace(scene, after=state)) as model:
                if measured is not None:
                    metrics[fusion.label] = _metrics(model, measured)
                if save is not None and fusion is fusions[0]:
                    model.save(save)
    written = write_round(state, following) if following is not None and state else None
    return Fused(inbox, metrics, len(measured) if measured is not None else 0, trained, written)


@dataclass(frozen=True)
class _Work:
    """The steps of a fusion of files."""

    path: Path
    briefing: Briefing
    tell: Tell

    # --- what was asked ------------------------------------------------------------------------

    def refuse_mistakes(self, save: Path | None, test: Path | None, following: Path | None) -> None:
        """Raises AccordError for mistakes that can be found before any upload is read."""
        if save is None and test is None and following is None:
            raise AccordError(
                "nothing to do: say where the model is saved (--save MODEL), on which images it is "
                "measured (--test IMAGES), or where the next briefing is written (--next FILE)."
            )
        if save is not None:
            refuse_to_save(save)
        if following is None:
            return
        header = self.briefing.header
        if header.round >= header.rounds:
            raise AccordError(
                f"--next: {self.path} is the briefing of round {header.round} of {header.rounds}, "
                "the last one. Save the model with --save, or begin again with "
                "`accord brief … --from MODEL`."
            )
        if following.absolute() in (self.path.absolute(), server_file(self.path).absolute()):
            raise AccordError(f"--next {following} is a file of this round. Choose another name.")
        refuse_to_brief(following, "--next")

    def images(self, path: Path | None, option: str) -> ImageSet | None:
        """Labelled images of the server, in the format of the briefing."""
        if path is None:
            return None
        try:
            return labelled_images(path, self.briefing.header, self.tell, part=option[2:])
        except AccordError as error:
            raise AccordError(f"{option} {error}") from None

    # --- the work ------------------------------------------------------------------------------

    def refuse_useless(self, inbox: Inbox) -> None:
        """Refuses nets whose answers are NaN or infinite, although all their weights are finite."""
        if self.briefing.header.uploads != "nets":
            return
        header, files = self.briefing.header, inbox.files()
        shape = (PROBES, header.height, header.width, header.channels)
        pixels = numpy_generator(0, "probe").integers(256, size=shape, dtype=np.uint8)
        images = ImageSet(pixels, np.arange(PROBES), np.zeros(PROBES, np.int64))
        for index, one in enumerate(inbox.arrived):
            found = run_net(files, index, images, "cpu")
            if not all(bool(t.isfinite().all()) for t in (found.features, found.logits)):
                raise AccordError(
                    f"{one.path}: its net gives NaN or infinity for images, so it cannot be used. "
                    f"Ask client {shown(one.client)} to train again, or leave it out: --without "
                    f"{one.path.name}"
                )

    def scene(self, inbox: Inbox, public: ImageSet, clients: int | None) -> Scene:
        files = inbox.files()
        sums = self.briefing.header.uploads == "sums"
        return Scene(
            uploads=files,
            briefing=self.briefing,
            public=public,
            device=torch.device("cpu"),
            tell=Progress("fusing", 1_000, self.tell).reach,
            total=total_of(files, None) if sums else None,
            clients=max(clients or 0, len(inbox.arrived)),
        )

    def advanced(self, scene: Scene, kept: Kept | None) -> ServerState:
        """The state after this round."""
        origin = self.briefing.header.origin
        if origin is None or kept is None:
            raise AccordError(
                f"expected the server's own file of this round at {server_file(self.path)}, which "
                "`accord brief` or `accord fuse --next` wrote beside the briefing; found none. Put "
                "it there."
            )
        kept.refuse_other(self.briefing, self.path)
        method = self.method(origin)
        method.require(self.briefing.header.net.norm, len(scene.public))
        counts = {s.header.client: s.label_counts.tolist() for s in scene.uploads.summaries()}
        answers = kept.answers.and_now(counts)
        return method.advance(kept.state, scene).with_own(answers.model_dump(mode="json"))

    def method(self, origin: Origin) -> Method:
        found: Method = make_part(methods, origin.method, f"{self.path}: method")
        return found

    def goes_on(self, following: Path | None) -> bool:
        """Whether clients that have not answered yet will train the net, as in a turn."""
        origin = self.briefing.header.origin
        return following is not None and origin is not None and self.method(origin).one_by_one

    def checked_turn(self, inbox: Inbox, before: Answers) -> tuple[str, ...]:
        """The clients that the result has learnt from: with turns, those of all rounds so far."""
        origin = self.briefing.header.origin
        method = None if origin is None else self.method(origin)
        if not isinstance(method, InTurn):
            return tuple(inbox.clients)
        check_turn(self.path, method, inbox.clients, before.answered, self.tell)
        everybody = {name for names in (*before.answered, inbox.clients) for name in names}
        return tuple(sorted(everybody, key=natural))

    @contextmanager
    def model(
        self, fusion: NamedFusion, inbox: Inbox, trained: Sequence[str], scene: Scene
    ) -> Iterator[Predictor]:
        """The model of a fusion; the nets that it merges are kept until the end of the block."""
        folder = Path(tempfile.mkdtemp(prefix="accord-"))
        try:
            nets = [one.path for one in inbox.arrived]
            if isinstance(fusion.rule, Merge):
                nets = []
                for index, upload in enumerate(fusion.rule.merge(scene)):
                    nets.append(folder / f"{index}.safetensors")
                    upload.save(nets[-1])
            origin = {
                "briefing": self.briefing.digest,
                "round": self.briefing.header.round,
                "clients": list(trained),
            }
            yield model_of(fusion, nets, self.briefing, origin)
        except ClientError as error:
            raise AccordError(f"fusion {fusion.label!r}: {error}") from None
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _metrics(model: Predictor, images: ImageSet) -> Metrics:
    labels, scores = torch.from_numpy(images.labels), model.scores(images)
    if not bool(scores.isfinite().all()):
        raise ClientError("its model gives NaN or infinity for test images.")
    return Tally.of(scores, labels, len(model.header.classes)).metrics()


def _none(briefing: Briefing) -> ImageSet:
    header = briefing.header
    images = np.zeros((0, header.height, header.width, header.channels), np.uint8)
    return ImageSet(images, np.zeros(0, np.int64), np.zeros(0, np.int64))
