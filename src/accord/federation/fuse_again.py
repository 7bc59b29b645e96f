"""Measures further fusions on the uploads of a finished run, without any training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from accord.core.errors import AccordError
from accord.core.names import chosen
from accord.core.yamls import yaml_of
from accord.engines.base import Engine
from accord.federation.execute import Watcher
from accord.federation.measuring.scope import after_advance
from accord.federation.membership import (
    EVERYBODY,
    Membership,
    check_membership,
    check_names,
    check_uploads,
    refuse_another,
    suffix,
    tell_learnt,
    tell_lost,
)
from accord.federation.modelling import model_of
from accord.federation.plan import Plan
from accord.federation.run import execute_runs
from accord.federation.tasks import Task
from accord.federation.trial_run import TrialRun
from accord.fusion.base import ReferenceRule
from accord.fusion.named import NamedFusion
from accord.messages import Briefing
from accord.messages.saved_model import refuse_to_save
from accord.model.predictor import Predictor
from accord.record.record import Record
from accord.study.paths import absolute_images
from accord.study.study import Study, check_study
from accord.study.syntax import Spec


def fuse_again(
    record: Record,
    asked: Sequence[str | Spec],
    *,
    trial: str | None,
    without: Sequence[str],
    add: Sequence[Path | str],
    remove: Sequence[str],
    save: Path | None,
    data_root: Path | None,
    engine: Engine[Task],
    watcher: Watcher,
) -> None:
    """Measures further fusions of a run's uploads and adds their rows; see `accord.fuse`."""
    rules = [_read(entry) for entry in asked]
    if not rules:
        raise AccordError("no fusion was named. Name one with --fusion, e.g. --fusion classwise.")
    joined = tuple(Path(path).absolute() for path in add)
    membership = Membership(tuple(sorted(set(without))), joined, tuple(sorted(set(remove))))
    plan = Plan(
        check_study(record.asked(), record.path),
        data_root,
        watcher.tell,
        remembered=record.roots(),
        elsewhere=True,
    )
    with record.lock():
        runs = _chosen(plan, record, trial, rules, membership)
        for run in runs:
            check_names(run, membership)
        specs = {run.folder.id: _fitting(run, rules, suffix(membership)) for run in runs}
        for run in runs:
            _check(run, specs[run.folder.id], membership, plan)
        if save is not None:
            _refuse_several(runs, rules[0])
            refuse_to_save(save)
        keep = specs[runs[0].folder.id][0] if save else None
        wants_more = trial is None and membership == EVERYBODY
        study = _asking_for(rules, runs, record) if wants_more else None
        for run in runs:
            wanted = keep.label if keep else None
            run.fuse_again(specs[run.folder.id], membership, wanted)
        for one in {run.key: run for run in runs}.values():
            one.save_allocation()  # a record that was moved has other folders for its images
        record.keep_roots(plan.roots)
        execute_runs(runs, record, engine, watcher)
        record.write_results()
        for run in runs:
            if run.failures:
                raise AccordError(f"{run.folder.id}: {' '.join(run.failures)}")
        if study is not None:
            record.adopt(study)
        if save is not None and keep is not None:
            predictor_of(runs[0], keep, record).save(save)
            runs[0].measuring.forget_merged()


def _check(run: TrialRun, fusions: list[NamedFusion], membership: Membership, plan: Plan) -> None:
    check_membership(run, membership)
    check_uploads(run, membership)
    if membership != EVERYBODY and any(after_advance(one.rule) for one in fusions):
        raise AccordError(
            "the fusion 'server' is the server's net of all clients that took part; clients cannot "
            "be left out of it or added to it. Use another fusion, e.g. average."
        )
    refuse_another(run, fusions, membership)
    tell_lost(run, membership, plan.tell)
    tell_learnt(run, membership, plan.tell)
    plan.check_fusions(replace(run.trial, fusions=tuple(fusions)), run.allocation)


def _asking_for(rules: Sequence[_Asked], runs: Sequence[TrialRun], record: Record) -> Study:
    """The record's study with the new fusions, checked before anything is fused."""
    raw = record.asked()
    own = [rule.fusion.to_json() for rule in rules if all(rule.new_to(run) for run in runs)]
    more = [spec for spec in raw["fusions"] if spec not in own]
    return check_study({**raw, "fusions": [*more, *own]}, record.path)


@dataclass(frozen=True)
class _Asked:
    """A fusion that was asked for."""

    fusion: NamedFusion
    alone: bool  # only a name was given, so that a trial's own fusion of that name is preferred

    def of(self, run: TrialRun) -> NamedFusion:
        known = {fusion.label: fusion for fusion in run.trial.fusions}
        own = known.get(self.fusion.label, self.fusion)
        return own if self.alone and own.use == self.fusion.use else self.fusion

    def new_to(self, run: TrialRun) -> bool:
        return self.of(run) is self.fusion


def _fitting(run: TrialRun, asked: Sequence[_Asked], said: str = "") -> list[NamedFusion]:
    """The fusions that can use this trial's uploads; `said` is added to their labels."""
    found = [one.of(run) for one in asked]
    return [one.called(one.label + said) for one in found if run.trial.recipe.takes(one)]


def read_fusion(entry: str | Spec) -> NamedFusion:
    """The fusion that a user names: by its name, as a mapping, or as the text of a mapping."""
    if isinstance(entry, str):
        try:
            read = yaml_of(entry)
        except ValueError:
            read = None
        if not isinstance(read, str) and not (isinstance(read, Mapping) and "use" in read):
            raise AccordError(
                f"--fusion: expected a name or a mapping such as '{{use: features, merge: count, "
                f"as: by-count}}'; found {entry!r}."
            )
        entry = dict(read) if isinstance(read, Mapping) else read
    return NamedFusion.read(absolute_images(entry, Path.cwd()), "--fusion")


def _read(entry: str | Spec) -> _Asked:
    fusion = read_fusion(entry)
    return _Asked(fusion, alone=isinstance(entry, str) and "{" not in entry)


def _chosen(
    plan: Plan, record: Record, trial: str | None, rules: Sequence[_Asked], membership: Membership
) -> list[TrialRun]:
    """The finished trials that were asked for and that these fusions can be used on."""
    runs = [run for run in plan.runs(record) if isinstance(run, TrialRun)]
    for run in runs:
        images = run.allocation.dataset.folder.name
        record.refuse_changed(plan.study, run.allocation.data, images)
    wanted = chosen((run.folder.id for run in runs), trial)
    found = []
    for run in runs:
        if run.folder.id not in wanted:
            continue
        if run.folder.info().get("status") != "finished":
            plan.tell(f"{run.folder.id}: left out, because it is not finished (use accord run)")
        else:
            found.append(run)
    if not found:
        known = ", ".join(run.folder.id for run in runs)
        named = f" {trial}" if trial else ""
        raise AccordError(f"no finished trial{named} in {record.path}; trials: {known}.")
    fitting = [run for run in found if _fitting(run, rules)]
    if membership != EVERYBODY and trial is None:
        # A pooled trial has no clients that could be left out or added.
        fitting = [run for run in fitting if not run.trial.recipe.pooled] or fitting
    if not fitting:
        first = rules[0].fusion
        if found[0].trial.method.one_by_one:
            raise AccordError(
                f"--fusion: {first.use!r} does not fit {found[0].folder.id}, in which the clients "
                "have trained one net in turn. Use --fusion server, or choose other trials with "
                "--trial."
            )
        raise AccordError(
            f"--fusion: {first.use!r} does not fit {found[0].folder.id}: it fuses "
            f"{first.rule.of}, and that trial is a reference or its clients upload "
            "something else. Choose trials with --trial, or choose another fusion."
        )
    return fitting


def _refuse_several(runs: Sequence[TrialRun], rule: _Asked) -> None:
    fusion = rule.fusion
    if len(runs) > 1:
        names = ", ".join(run.folder.id for run in runs)
        raise AccordError(f"--save keeps the model of one trial; choose it with --trial: {names}.")
    if not _fitting(runs[0], [rule]):
        raise AccordError(
            f"--save keeps the first fusion named, and {fusion.use!r} does not fit "
            f"{runs[0].folder.id}. Name another fusion first."
        )
    if isinstance(fusion.rule, ReferenceRule):
        raise AccordError(f"--save: {fusion.use} is a reference, not a model. Name another fusion.")


def predictor_of(run: TrialRun, fusion: NamedFusion, record: Record) -> Predictor:
    """The model that a fusion makes from a trial's last uploads."""
    measuring, at = run.measuring, run.measuring.scope.final
    origin = {
        "run": str(record.path.absolute()),
        "trial": run.folder.id,
        "epoch": at.epoch,
        "clients": list(measuring.scope.fused()),
        "accuracy": _accuracy(run, fusion, at.epoch),
    }
    briefing = Briefing.load(at.round.folder.briefing)
    return model_of(fusion, measuring.nets(fusion), briefing, origin)


def _accuracy(run: TrialRun, fusion: NamedFusion, epoch: int) -> Any:
    for checkpoint in run.folder.measures()["checkpoints"]:
        if checkpoint["epoch"] == epoch and fusion.label in checkpoint["fusions"]:
            return checkpoint["fusions"][fusion.label]["accuracy"]
    return None
