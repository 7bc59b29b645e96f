"""Changes of the clients that are fused: some are left out, join later, or are removed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from accord.checks import check_upload
from accord.checks.alike import digest_of_work, refuse_alike
from accord.core.errors import AccordError, nearest
from accord.core.names import label_name, listed, shown, typed
from accord.federation.arrivals import same_images
from accord.federation.pooled_sums import total_stands
from accord.fusion.named import NamedFusion
from accord.fusion.uploads import UploadFiles
from accord.messages import Briefing, Upload

LONGEST_SUFFIX = 120  # maximal number of characters that list clients in the name of a row
LONGEST = 100  # maximal number of characters of a client's name, which is used in file names

if TYPE_CHECKING:
    from accord.federation.trial_run import TrialRun


@dataclass(frozen=True)
class Membership:
    """Changes of the clients that are fused; without any, all clients of a trial are fused."""

    without: tuple[str, ...] = ()  # clients that are left out of every fusion
    joined: tuple[Path, ...] = ()  # uploads of clients that are added to the sums
    removed: tuple[str, ...] = ()  # clients whose sums are subtracted

    @cached_property
    def added(self) -> dict[str, str]:
        """Client → digest of its upload, for the clients that joined."""
        return {Upload.load(path).header.client: _digest(path) for path in self.joined}


EVERYBODY = Membership()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def suffix(membership: Membership) -> str:
    """The end of a row's name, which lists the added and the left-out clients."""
    changes = {"with": tuple(membership.added), "without": membership.without + membership.removed}
    said = "".join(
        "-".join(["", how, *map(label_name, names)]) for how, names in changes.items() if names
    )
    if len(said) > LONGEST_SUFFIX:
        counts = "".join(f"-{how}-{len(names)}" for how, names in changes.items() if names)
        said = f"{counts}-clients-{hashlib.sha256(said.encode()).hexdigest()[:8]}"
    return said.replace("~", "_")  # a fusion's label is also the name of a folder


def check_names(run: TrialRun, membership: Membership) -> None:
    """Refuses names of clients that a trial does not have."""
    known = run.allocation.partition.names
    asked = {"--without": membership.without, "--remove": membership.removed}
    for option, names in asked.items():
        for name in names:
            if name not in known:
                raise AccordError(
                    f"{option}: {run.folder.id} has no client {name[:100]!r}"
                    f"{nearest(name, known) or '.'} Its clients are {listed(known)}. Choose trials "
                    "with --trial."
                )


def refuse_another(run: TrialRun, fusions: Sequence[NamedFusion], membership: Membership) -> None:
    """Refuses a name that the results have already for another rule or for other clients."""
    measured = {spec["as"]: spec for spec in run.folder.info()["config"]["fusions"]}
    gone = sorted((*membership.without, *membership.removed))
    checkpoints = run.folder.measures()["checkpoints"]
    last = checkpoints[-1]["fusions"] if checkpoints else {}
    for fusion in fusions:
        spec = fusion.to_json()
        old = measured.get(fusion.label, spec)
        names = [key for key in {*old, *spec} if old.get(key) != spec.get(key)]
        if fusion.label in last and (
            sorted(last[fusion.label]["without"]) != gone
            or last[fusion.label]["added"] != membership.added
        ):
            names.append("set of uploads")
        if names:
            raise AccordError(
                f"{run.folder.id} has a row {fusion.label!r} already, with another {names[0]}. "
                f"Give this one another name: --fusion '{{use: {fusion.use}, …, as: NAME}}'."
            )


def check_membership(run: TrialRun, membership: Membership) -> None:
    """Refuses to leave out all clients, to add a client twice, or to subtract a net."""
    if membership.without and run.trial.method.one_by_one:
        raise AccordError(
            f"--without: in {run.folder.id}, each client has trained the net of the one before, so "
            "nothing that a client has learnt can be left out. Choose other trials with --trial."
        )
    names, there = run.allocation.partition.names, {*run.rounds[-1].answered}
    left = {*membership.without, *membership.removed}
    if there <= {*membership.without} or (there <= left and not membership.joined):
        option = "--remove" if membership.removed else "--without"
        raise AccordError(f"{option} leaves no client of {run.folder.id}. Name fewer clients.")
    both = [shown(name) for name in membership.without if name in membership.removed]
    if both:
        raise AccordError(
            f"--without {both[0]} --remove {both[0]}: a client that is left out cannot be "
            "subtracted as well. Name each client once."
        )
    if (membership.joined or membership.removed) and run.trial.recipe.uploads == "nets":
        raise AccordError(
            f"--add and --remove need uploads that are sums; the clients of {run.folder.id} upload "
            "nets. Leave a client out with --without, or choose trials with --trial."
        )
    briefing = Briefing.load(run.rounds[-1].folder.briefing)
    # A client that was removed may be added again, with a corrected upload.
    known = {name for name in names if name not in left}
    for path in membership.joined:
        upload = Upload.load(path)
        try:
            check_upload(upload, briefing, str(path))
        except AccordError as error:
            raise AccordError(
                f"--add {error} If the upload belongs to another trial of this record, name that "
                "trial with --trial."
            ) from None
        client = upload.header.client
        refuse_name(client, f"--add {path}: the client it names")
        if client in known:
            raise AccordError(
                f"--add {path}: client {shown(client)} is one of {run.folder.id} already, or was "
                "added before, and would count twice. Remove this option, or remove that "
                "client first."
            )
        known.add(client)
    if membership.joined:
        _refuse_copies(run, membership, briefing)


def _refuse_copies(run: TrialRun, membership: Membership, briefing: Briefing) -> None:
    """Refuses an added upload that holds the sums of another client."""
    left = {*membership.without, *membership.removed}
    stayed = [name for name in run.rounds[-1].answered if name not in left]
    paths = [run.measuring.scope.final.upload(name) for name in stayed]
    uploads = [Upload.load(path) for path in (*filter(Path.exists, paths), *membership.joined)]
    refuse_alike((one.header.client, digest_of_work(one, briefing)) for one in uploads)


def refuse_name(name: str, what: str) -> None:
    """Refuses a name that looks like another one, because one client could then count twice."""
    if not name or not name.isprintable() or name != name.strip() or len(name) > LONGEST:
        raise AccordError(
            f"{what}: expected a name of up to {LONGEST} characters, without spaces around it; "
            f"found {name[:100]!r}."
        )


def tell_lost(run: TrialRun, membership: Membership, tell: Callable[[str], None]) -> None:
    """Warns about classes without any images, which the fused model can no longer predict."""
    left = {*membership.without, *membership.removed}
    counts = run.allocation.partition.label_counts
    stayed = counts[[name not in left for name in run.allocation.partition.names]].sum(axis=0)
    for path in membership.joined:
        stayed = stayed + Upload.load(path).tensors["label_counts"].numpy()
    lost = [
        name
        for name, before, after in zip(
            run.allocation.classes, counts.sum(axis=0), stayed, strict=True
        )
        if before and not after
    ]
    if lost:
        tell(f"{run.folder.id}: warning: no remaining client has images of {', '.join(lost)}")


def tell_learnt(run: TrialRun, membership: Membership, tell: Callable[[str], None]) -> None:
    """Warns if a client that leaves stays in the result of the recipe below."""
    gone = [shown(name) for name in (*membership.without, *membership.removed)]
    if gone and run.before is not None:
        tell(
            f"{run.folder.id}: warning: {', '.join(gone)} also took part in "
            f"{run.before.trial.recipe.name}, on whose result these features stand. To forget this "
            "as well, run the study again without this client's images"
        )


def check_uploads(run: TrialRun, membership: Membership) -> None:
    """Refuses uploads that are missing, unusable or of other images, before anything is fused."""
    briefing, partition = Briefing.load(run.rounds[-1].folder.briefing), run.allocation.partition
    paths = {
        client: run.measuring.scope.final.upload(client)
        for client in run.rounds[-1].answered
        if client not in membership.without
    }
    for client, path in paths.items():
        if not path.exists():
            raise AccordError(
                f"{path}: expected the upload of client {shown(client)}, found no such file. "
                f"Restore it, or leave that client out with --without {typed(client)}."
            )
    files = UploadFiles(list(paths.values()), briefing)
    of_total = (membership.joined or membership.removed) and not membership.without
    if of_total and total_stands(files, run.folder.total):
        return  # the stored total is used instead of the uploads
    works = []
    for index, (client, path) in enumerate(paths.items()):
        called = shown(client)
        advice = (
            f"Put the right file there, or leave that client out with --without {typed(client)}."
        )
        try:
            upload = files.load(index)
        except AccordError as error:
            raise AccordError(f"{error} {advice}") from None
        counts = partition.label_counts[partition.names.index(client)].tolist()
        if any(counts) and upload.tensors["label_counts"].tolist() != counts:
            raise AccordError(
                f"{path}: expected the upload of client {called}, with label counts {counts}; "
                f"found other label counts. {advice}"
            )
        works.append((client, digest_of_work(upload, briefing)))
    refuse_alike(works, lambda one, two: same_images(run, one, two))
