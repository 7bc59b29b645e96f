"""Makes the briefing of one trial as a file, and the file that the server keeps for itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from accord.attacks.settings import NO_ATTACK
from accord.core.errors import AccordError
from accord.core.targets import refuse_file
from accord.data.schemes import make_scheme
from accord.data.settings import NO_SHIFT
from accord.engines.base import Engine
from accord.federation.exchange.stand_in import standing_on
from accord.federation.execute import Watcher
from accord.federation.plan import Plan
from accord.federation.run import execute_runs
from accord.federation.starting import first_briefing
from accord.federation.tasks import Task
from accord.federation.teaching import refuse_other_images
from accord.federation.trial_run import TrialRun
from accord.federation.work import Run
from accord.fusion.base import ReferenceRule
from accord.messages import NET, Briefing, Origin, ServerState, is_whole, prefixed
from accord.messages.saved_model import SavedModel
from accord.model.predictor import Predictor
from accord.record.record import Record
from accord.study.settings import RoundsConfig
from accord.study.study import Study, Trial, check_study

SITES = make_scheme({"scheme": "sites"})  # the clients are elsewhere, and nobody knows them yet


@dataclass(frozen=True)
class Written:
    """The files of a new round."""

    briefing: Briefing
    path: Path
    server: Path | None  # what the server keeps until the next round; None for the last round


def brief_file(
    study: Study,
    out: Path,
    *,
    start_from: Path | None,
    record: Record,
    data_root: Path | None,
    engine: Engine[Task],
    watcher: Watcher,
) -> Written:
    """Writes the first briefing of the only trial of `study` to `out`.

    If the recipe needs a teacher or drawn features, these are made first, in `record`.
    """
    trial = only_trial(study)
    below = start_from if trial.before is not None else None
    if trial.before is not None:
        trial, start_from = standing_on(trial, start_from), None
    alone = _alone(study, trial)
    refuse_to_brief(out)
    model = Predictor.load(start_from) if start_from is not None else None
    plan = Plan(alone, data_root, watcher.tell, remembered=record.roots(), elsewhere=True)
    plan.check()
    *helpers, run = plan.runs(record)
    if not isinstance(run, TrialRun):
        raise TypeError("the last run of a plan is that of its trial")
    if below is not None:
        refuse_other_images(SavedModel.load(below), run.allocation, "--from")
    _execute(alone, record, run, helpers, engine, watcher)
    if record.path.exists():
        record.keep_roots(plan.roots)
    opening = first_briefing(run.trial, run.allocation, run.teacher, run.map)
    if model is not None and start_from is not None:
        opening = _started_from(opening, model, start_from)
    return write_round(run.trial.method.start(_for_mail(opening, run.trial)), out)


def write_round(state: ServerState, out: Path) -> Written:
    """Writes the briefing of the round that begins with `state`, and what the server keeps."""
    briefing = state.briefing()
    if out.exists() and Briefing.load(out).digest != briefing.digest:
        raise AccordError(
            f"{out} holds another briefing, whose answers could no longer be fused. Choose another "
            "name, or delete it."
        )
    server = server_file(out) if state.header.briefing.rounds > 1 else None
    if server is not None:
        if server.exists() and ServerState.load(server).briefing().digest != briefing.digest:
            raise AccordError(
                f"{server} belongs to another briefing, whose answers could no longer be fused. "
                "Choose another name, or delete it."
            )
        state.save(server)
    briefing.save(out)
    return Written(briefing, out, server)


def server_file(briefing: Path) -> Path:
    """The file beside a briefing that the server keeps for itself."""
    return briefing.with_name(f"{briefing.name.removesuffix('.safetensors')}.server.safetensors")


def refuse_to_brief(out: Path, option: str = "--out") -> None:
    """Raises AccordError if `out` cannot be written, or would replace another kind of file."""
    refuse_file(
        out,
        option,
        "is no briefing that could be written again",
        lambda path: is_whole(path, Briefing),
    )
    refuse_file(
        server_file(out),
        option,
        "is no server state that could be written again",
        lambda path: is_whole(path, ServerState),
    )


# --- the trial -------------------------------------------------------------------------------


def _rounds(trial: Trial) -> int | None:
    """The number of rounds; with turns it depends on the number of clients that the study names."""
    method, clients = trial.method, trial.setup.partition.expected_clients
    if not method.open_rounds:
        return trial.setup.rounds.count
    if clients is None:
        raise AccordError(
            f"the method {trial.recipe.method_name} asks one client in each round, and the study "
            f"does not say how many clients there are. Set rounds.count to their number times "
            f"{method.rounds_for(1)}."
        )
    return method.rounds_for(clients)


def only_trial(study: Study) -> Trial:
    """The only trial of a study that clients take part in. The partition does not matter.

    Neither do its shift and its attack: the clients have images of their own.
    """
    found: dict[str, Trial] = {}
    bases = {recipe.stands_on for recipe in study.recipes}
    for trial in study.trials():
        if trial.recipe.name in bases:  # `--from` takes its place
            continue
        reference = trial.recipe.pooled or all(
            isinstance(f.rule, ReferenceRule) for f in trial.recipe.fusion
        )
        if not reference:
            count = RoundsConfig(count=_rounds(trial))  # who answers is up to people
            sites = SITES.model_copy(update={"folders": trial.setup.partition.reads_sites})
            data = trial.setup.data.model_copy(update={"test_per_client": 0.0})  # up to clients
            alike = {"data": data, "partition": sites, "shift": NO_SHIFT, "attack": NO_ATTACK}
            setup = trial.setup.model_copy(update={**alike, "rounds": count})
            key = f"{trial.recipe.name} {trial.seed} {setup.model_dump_json()}"
            found.setdefault(key, replace(trial, setup=setup))
    if not found:
        raise AccordError(
            "the study has no recipe that clients take part in, only references. "
            "Add one to `recipes`."
        )
    if len(found) > 1:
        raise AccordError(_how_to_choose(list(found.values())))
    return next(iter(found.values()))


def _how_to_choose(trials: Sequence[Trial]) -> str:
    recipes = list(dict.fromkeys(trial.recipe.name for trial in trials))
    seeds = list(dict.fromkeys(trial.seed for trial in trials))
    advice = []
    if len(recipes) > 1:
        advice.append(f"recipes=[{recipes[0]}] (there are {', '.join(recipes)})")
    if len(seeds) > 1:
        advice.append(f"seeds=[{seeds[0]}] (there are {', '.join(map(str, seeds))})")
    if len(trials) > len(recipes) * len(seeds):
        advice.append("one value for every other key that has a list, such as budget.epochs=10")
    return (
        f"expected a study with one trial, because a briefing is for one trial; found "
        f"{len(trials)}. Choose one: add {' and '.join(advice)} to the command."
    )


def _alone(study: Study, trial: Trial) -> Study:
    """A study of this trial alone, whose clients are elsewhere."""
    options = study.options.model_copy(update={"seeds": (trial.seed,), "references": False})
    raw = {
        **options.model_dump(mode="json"),
        **trial.setup.model_dump(mode="json"),
        "recipes": [trial.recipe.model_dump(mode="json", exclude_none=True)],
        "fusions": [fusion.to_json() for fusion in study.fusions],
    }
    return check_study(raw, Path())


def _execute(
    study: Study,
    record: Record,
    run: TrialRun,
    helpers: Sequence[Run],
    engine: Engine[Task],
    watcher: Watcher,
) -> None:
    """Trains the teacher and draws the map that the briefing needs, if they are missing."""
    if all(helper.over for helper in helpers):
        return
    record.refuse_another(study)
    with record.lock():
        record.adopt(study)
        run.save_allocation()
        execute_runs(helpers, record, engine, watcher)
    for helper in helpers:
        if helper.failures:
            raise AccordError(f"{helper.folder.id}: {' '.join(helper.failures)}")


# --- the message -----------------------------------------------------------------------------


def _for_mail(opening: Briefing, trial: Trial) -> Briefing:
    """The briefing with its origin; clients send one upload, that of their last epoch."""
    header = opening.header
    origin = Origin(
        study=trial.study,
        recipe=trial.recipe.name,
        fusions=tuple(fusion.to_json() for fusion in trial.fusions),
        method=trial.method_spec,
    )
    budget = header.budget.model_copy(update={"checkpoints": (header.budget.epochs,)})
    return Briefing(header.model_copy(update={"origin": origin, "budget": budget}), opening.tensors)


def _started_from(opening: Briefing, model: Predictor, folder: Path) -> Briefing:
    """The briefing with the weights and the normalisation of a saved model."""
    header, found = opening.header, model.header
    if found.nets != 1 or found.net.map is not None:
        has = "a closed form" if found.net.map is not None else f"{found.nets} nets"
        raise AccordError(
            f"--from {folder}: expected a model of one trained net; found {has}. Save one with a "
            "fusion that makes one net, such as average or distilled."
        )
    for key in ("classes", "height", "width", "channels", "net"):
        wanted, there = getattr(header, key), getattr(found, key)
        if wanted != there:
            raise AccordError(
                f"--from {folder}: the model has {key} {_said(there)}; expected {_said(wanted)}, "
                "as in the study. Change the study, or choose another model."
            )
    tensors = {**opening.tensors, **prefixed(NET, model.weights(0))}
    if "anchors" in tensors and header.net.head == "anchors":
        tensors["anchors"] = tensors[NET + "head.prototypes"].clone()
    told = header.model_copy(update={"mean": found.mean, "std": found.std})
    return Briefing(told, tensors)


def _said(value: object) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return text if len(text) < 80 else text[:77] + "…"
