"""The commands that read a record: results, a comparison, dials, and a diagnosis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from accord.commands.options import RunFolder, RunFolders, SomeTrials
from accord.core.errors import AccordError
from accord.core.names import chosen
from accord.report.terminal import say, say_json, show, show_results, width

if TYPE_CHECKING:
    from accord.report.results import Results


def results(
    run_dir: RunFolder,
    json: Annotated[bool, typer.Option("--json", help="show every row as JSON")] = False,
    rounds: Annotated[bool, typer.Option("--rounds", help="show accuracy over rounds")] = False,
    sites: Annotated[
        bool, typer.Option("--sites", help="show how good each model is for each site")
    ] = False,
) -> None:
    """Show the results of a run."""
    from accord.report.results import load

    if rounds and sites:
        raise AccordError("--rounds and --sites show different tables. Use one of them.")
    found = load(run_dir)
    if sites:
        _show_sites(found, json)
    elif json:
        say(found.to_json())
    elif rounds:
        from accord.report.rounds import show_rounds

        show(*show_rounds(found.rows, width()))
    else:
        show_results(found)


def _show_sites(found: Results, as_json: bool) -> None:
    from accord.report.sites import show_sites

    tables = show_sites(found.sites(), str(found.path), width())
    if as_json:
        say(found.sites_to_json())
    else:
        show(*tables)


def dials(
    run_dir: RunFolder,
    keys: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY]...", help="dials to show: lambda_raw, loss_align, …"),
    ] = None,
    trial: SomeTrials = None,
    json: Annotated[bool, typer.Option("--json", help="show every event as JSON")] = False,
) -> None:
    """Show λ, σ, losses and gradients of every client per epoch, also while a study runs."""
    from accord.report.dials import show_dials
    from accord.report.results import load

    found = load(run_dir)
    if json:
        events = found.events()
        wanted = chosen((event["trial"] for event in events), trial)
        say_json([event for event in events if event["trial"] in wanted])
    else:
        show(*show_dials(found.record, keys or (), trial, width()))


def diagnose(
    run_dirs: RunFolders,
    trial: SomeTrials = None,
    json: Annotated[bool, typer.Option("--json", help="show the findings as JSON")] = False,
) -> None:
    """Say what went wrong in a run and why, with the evidence and what to try."""
    from accord.diagnosis.diagnose import diagnose as findings_of
    from accord.diagnosis.diagnose import only_trials
    from accord.diagnosis.show import show_findings, to_json
    from accord.report.evidence import read_evidence

    runs = only_trials(read_evidence(run_dirs), trial)
    findings = findings_of(runs)
    if json:
        say(to_json(runs, findings))
    else:
        show(*show_findings(runs, findings, width()))


def audit(
    run_dir: RunFolder,
    trial: SomeTrials = None,
    json: Annotated[bool, typer.Option("--json", help="show all signs as JSON")] = False,
) -> None:
    """Rank the clients of a run by how far their uploads stand out, and say what to do."""
    from accord.api import audit as audit_run
    from accord.auditing.show import show_audits, to_json

    found = audit_run(run_dir, trial=trial)
    if json:
        print(to_json(found))
    else:
        show(*show_audits(found))


def compare(
    run_dirs: RunFolders,
    baseline: Annotated[
        str,
        typer.Option(metavar="RECIPE[:FUSION][@RUN]", help="the recipe to compare all others with"),
    ],
    threshold: Annotated[
        list[float] | None,
        typer.Option(help="an accuracy to reach, in percent (default: 60, 65, 70 and 75)"),
    ] = None,
    trial: SomeTrials = None,
    json: Annotated[bool, typer.Option("--json", help="show all figures as JSON")] = False,
) -> None:
    """Compare the recipes of one or several runs with a baseline, paired by seed."""
    from accord.record.summary import THRESHOLDS
    from accord.report.compare.baseline import Baseline, in_order, paired
    from accord.report.compare.content import compare_content
    from accord.report.compare.lines import lines_of
    from accord.report.compare.runs import read_runs
    from accord.report.compare.table import compare_table

    goals = [_fraction(one) for one in sorted(set(threshold or ()))] or THRESHOLDS
    read = read_runs(run_dirs, trial)
    pairs = in_order(paired(lines_of(read.measured, goals), Baseline.parse(baseline)))
    if json:
        content = compare_content(pairs, goals, baseline, read.unfinished)
        say_json(content)
    else:
        show(compare_table(pairs, goals, baseline, read.unfinished, width()))


def _fraction(percent: float) -> float:
    if not 0 < percent <= 100:
        raise AccordError(
            f"--threshold: expected an accuracy in percent, above 0 and at most 100; found "
            f"{percent:g}. Write for example --threshold 60."
        )
    return percent / 100
