"""Audits the uploads of a trial: every kind of evidence sees every upload, and clients are ranked.

Nobody is accused. Label skew makes honest clients look unusual too, and a client that knows these
kinds of evidence can hide from them.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accord.attacks.settings import AttackConfig
from accord.auditing.kinds import Case, kinds
from accord.auditing.sign import CLEAR, FEWEST, Sign
from accord.core.config import parse
from accord.core.errors import AccordError
from accord.core.parts import make_part
from accord.core.threads import one_thread
from accord.data.allocation import Allocation, open_allocation
from accord.data.allocation_file import AllocationFile
from accord.data.imageset import ImageSet
from accord.data.raw import Progress, Tell
from accord.data.schemes import make_scheme
from accord.data.settings import DataConfig, ShiftConfig
from accord.diagnosis.reading import fusions_at_end, own_fusion
from accord.diagnosis.remedies import fuse_with
from accord.fusion.base import Fusion, fusions
from accord.fusion.uploads import UploadFiles
from accord.messages import Briefing
from accord.report.evidence import ODD, Evidence, RunEvidence

REFUSED = 10.0  # the strength of an upload that is damaged or impossible
MOST_IMAGES = 1_000  # labelled images of the server that are used, at even distances


@dataclass(frozen=True)
class Audited:
    """The clients of one trial, the one that stands out most first."""

    run: str
    trial: str
    signs: dict[str, list[Sign]]  # client → its signs, the strongest first
    images: str  # the labelled images that were used; empty: none
    remarks: list[str]
    command: str | None  # fuses without the clients that stand out clearly
    closer: str  # shows this audit

    @property
    def clear(self) -> list[str]:
        """The clients that stand out clearly."""
        return [name for name in self.signs if self.strength(name) >= CLEAR]

    def strength(self, client: str) -> float:
        return max((sign.strength for sign in self.signs[client]), default=0.0)

    def to_json(self) -> dict[str, Any]:
        clients = [
            {
                "client": name,
                "strength": round(self.strength(name), 3),
                "clear": name in self.clear,
                "signs": [sign.to_json() for sign in signs],
            }
            for name, signs in self.signs.items()
        ]
        told = {"run": self.run, "trial": self.trial, "images": self.images}
        return {**told, "clients": clients, "remarks": self.remarks, "command": self.command}


def audit_runs(
    runs: Sequence[RunEvidence], *, quick: bool = False, tell: Tell = lambda _: None
) -> list[Audited]:
    """The trials of some runs that have clients and whose uploads are still there.

    A `quick` audit reads the uploads once and uses no images.
    """
    trials = [(run, trial) for run in runs for trial in run.trials]
    progress = Progress("looking at the uploads", sum(len(t.clients) for _, t in trials), tell)
    found = []
    with one_thread():  # the same figures on every machine, as in a worker
        for run, trial in trials:
            found.append(audit_trial(run, trial, progress, quick=quick))
    return [one for one in found if one is not None]


def audit_trial(
    run: RunEvidence, trial: Evidence, progress: Progress, *, quick: bool
) -> Audited | None:
    """The audit of one trial; None if it has no uploads of several clients."""
    folder = trial.folder.last_round
    paths = {name: folder.upload(name, 0, last=True) for name in trial.clients}
    paths = {name: path for name, path in paths.items() if path.exists()}
    if trial.pooled or len(paths) < 2 or not folder.briefing.exists():
        progress.step(len(trial.clients))
        return None
    labelled, part = (None, "") if quick else labelled_images(run, trial)
    case = Case(Briefing.load(folder.briefing), rule_of(trial), labelled, part)
    signs = ranked(case, paths, progress, quick=quick)
    progress.step(len(trial.clients) - len(paths))
    clear = [name for name, found in signs.items() if found and found[0].strength >= CLEAR]
    return Audited(
        run=run.label,
        trial=trial.id,
        signs=signs,
        images=f"{len(labelled):,} {part} images" if labelled is not None else "",
        remarks=_remarks(trial, labelled is not None or quick),
        command=_command(run, trial, clear),
        closer=shlex.join(["accord", "audit", str(run.record.path), "--trial", trial.id]),
    )


def ranked(
    case: Case, paths: Mapping[str, Path], progress: Progress, *, quick: bool
) -> dict[str, list[Sign]]:
    """Client → its signs. Every upload is read once; one that is refused is the clearest sign."""
    uploads = case.briefing.header.uploads
    asked = [
        kinds.get(name)(case)
        for name in kinds
        if kinds.get(name).of in (uploads, "both") and (kinds.get(name).quick or not quick)
    ]
    signs: dict[str, list[Sign]] = {name: [] for name in paths}
    for client, path in paths.items():
        try:
            upload = UploadFiles([path], case.briefing).load(0)
        except AccordError as error:
            signs[client].append(Sign(client, "refused", REFUSED, str(error)))
        else:
            case.accepted.append(path)
            for kind in asked:
                kind.see(upload)
        progress.step()
    for kind in asked if case.accepted else ():
        for sign in kind.judge():
            signs[sign.client].append(sign)
    for found in signs.values():
        found.sort(key=lambda sign: -sign.strength)
    order = sorted(signs, key=lambda name: -(signs[name][0].strength if signs[name] else 0.0))
    return {name: signs[name] for name in order}


def rule_of(trial: Evidence) -> Fusion | None:
    """The trial's own fusion, with its parameters."""
    own = own_fusion(trial)
    specs = {spec["as"]: spec for spec in trial.config.get("fusions", ())}
    if own is None or own[0] not in specs:
        return None
    spec = {key: value for key, value in specs[own[0]].items() if key != "as"}
    return make_part(fusions, spec, "fusion")


def labelled_images(run: RunEvidence, trial: Evidence) -> tuple[ImageSet | None, str]:
    """Validation images or, without any, public ones; never test images."""
    try:
        allocation = _allocation(run, trial)
    except ODD:
        return None, ""
    if allocation is None:
        return None, ""
    for part in ("validation", "public"):
        images = allocation.part(part)
        if len(images):
            return images.slice(0, len(images), -(-len(images) // MOST_IMAGES)), part
    return None, ""


def _allocation(run: RunEvidence, trial: Evidence) -> Allocation | None:
    """The allocation in the record that belongs to a trial; None if there is none."""
    config = trial.config
    wanted = (
        parse(DataConfig, config["data"], trial.id),
        make_scheme(config["partition"]),
        trial.seed,
        parse(ShiftConfig, config["shift"], trial.id),
        parse(AttackConfig, config.get("attack") or {}, trial.id),
    )
    for path in sorted(Path(run.record.path, "allocations").glob("*.json")):
        content = AllocationFile.model_validate_json(path.read_text(encoding="utf-8"))
        found = (content.data, content.scheme, content.seed, content.shift, content.attack)
        if found == wanted:
            return open_allocation(path)
    return None


def _command(run: RunEvidence, trial: Evidence, clear: Sequence[str]) -> str | None:
    """The command that fuses without the clients that stand out clearly."""
    own = own_fusion(trial)
    if not clear or own is None or own[0] not in fusions_at_end(trial):
        return None
    return fuse_with(run, [trial], own[0], without=clear)


def _remarks(trial: Evidence, with_images: bool) -> list[str]:
    found = []
    if len(trial.clients) < FEWEST:
        found.append(
            f"With {len(trial.clients)} clients nobody can say which one is unusual: most kinds of "
            f"evidence need {FEWEST}."
        )
    if not with_images:
        found.append(
            "There are no validation or public images, so that answers and leaving out were not "
            "examined: set data.validation, for example to 0.1."
        )
    attack = trial.config.get("attack") or {}
    if attack.get("name", "none") != "none":
        found.append(f"This trial simulates the attack {attack['name']}.")
    return found


def refuse_nothing(found: Sequence[Audited], runs: Sequence[RunEvidence]) -> None:
    if not found:
        names = ", ".join(run.label for run in runs)
        raise AccordError(
            f"{names}: no trial has the uploads of several clients, so there is nothing to audit. "
            "Run the study first, or name a run whose uploads were not deleted. A method of turns "
            "has one upload in each round, which cannot be compared with others."
        )
