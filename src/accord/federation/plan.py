"""Prepares a study: loads its datasets, makes its allocations, and makes one run per trial."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from accord.balance import balances
from accord.core.errors import AccordError
from accord.core.parts import make_part
from accord.data.allocation import Allocation, allocate
from accord.data.allocation_keys import allocation_key
from accord.data.datasets import load as load_dataset
from accord.data.elsewhere import no_images
from accord.data.images import Dataset
from accord.data.locate import found_root, remembered_root
from accord.data.schemes import EACH, Scheme
from accord.data.settings import ELSEWHERE, DataConfig
from accord.federation.bank_source import check_source, digest_of
from accord.federation.briefing import check_map, rehearse
from accord.federation.devices import check_device_names, check_devices
from accord.federation.keys import bank_of, kind_of_work, training_key, trial_key
from accord.federation.map_run import MapRun
from accord.federation.remarks import (
    Privacy,
    about_sites,
    empty_classes,
    lacking_in_bank,
    unused_limits,
)
from accord.federation.room import refuse_large_steps
from accord.federation.rounds import check_rounds
from accord.federation.server_runs import map_run, teacher_run
from accord.federation.teacher import NAME
from accord.federation.teacher_run import TeacherRun
from accord.federation.teaching import (
    digest_of_model,
    model_of,
    refuse_other_labels,
    trained_here,
)
from accord.federation.trial_run import TrialRun
from accord.federation.work import Run
from accord.record.folders import TrialFolder
from accord.record.record import Record
from accord.study.coordinates import readable_name
from accord.study.recipe import TrainingRecipe
from accord.study.study import Study, Trial, distinct, leaving_out, with_rounds_for
from accord.trackers.tracking import check_names

Tell = Callable[[str], None]


class Plan:
    """What a study needs before any training: datasets, allocations, and one run per trial."""

    def __init__(
        self,
        study: Study,
        data_root: Path | None,
        tell: Tell,
        *,
        remembered: Mapping[str, Path] | None = None,
        elsewhere: bool = False,
        min_clients: int | None = None,
    ) -> None:
        self.study, self.data_root, self.tell = study, data_root, tell
        self.remembered = remembered or {}  # dataset → data root of the record's earlier runs
        self.roots: dict[str, Path] = {}  # dataset → data root in which it was found now
        self.elsewhere = elsewhere  # whether clients on other machines can be asked
        self.min_clients = min_clients  # number of uploads that a round needs; None: as the study
        self._datasets: dict[str, Dataset] = {}
        self._deals: dict[str, Allocation] = {}
        self._digests: dict[str, str] = {}
        self._told: set[str] = set()
        self._required: set[str] = set()  # fusions that were checked; some checks read many files
        check_devices(study.options)
        check_names(study.options.track)

    def dataset(self, data: DataConfig, scheme: Scheme) -> Dataset:
        if data.name == ELSEWHERE:
            return no_images(data)
        key = f"{data.name} {data.path} {data.image} {scheme.reads_sites}"
        if key not in self._datasets:
            root = remembered_root(data.name, self.data_root, self.remembered)
            found = load_dataset(
                data.name,
                path=Path(data.path) if data.path else None,
                root=root,
                size=data.image.size,
                channels=data.image.channels,
                sites=scheme.reads_sites,
                tell=self.tell,
            )
            for remark in (*found.remarks, *empty_classes(found)):
                self.tell(f"{data.name}: {remark}")
            self._datasets[key] = found
            place = found_root(data.name, root) if data.path is None else None
            if place is not None:
                self.roots[data.name] = place
        return self._datasets[key]

    def allocation(self, trial: Trial) -> tuple[str, Allocation]:
        """The trial's allocation and its key; all recipes of a seed share an allocation."""
        setup = trial.setup
        data, partition, shift, attack = setup.data, setup.partition, setup.shift, setup.attack
        if partition.elsewhere and not self.elsewhere:
            raise AccordError(
                "the clients of this study hold their own images on their own machines "
                "(partition.scheme: sites). Use `accord flower`, or exchange files with `accord "
                "brief`."
            )
        dataset = self.dataset(data, partition)
        key = allocation_key(dataset, data, partition, trial.seed, shift, attack)
        if key not in self._deals:
            self._deals[key] = allocate(dataset, data, partition, trial.seed, shift, attack)
        return key, self._deals[key]

    @cached_property
    def trials(self) -> list[Trial]:
        """The trials of the study; `partition.leave_out: each` makes one trial per client."""
        expanded = (found for trial in self.study.trials() for found in self._expanded(trial))
        return distinct(self._with_rounds(trial) for trial in expanded)

    def _with_rounds(self, trial: Trial) -> Trial:
        """The trial with its number of rounds, which can depend on the number of clients."""
        return with_rounds_for(trial, len(self.allocation(trial)[1].partition.names))

    def _expanded(self, trial: Trial) -> Iterator[Trial]:
        scheme = trial.setup.partition
        if scheme.leave_out != EACH:
            yield trial
            return
        _, everybody = self.allocation(leaving_out(trial, None))
        for site in everybody.site_names:
            yield leaving_out(trial, site)

    def check(self) -> None:
        """Finds all images, partitions them, and builds the first briefing of each recipe."""
        seen, privacy = set(), Privacy()
        for section in self.study.idle_sections():
            self.tell(f"the section {section!r} has no effect: no recipe of this study uses it")
        for recipe in self.study.recipes:
            for term, spec in getattr(recipe, "align", {}).items():
                make_part(
                    balances, spec["balance"], f"recipes.{recipe.name}.align.{term}"
                ).require()
        check_device_names(self.study.options, self._named_clients(), NAME)
        for trial in self.trials:
            key, allocation = self.allocation(trial)
            for remark in (*unused_limits(allocation), *about_sites(allocation)):
                self._tell_once(remark)
            check_rounds(trial, len(allocation.partition.names), self.min_clients)
            self.check_method(trial, allocation)
            self.check_fusions(trial, allocation)
            privacy.add(trial, key, allocation)
            if kind_of_work(trial) in seen:
                continue
            seen.add(kind_of_work(trial))
            bank = bank_of(trial)
            try:
                if bank and bank.source:
                    check_source(TrialFolder(Path(bank.source)), trial, allocation)
                check_map(trial, allocation)
                refuse_large_steps(trial, allocation)
                rehearse(trial, allocation)
            except AccordError as error:
                raise AccordError(f"recipe {trial.recipe.name!r}: {error}") from None
            lacking = lacking_in_bank(allocation) if bank else None
            if lacking:
                self._tell_once(lacking)
        for remark in privacy.remarks():
            self.tell(remark)

    def _named_clients(self) -> list[str]:
        """The clients of all trials; the one client of pooled images has no name of its own."""
        trials = self.trials
        dealt = [trial for trial in trials if not trial.recipe.pooled] or trials
        names = (self.allocation(trial)[1].partition.names for trial in dealt)
        return list(dict.fromkeys(name for some in names for name in some))

    def check_method(self, trial: Trial, allocation: Allocation) -> None:
        """Refuses a method that cannot work with this trial's images."""
        public = len(allocation.split.public)
        try:
            trial.method.require(trial.setup.net.norm, public)
            if trained_here(trial) and not public:
                raise AccordError(
                    "it needs a teacher, and there is none: set teacher.model (accord teacher "
                    "trains one), or data.public, so that the server trains one on its public "
                    "images, or teacher.allow_random for a random one."
                )
            refuse_other_labels(trial, allocation)
            merges = trial.recipe.uses_mergenet and trial.method.needs_teacher
            if trial.setup.teacher.trainable and not merges:
                raise AccordError(
                    "teacher.trainable: true is for recipes whose method uses the teacher, such as "
                    "mergenet-public. Set it to false for this recipe."
                )
        except AccordError as error:
            raise AccordError(f"recipe {trial.recipe.name!r}: {error}") from None
        fused = [trial.method.fusion_applied(r) for r in range(1, trial.method.rounds + 1)]
        if False in fused and True not in fused:
            self._tell_once(
                f"recipe {trial.recipe.name!r}: none of its {len(fused)} rounds has a fusion of "
                f"knowledge, because mergenet.start_round is {trial.setup.mergenet.start_round}"
            )

    def _tell_once(self, line: str) -> None:
        if line not in self._told:
            self._told.add(line)
            self.tell(line)

    def check_fusions(self, trial: Trial, allocation: Allocation) -> None:
        """Refuses fusions that cannot be used on this trial's uploads."""
        norm, public = trial.setup.net.norm, len(allocation.split.public)
        validation = len(allocation.split.validation)
        for fusion in trial.fusions:
            key = f"{fusion.spec} {norm} {public} {validation}"
            if key in self._required:
                continue
            self._required.add(key)
            try:
                fusion.rule.require(norm, public)
                fusion.rule.require_own(public, validation)
            except AccordError as error:
                raise AccordError(f"fusion {fusion.label!r}: {error}") from None

    def keep_sources(self, record: Record) -> None:
        """Refuses sources of banks that have changed since the record was begun."""
        for recipe in self.study.recipes:
            if isinstance(recipe, TrainingRecipe) and recipe.bank and recipe.bank.source:
                source = TrialFolder(Path(recipe.bank.source))
                record.keep_source(recipe.name, source, self.digest(source))
        for trial in self.trials:
            model = model_of(trial)
            if model is not None:
                record.keep_teacher(model.folder, digest_of_model(model))

    def digest(self, source: TrialFolder) -> str:
        if str(source.path) not in self._digests:
            self._digests[str(source.path)] = digest_of(source)
        return self._digests[str(source.path)]

    def runs(self, record: Record) -> list[Run]:
        """One run per teacher, map and trial, with the finished trials; writes nothing."""
        prepared: list[TrialRun] = []
        teachers: dict[str, TeacherRun] = {}
        maps: dict[str, MapRun] = {}
        needed: dict[str, Run] = {}
        trained: dict[str, TrialRun] = {}
        made: dict[str, TrialRun] = {}
        folders, axes = record.trials_by_key(), record.axes_with(self.study)
        for trial in self.trials:
            key, allocation = self.allocation(trial)
            before = made[trial.before.cell] if trial.before else None
            summing = trial.recipe.uploads == "sums"
            teacher = teacher_run(self, trial, None if summing else before, record)
            if teacher is not None:
                teacher = teachers.setdefault(teacher.folder.id, teacher)
            fixed = map_run(self, trial, teacher, before, record)
            if fixed is not None:
                fixed = maps.setdefault(fixed.folder.id, fixed)
            training = training_key(trial, key, allocation.partition.names, fixed or teacher)
            placed, own = replace(trial, axes=axes), trial_key(trial, training)
            one = TrialRun(
                placed,
                record,
                folders.get(own) or record.trial(f"{readable_name(placed)}-{own}"),
                allocation,
                key,
                training_key=training,
                twin=trained.get(training) if trial.method.rounds == 1 else None,
                teacher=None if fixed else teacher,
                map=fixed,
                before=before,
                min_clients=self.min_clients,
            )
            self._note_finished(one)
            if one.twin is not None and not one.over:
                one.twin.followers += 1
            if not one.over and one.unbriefed:
                # A map whose values are drawn already does not need its teacher.
                helpers = (teacher, fixed) if not (fixed and fixed.over) else ()
                needed |= {helper.folder.id: helper for helper in helpers if helper}
            trained.setdefault(training, one)
            made[trial.cell] = one
            prepared.append(one)
        return [*needed.values(), *prepared]  # other trials run while a teacher trains

    def _note_finished(self, run: TrialRun) -> None:
        """Marks a trial as finished if everything that can still be measured has been measured."""
        finished = run.folder.info().get("status") == "finished"
        if finished and not run.measuring.agenda.possible():
            run.status, run.trained = "finished", True
            for remark in run.measuring.agenda.remarks():
                self.tell(remark)
        elif finished and not run.folder.measures()["checkpoints"]:
            self.tell(
                f"{run.folder.id}: its measures.json is missing. The trial is measured again; "
                "results that `accord fuse` had added are lost"
            )
