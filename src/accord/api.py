"""The functions of the package: run a study, brief, answer, fuse, load results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from accord.advice.advise import Advice, advise_on, with_cost
from accord.advice.facts import Limits
from accord.advice.gather import source_of
from accord.advice.written import refuse_to_replace
from accord.auditing.audit import Audited, audit_runs, refuse_nothing
from accord.core.errors import AccordError
from accord.diagnosis.diagnose import diagnose as diagnose_runs
from accord.diagnosis.diagnose import only_trials
from accord.diagnosis.finding import Finding
from accord.engines.base import Engine
from accord.engines.local import refuse_two_kinds_of_workers, start_workers, workers_for
from accord.federation.answering import answer
from accord.federation.exchange.brief import Written, brief_file
from accord.federation.exchange.fuse import fuse_files
from accord.federation.execute import Watcher, in_this_process
from accord.federation.fuse_again import fuse_again
from accord.federation.on_dask import on_cluster
from accord.federation.run import run_study
from accord.federation.tasks import Task
from accord.messages.saved_model import refuse_to_train
from accord.page.write import default_path
from accord.page.write import write_report as write_page
from accord.record.record import Record
from accord.report.evidence import read_evidence
from accord.report.progress import Silent, make_watcher
from accord.report.results import Results, load
from accord.report.terminal import tell
from accord.study.study import Study, load_study
from accord.study.syntax import Spec
from accord.study.teacher_study import teacher_study

__all__ = [
    "advise",
    "answer",
    "audit",
    "brief",
    "diagnose",
    "fuse",
    "fuse_files",
    "load",
    "run",
    "teacher",
    "write_report",
]


def run(
    study: Study | Path | str | Mapping[str, Any],
    *,
    overrides: Sequence[str] = (),
    out: Path | str | None = None,
    workers: int | None = None,
    data_root: Path | str | None = None,
    quiet: bool = False,
    cluster: str | None = None,
    engine: Engine[Task] | None = None,
) -> Results:
    """Runs a study (a YAML file, a mapping or a checked Study) and returns its results.

    An existing record is continued: only new trials are trained. Failed trials are listed in
    `results.failures`. Mistakes of the user raise AccordError. `workers` processes of this machine
    do the work, or the Dask cluster whose scheduler has the address `cluster`, or `engine`.
    """
    refuse_two_kinds_of_workers(cluster, workers)
    if isinstance(study, Study) and overrides:
        raise AccordError(
            "overrides can be used with a study file or a mapping, but not with a checked Study. "
            "Pass the file or the mapping instead."
        )
    checked = study if isinstance(study, Study) else load_study(study, overrides)
    record = Record(Path(out) if out else Path("runs") / checked.name)
    watcher = _watcher(quiet)
    if cluster is not None:
        if engine is not None:
            raise AccordError("expected `cluster` or `engine`; found both. Leave one of them out.")
        engine = on_cluster(cluster, watcher.tell)
    with _working(engine, workers) as at_work:
        failures = run_study(checked, record, _path(data_root), at_work, watcher)
    return replace(Results.of(record), failures=failures)


def teacher(
    source: Path | str | Mapping[str, Any],
    save: Path | str,
    *,
    overrides: Sequence[str] = (),
    backbone: str | None = None,
    epochs: int | None = None,
    on: str = "public",
    seed: int = 0,
    out: Path | str | None = None,
    workers: int | None = None,
    data_root: Path | str | None = None,
    quiet: bool = False,
) -> Results:
    """Trains one net, saves it as a model in the folder `save`, and returns its results.

    `source` is a study (a file or a mapping) or the name of a dataset. The net learns from the
    public images of `seed`, or from all training images if `on` is "train". An interrupted training
    is continued. If it fails, `results.failures` gives the reason and no model is saved.
    """
    study = teacher_study(source, overrides, backbone=backbone, epochs=epochs, on=on, seed=seed)
    record = Path(out) if out else Path("runs") / study.name
    refuse_to_train(Path(save), record)
    found = run(study, out=record, workers=workers, data_root=data_root, quiet=quiet)
    if found.failures:
        return found
    rule = study.recipes[0].fusion[0].label
    return fuse(record, [rule], save=save, data_root=data_root, workers=1, quiet=True)


def fuse(
    run_dir: Path | str,
    asked: Sequence[str | Spec],
    *,
    trial: str | None = None,
    without: Sequence[str] = (),
    add: Sequence[Path | str] = (),
    remove: Sequence[str] = (),
    save: Path | str | None = None,
    data_root: Path | str | None = None,
    workers: int | None = None,
    quiet: bool = False,
) -> Results:
    """Measures further fusions of a run's uploads and adds their rows, without any training.

    `asked`: names of fusions, or mappings with `use`. `trial`: only trials whose name begins with
    this text, or, if none does, contains it. `without`: clients to leave out; the names of the
    new rows list them. `add`, `remove`: for uploads that are sums, the files of clients that came
    later, and clients whose sums are subtracted. `save`: a folder for the model of the first
    fusion.
    """
    record = Record(Path(run_dir))
    with _working(None, workers) as at_work:
        fuse_again(
            record,
            asked,
            trial=trial,
            without=without,
            add=add,
            remove=remove,
            save=_path(save),
            data_root=_path(data_root),
            engine=at_work,
            watcher=_watcher(quiet),
        )
    return Results.of(record)


def diagnose(*run_dirs: Path | str, trial: str | None = None) -> list[Finding]:
    """What went wrong in one or several runs: findings with evidence and remedy, heaviest first.

    `trial`: only trials whose name begins with this text, or, if none does, contains it.
    """
    return diagnose_runs(only_trials(read_evidence([Path(one) for one in run_dirs]), trial))


def audit(*run_dirs: Path | str, trial: str | None = None) -> list[Audited]:
    """Which clients stand out by what they sent, for each trial; the most unusual client first.

    `trial`: only trials whose name begins with this text, or, if none does, contains it. Validation
    or public images are used if there are any, and never test images.
    """
    runs = only_trials(read_evidence([Path(one) for one in run_dirs]), trial)
    found = audit_runs(runs, tell=tell)
    refuse_nothing(found, runs)
    return found


def brief(
    study: Study | Path | str | Mapping[str, Any],
    out: Path | str,
    *,
    overrides: Sequence[str] = (),
    start_from: Path | str | None = None,
    record: Path | str | None = None,
    workers: int | None = None,
    data_root: Path | str | None = None,
    quiet: bool = False,
) -> Written:
    """Writes the briefing of a study with one trial to the file `out`, for clients elsewhere.

    The clients start from the net of the saved model `start_from`, if one is given. A teacher or a
    map that the recipe needs is made first, in the folder `record`. For a method with several
    rounds, the server's own file is written beside the briefing.
    """
    checked = study if isinstance(study, Study) else load_study(study, overrides)
    folder = Path(record) if record else Path("runs") / f"{checked.name}-brief"
    with _working(None, workers or 1) as at_work:
        return brief_file(
            checked,
            Path(out),
            start_from=_path(start_from),
            record=Record(folder),
            data_root=_path(data_root),
            engine=at_work,
            watcher=_watcher(quiet),
        )


def write_report(
    runs: Path | str | Sequence[Path | str],
    out: Path | str | None = None,
    *,
    baseline: str | None = None,
    trial: str | None = None,
) -> Path:
    """Writes the report of one or several runs as a page, and returns the path of the page.

    `out`: the file (default: report.html in the run's folder; for several runs, in the current
    folder). `baseline`: RECIPE or RECIPE:FUSION, with which all others are compared. `trial`: only
    trials whose name begins with this text, or, if none does, contains it.
    """
    folders = [Path(runs)] if isinstance(runs, Path | str) else [Path(run) for run in runs]
    path = Path(out) if out else default_path(folders)
    write_page(folders, path, trial=trial, baseline=baseline, tell=tell)
    return path


def advise(
    study: Path | str | None = None,
    *,
    data: Path | str | None = None,
    column: str | None = None,
    clients: int | None = None,
    image: int | None = None,
    public: float | None = None,
    unlabelled: bool = False,
    exchanges: int | None = None,
    megabytes: float | None = None,
    private: bool = False,
    one_net: bool = False,
    gpu: bool | None = None,
    out: Path | str | None = None,
    cost: bool = True,
    data_root: Path | str | None = None,
    workers: int | None = None,
) -> Advice:
    """Recommends a recipe, fusion and budget for the federation of a study, or for images at
    `data`, with a runner-up.

    `out`: a file for a study that tests both. `column`, `clients` and `image` describe the images
    at `data`; `public` is the share of the images that the server holds. The other arguments are
    limits (docs/advice.md). With `cost`, a few steps of both recipes are timed.
    """
    limits = Limits(exchanges, megabytes, private, one_net, unlabelled, gpu)
    source = source_of(study, data, column=column, clients=clients, image=image, public=public)
    if out is not None:
        refuse_to_replace(Path(out))
    found = advise_on(source, limits, _path(data_root), tell)
    if out is not None:
        found.write(out)
    if not cost:
        return found
    tell("timing a few steps of both recipes …")
    return with_cost(found, _path(data_root), workers)


@contextmanager
def _working(engine: Engine[Task] | None, workers: int | None) -> Iterator[Engine[Task]]:
    """The given engine, or worker processes of this machine; it is closed at the end."""
    count = workers_for(workers)
    found = engine or start_workers(count) or in_this_process()
    try:
        yield found
    finally:
        found.close()


def _watcher(quiet: bool) -> Watcher:
    return Silent() if quiet else make_watcher()


def _path(given: Path | str | None) -> Path | None:
    return Path(given) if given else None
