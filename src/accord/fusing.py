"""Fusing again: other server rules on the uploads of a finished run, without training anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from accord.engines.local import Watcher
from accord.engines.measuring import plain
from accord.engines.trialrun import TrialRun
from accord.errors import AccordError
from accord.evaluate import combiner_of, voting
from accord.fusion.base import Bound, Merge, fusions
from accord.messages import NET, Briefing, unprefixed
from accord.parts import make_part
from accord.paths import absolute_images
from accord.predictor import ModelHeader, Predictor
from accord.progress import Silent, make_watcher
from accord.recipe import fusion_spec
from accord.record import Record
from accord.results import Results
from accord.runner import Plan, execute_runs, workers_for
from accord.spelling import Spec
from accord.study import check_study
from accord.uploads import UploadFiles


def fuse(
    run_dir: Path | str,
    asked: Sequence[str | Spec],
    *,
    trial: str | None = None,
    without: Sequence[str] = (),
    save: Path | str | None = None,
    data_root: Path | str | None = None,
    workers: int | None = None,
    quiet: bool = False,
) -> Results:
    """Measures further fusions of a run's uploads and adds their rows; nothing trains.

    `asked`: names, or mappings with `use`. `trial`: only trials whose name holds this. `without`:
    clients to leave out, which the names of the new rows tell. `save`: a folder for the predictor
    of the first fusion.
    """
    record = Record(Path(run_dir))
    specs = [_spec(entry, without) for entry in asked]
    if not specs:
        raise AccordError("which fusion? Name one with --fusion, e.g. --fusion classwise.")
    raw = record.asked()
    labels = {spec["as"] for spec in specs}
    more = [spec for spec in raw["fusions"] if spec["as"] not in labels or spec not in specs]
    study = check_study({**raw, "fusions": [*more, *specs]}, record.path)
    watcher: Watcher = Silent() if quiet else make_watcher()
    plan = Plan(study, Path(data_root) if data_root else None, watcher.tell)
    with record.lock():
        runs = _chosen(plan, record, trial, tuple(without))
        if save is not None:
            _refuse_several(runs, specs[0])
        if not without:
            record.adopt(study)
        for run in runs:
            plan.check_fusions(replace(run.trial, fusions=tuple(specs)), run.deal)
        for run in runs:
            run.fuse_again(specs, tuple(without), keep=specs[0]["as"] if save else None)
        execute_runs(runs, record, workers_for(workers), watcher)
        record.write_results()
        if save is not None and not runs[0].failures:
            predictor_of(runs[0], specs[0], record).save(Path(save))
    return Results.of(record)


def _spec(entry: str | Spec, without: Sequence[str]) -> Spec:
    """A fusion in full; without some clients it has another name."""
    if isinstance(entry, str):
        try:
            read = yaml.safe_load(entry)
        except yaml.YAMLError:
            read = None
        if not isinstance(read, str | Mapping):
            raise AccordError(
                f"--fusion: expected a name or a mapping such as '{{use: features, merge: count, "
                f"as: by-count}}'; found {entry!r}."
            )
        entry = dict(read) if isinstance(read, Mapping) else read
    spec = fusion_spec(absolute_images(entry, Path.cwd()), "--fusion")
    if without:
        spec["as"] += f"-without-{'-'.join(without)}"
    return spec


def _chosen(
    plan: Plan, record: Record, trial: str | None, without: tuple[str, ...]
) -> list[TrialRun]:
    """The finished trials that are meant."""
    runs = [run for run in plan.runs(record) if isinstance(run, TrialRun)]
    found = []
    for run in runs:
        if run.folder.info().get("status") != "finished":
            plan.tell(f"{run.folder.id}: not finished, left out")
        elif trial is None or trial in run.folder.id:
            found.append(run)
    if not found:
        known = ", ".join(run.folder.id for run in runs)
        raise AccordError(f"no finished trial {trial or ''} in {record.path}; trials: {known}.")
    for run in found:
        unknown = [name for name in without if name not in run.deal.partition.names]
        if unknown:
            names = ", ".join(run.deal.partition.names)
            raise AccordError(
                f"--without: {run.folder.id} has no client {unknown[0]!r}; found {names}. Choose "
                "trials with --trial."
            )
        if len(without) >= len(run.deal.partition.names):
            raise AccordError(f"--without leaves no client of {run.folder.id}.")
    return found


def _refuse_several(runs: Sequence[TrialRun], spec: Spec) -> None:
    if len(runs) > 1:
        names = ", ".join(run.folder.id for run in runs)
        raise AccordError(f"--save keeps the model of one trial; choose it with --trial: {names}.")
    if isinstance(make_part(fusions, plain(spec), "fusion"), Bound):
        raise AccordError(f"--save: {spec['use']} is a bound, not a model. Name another fusion.")


def predictor_of(run: TrialRun, spec: Spec, record: Record) -> Predictor:
    """The model that a fusion makes of a trial's last uploads."""
    measuring, epoch = run.measuring, run.epochs[-1]
    briefing = Briefing.load(run.folder.briefing)
    own = isinstance(measuring.rules[spec["as"]], Merge)
    files = UploadFiles(measuring.nets(spec), briefing, own=own)
    combiner = combiner_of(voting(plain(spec)), files)
    nets = [unprefixed(NET, files.load(index).tensors) for index in range(len(files))]
    measuring.forget_merged()
    origin = {
        **{"run": str(record.path.absolute()), "trial": run.folder.id, "epoch": epoch},
        **{"clients": list(measuring.clients), "accuracy": _accuracy(run, spec, epoch)},
    }
    header = ModelHeader.of(briefing.header, len(nets), combiner.name, plain(spec), origin)
    return Predictor(header, combiner, nets.__getitem__)


def _accuracy(run: TrialRun, spec: Spec, epoch: int) -> Any:
    for checkpoint in run.folder.measures()["checkpoints"]:
        if checkpoint["epoch"] == epoch and spec["as"] in checkpoint["fusions"]:
            return checkpoint["fusions"][spec["as"]]["accuracy"]
    return None
