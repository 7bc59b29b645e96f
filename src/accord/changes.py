"""Who is fused, other than all clients of a trial: left out, come later, or gone."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from accord.errors import AccordError
from accord.messages import Briefing, Upload
from accord.spelling import Spec
from accord.totals import total_stands
from accord.uploads import UploadFiles

LONGEST = 100  # characters of a client's name, which stands in names of files

if TYPE_CHECKING:
    from accord.engines.trialrun import TrialRun


@dataclass(frozen=True)
class Changes:
    """Who is fused, other than all clients of a trial."""

    without: tuple[str, ...] = ()  # clients that are left out of every fusion
    come: tuple[Path, ...] = ()  # uploads of clients that are added to the sums
    gone: tuple[str, ...] = ()  # clients whose sums are subtracted

    @cached_property
    def added(self) -> dict[str, str]:
        """Client → digest of its upload, of those who came."""
        return {Upload.load(path).header.client: _digest(path) for path in self.come}


EVERYBODY = Changes()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def suffix(changes: Changes) -> str:
    """What the name of a row tells of who was fused."""
    gone = (*changes.without, *changes.gone)
    said = f"-with-{'-'.join(changes.added)}" if changes.come else ""
    said += f"-without-{'-'.join(gone)}" if gone else ""
    return re.sub(r"[^A-Za-z0-9._-]", "_", said)  # it becomes the name of a file


def resolved(run: TrialRun, changes: Changes) -> Changes:
    """Clients by the names they have in files; people know them by their column's value."""
    known = {called: name for name, called in run.deal.partition.known_as.items()}

    def found(names: tuple[str, ...], option: str) -> tuple[str, ...]:
        unknown = [name for name in names if name not in known]
        if unknown:
            raise AccordError(
                f"{option}: {run.folder.id} has no client {unknown[0]!r}; found "
                f"{', '.join(known)}. Choose trials with --trial."
            )
        return tuple(known[name] for name in names)

    without = found(changes.without, "--without")
    return Changes(without, changes.come, found(changes.gone, "--remove"))


def refuse_another(run: TrialRun, specs: Sequence[Spec], changes: Changes) -> None:
    """A name in the results means one rule, of the same clients."""
    measured = {spec["as"]: spec for spec in run.folder.info()["config"]["fusions"]}
    known_as = run.deal.partition.known_as
    gone = sorted(known_as[name] for name in (*changes.without, *changes.gone))
    checkpoints = run.folder.measures()["checkpoints"]
    last = checkpoints[-1]["fusions"] if checkpoints else {}
    for spec in specs:
        old = measured.get(spec["as"], spec)
        names = [key for key in {*old, *spec} if old.get(key) != spec.get(key)]
        if spec["as"] in last and (
            sorted(last[spec["as"]]["without"]) != gone
            or last[spec["as"]]["added"] != changes.added
        ):
            names.append("set of uploads")
        if names:
            raise AccordError(
                f"{run.folder.id} has a row {spec['as']!r} already, with another {names[0]}. Give "
                f"this one another name: --fusion '{{use: {spec['use']}, …, as: NAME}}'."
            )


def check_changes(run: TrialRun, changes: Changes) -> None:
    """Refuses to leave out everybody, to add anybody twice, and to subtract what is no sum."""
    known_as = run.deal.partition.known_as
    left_out, left = len(changes.without), {*changes.without, *changes.gone}
    if left_out == len(known_as) or (len(left) == len(known_as) and not changes.come):
        option = "--remove" if changes.gone else "--without"
        raise AccordError(f"{option} leaves no client of {run.folder.id}.")
    both = sorted(known_as[name] for name in {*changes.without} & {*changes.gone})
    if both:
        raise AccordError(
            f"--without {both[0]} --remove {both[0]}: who is left out is in no sum to be "
            "subtracted from. Name each client once."
        )
    if (changes.come or changes.gone) and run.trial.recipe.map is None:
        raise AccordError(
            f"--add and --remove need uploads that are sums; the clients of {run.folder.id} upload "
            "nets. Leave one out with --without, or choose trials with --trial."
        )
    briefing = Briefing.load(run.folder.briefing)
    # Who went may come again, with a corrected upload.
    known = {called for name, called in known_as.items() if name not in left}
    for path in changes.come:
        upload = Upload.load(path)
        try:
            upload.check(briefing, str(path))
        except AccordError as error:
            raise AccordError(
                f"--add {error} If it belongs to another trial of this record, name that one with "
                "--trial."
            ) from None
        client = upload.header.client
        refuse_name(client, f"--add {path}: the client it names")
        if client in known:
            raise AccordError(
                f"--add {path}: client {client} is one of {run.folder.id} already, or was named "
                "before, and would count twice."
            )
        known.add(client)


def refuse_name(name: str, what: str) -> None:
    """Names of newcomers: two that look alike would count one client twice."""
    if not name or not name.isprintable() or name != name.strip() or len(name) > LONGEST:
        raise AccordError(
            f"{what}: expected a name of up to {LONGEST} characters, without spaces around it; "
            f"found {name[:LONGEST]!r}."
        )


def tell_lost(run: TrialRun, changes: Changes, tell: Callable[[str], None]) -> None:
    """A class whose last images leave with a client is never answered again."""
    left = {*changes.without, *changes.gone}
    counts = run.deal.partition.label_counts
    stayed = counts[[name not in left for name in run.deal.partition.names]].sum(axis=0)
    for path in changes.come:
        stayed = stayed + Upload.load(path).tensors["label_counts"].numpy()
    lost = [
        name
        for name, before, after in zip(run.deal.classes, counts.sum(axis=0), stayed, strict=True)
        if before and not after
    ]
    if lost:
        tell(f"{run.folder.id}: nobody is left with images of {', '.join(lost)}")


def check_uploads(run: TrialRun, changes: Changes) -> None:
    """An upload that is gone, unusable or of other images is told before anything is fused."""
    briefing, partition = Briefing.load(run.folder.briefing), run.deal.partition
    paths = {
        client: run.measuring.upload(client, run.epochs[-1])
        for client in run.clients
        if client not in changes.without
    }
    for client, path in paths.items():
        if not path.exists():
            called = partition.known_as[client]
            raise AccordError(
                f"{path}: expected the upload of client {called}, found no such file. Put it back, "
                f"or leave that client out with --without {called}."
            )
    files = UploadFiles(list(paths.values()), briefing)
    of_total = (changes.come or changes.gone) and not changes.without
    if of_total and total_stands(files, run.folder.total):
        return  # the kept total speaks for them all
    for index, (client, path) in enumerate(paths.items()):
        called = partition.known_as[client]
        advice = f"Put the right file there, or leave that client out with --without {called}."
        try:
            upload = files.load(index)
        except AccordError as error:
            raise AccordError(f"{error} {advice}") from None
        counts = partition.label_counts[partition.names.index(client)].tolist()
        if upload.tensors["label_counts"].tolist() != counts:
            raise AccordError(
                f"{path}: expected the upload of client {called}, with label counts {counts}; "
                f"found others. {advice}"
            )
