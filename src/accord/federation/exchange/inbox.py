"""The uploads that arrived as files, checked one by one before anything is fused."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from accord.checks import check_upload
from accord.checks.alike import digest_of_work, refuse_alike
from accord.core.errors import AccordError
from accord.core.names import listed, natural, shown
from accord.federation.membership import refuse_name
from accord.fusion.uploads import UploadFiles
from accord.messages import (
    Briefing,
    Memory,
    ServerState,
    State,
    Upload,
    UploadHeader,
    kind_of,
)

Tell = Callable[[str], None]
# Messages that lie beside uploads and are no uploads.
OTHERS = {kind.kind for kind in (Briefing, ServerState, State, Memory)}


@dataclass(frozen=True)
class Arrived:
    """One upload, and its file."""

    path: Path
    header: UploadHeader
    label_counts: tuple[int, ...]
    work: str | None  # a digest of the weights or sums

    @property
    def client(self) -> str:
        return self.header.client


@dataclass(frozen=True)
class Inbox:
    """The uploads that are fused, in the order of the clients' names."""

    briefing: Briefing
    arrived: tuple[Arrived, ...]
    left_out: tuple[str, ...] = ()

    @property
    def clients(self) -> list[str]:
        return [one.client for one in self.arrived]

    def refuse_other_counts(self, before: Mapping[str, Sequence[int]]) -> None:
        """Refuses clients that had other images in the round before; `before` has their counts."""
        for one in self.arrived:
            known = before.get(one.client)
            if known is not None and tuple(known) != one.label_counts:
                raise AccordError(
                    f"{one.path}: client {shown(one.client)} sent the label counts "
                    f"{list(known)} in the round before; found {list(one.label_counts)}. Ask it to "
                    f"answer with the same images, or leave it out: --without {one.path.name}"
                )

    def files(self) -> UploadFiles:
        return UploadFiles([one.path for one in self.arrived], self.briefing)

    def unseen_classes(self, before: Mapping[str, Sequence[int]]) -> list[str]:
        """The classes of which no client has an image; `before`: of clients of earlier rounds."""
        known = [*before.values(), *(one.label_counts for one in self.arrived)]
        totals = [sum(counts) for counts in zip(*known, strict=True)]
        named = zip(self.briefing.header.classes, totals, strict=True)
        return [name for name, total in named if not total]


def read_inbox(
    path: Path, briefing: Briefing, files: Sequence[Path], without: Sequence[str], tell: Tell
) -> Inbox:
    """The uploads among `files` that answer the briefing at `path`.

    A shell's `*.safetensors` also names the briefing and the server's own files: these are not
    uploads and are passed over. `without` names clients, or files, that are left out. Any other
    file that cannot be used raises an AccordError with its name.
    """
    arrived: dict[str, Arrived] = {}
    unused = set(without)
    for file in dict.fromkeys(file.absolute() for file in files):
        meant = {file.name, file.stem, str(file), *(w for w in without if _same(w, file))}
        if meant & set(without):
            unused -= meant
            continue
        kind = kind_of(file)
        if kind in OTHERS:
            if not _same(str(path), file):
                tell(f"{file.name} is a {kind} and not an upload: it is passed over")
            continue
        upload = _checked(file, briefing)
        name = upload.header.client
        if name in without:
            unused.discard(name)
            continue
        if name in arrived:
            raise AccordError(
                f"{file} and {arrived[name].path} are both uploads of client {shown(name)}, "
                f"which would count twice. Name one of them only, or leave one out: --without "
                f"{file.name}"
            )
        counts = tuple(upload.tensors["label_counts"].tolist())
        arrived[name] = Arrived(file, upload.header, counts, digest_of_work(upload, briefing))
    if unused:
        there = listed(sorted(arrived, key=natural)) or "none"
        raise AccordError(
            f"--without {shown(min(unused))}: no upload of this client, and no file of this name. "
            f"Clients: {there}."
        )
    if not arrived:
        raise AccordError(
            f"no upload that answers {path} was named. Name the files that the clients sent."
        )
    refuse_alike((name, one.work) for name, one in arrived.items())
    order = sorted(arrived, key=natural)  # sums are added in this order, as in a study
    return Inbox(briefing, tuple(arrived[name] for name in order), tuple(sorted(set(without))))


def _checked(file: Path, briefing: Briefing) -> Upload:
    advice = f"Ask its client to send it again, or leave it out: --without {file.name}"
    try:
        upload = Upload.load(file)
        check_upload(upload, briefing, str(file))
        refuse_name(upload.header.client, f"{file}: the client it names")
        last = briefing.header.first_epoch + briefing.header.budget.epochs
        if upload.header.epoch != last:
            raise AccordError(
                f"{file}: expected an upload after epoch {last}; found epoch {upload.header.epoch}."
            )
    except AccordError as error:
        raise AccordError(f"{error} {advice}") from None
    except OSError as error:
        raise AccordError(f"{file}: {error.strerror or error}. {advice}") from None
    return upload


def _same(name: str, file: Path) -> bool:
    return Path(name).absolute() == file
