"""What a study needs before anything trains: datasets, deals, and one run per trial."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from accord.balance import balances
from accord.data.datasets import load as load_dataset
from accord.data.deal import Deal, deal_key, make_deal, public_key
from accord.data.images import Dataset
from accord.data.settings import DataConfig
from accord.earlier import check_source, digest_of
from accord.engines.maprun import MapRun
from accord.engines.run import Run, choose_device, use_autocast
from accord.engines.teacherrun import TeacherRun
from accord.engines.trialrun import TrialRun
from accord.errors import AccordError
from accord.fusion.base import plain, rule_of
from accord.parts import make_part
from accord.record import Record, TrialFolder
from accord.server import check_map, rehearse, settled_map
from accord.study import Study, Trial
from accord.teacher import NAME, teacher_trial

Tell = Callable[[str], None]


class Plan:
    """What a study needs before anything trains: datasets, deals, and one run per trial."""

    def __init__(self, study: Study, data_root: Path | None, tell: Tell) -> None:
        self.study, self.data_root, self.tell = study, data_root, tell
        self._datasets: dict[str, Dataset] = {}
        self._deals: dict[str, Deal] = {}
        self._digests: dict[str, str] = {}
        self._told: set[str] = set()
        self._revealing: dict[str, tuple[int, int, int]] = {}  # of each recipe, at the worst
        self._required: set[str] = set()  # fusions that can work: some look at many files
        check_devices(study)

    def dataset(self, data: DataConfig) -> Dataset:
        key = f"{data.name} {data.path} {data.image}"
        if key not in self._datasets:
            found = load_dataset(
                data.name,
                path=Path(data.path) if data.path else None,
                root=self.data_root,
                size=data.image.size,
                channels=data.image.channels,
                tell=self.tell,
            )
            for remark in (*found.remarks, *_empty_classes(found)):
                self.tell(f"{data.name}: {remark}")
            self._datasets[key] = found
        return self._datasets[key]

    def deal(self, trial: Trial) -> tuple[str, Deal]:
        """The trial's deal and its key; recipes of one seed share it."""
        data, partition = trial.setup.data, trial.setup.partition
        dataset = self.dataset(data)
        key = deal_key(dataset, data, partition, trial.seed)
        if key not in self._deals:
            self._deals[key] = make_deal(dataset, data, partition, trial.seed)
        return key, self._deals[key]

    def check(self) -> None:
        """Finds every image, deals them all out, and tries each recipe on its net."""
        seen = set()
        for recipe in self.study.recipes:
            for term, spec in recipe.align.items():
                make_part(
                    balances, spec["balance"], f"recipes.{recipe.name}.align.{term}"
                ).require()
        for trial in self.study.trials():
            _, deal = self.deal(trial)
            self.check_fusions(trial, deal)
            self._note_revealing(trial, deal)
            bank, setup = trial.recipe.bank, trial.setup
            kind = f"{setup.data} {setup.net} {setup.budget} {trial.recipe.training} {bank}"
            if kind in seen:
                continue
            seen.add(kind)
            try:
                if bank and bank.source:
                    check_source(TrialFolder(Path(bank.source)), trial, deal)
                check_map(trial, deal)
                rehearse(trial, deal)
            except AccordError as error:
                raise AccordError(f"recipe {trial.recipe.name!r}: {error}") from None
            if bank:
                self._tell_lacking(deal)
        for name, (few, clients, width) in self._revealing.items():
            self.tell(
                f"{name}: {few} of {clients} clients hold fewer images than φ has features "
                f"({width}): their sums tell of single images (docs/closed-form.md)"
            )

    def check_fusions(self, trial: Trial, deal: Deal) -> None:
        """Refuses rules that could not work on this trial's uploads."""
        norm, public = trial.setup.net.norm, len(deal.split.public)
        for spec in trial.fusions:
            key = f"{plain(spec)} {norm} {public}"
            if key in self._required:
                continue
            self._required.add(key)
            try:
                rule_of(spec, f"fusion {spec['as']}").require(norm, public)
            except AccordError as error:
                raise AccordError(f"fusion {spec['as']!r}: {error}") from None

    def _tell_lacking(self, deal: Deal) -> None:
        """Classes too rare for the public set: no mistake, but the bank says nothing of them."""
        there = deal.part("public").label_counts(len(deal.classes))
        lacking = [
            name for name, count in zip(deal.classes, there.tolist(), strict=True) if not count
        ]
        line = (
            f"the public images have none of {len(lacking)} classes ({_some(lacking)}), and so the "
            "bank says nothing of these"
        )
        if lacking and line not in self._told:
            self._told.add(line)
            self.tell(line)

    def _note_revealing(self, trial: Trial, deal: Deal) -> None:
        """Sums of few images tell of each of them: what must be known before they are sent."""
        if not trial.recipe.map or trial.recipe.pooled:
            return
        width = settled_map(trial, deal).width(deal.dataset.train.images.shape[3])
        sizes = deal.partition.label_counts.sum(axis=1)
        few = int((sizes < width).sum())
        if few > self._revealing.get(trial.recipe.name, (0,))[0]:
            self._revealing[trial.recipe.name] = (few, len(sizes), width)

    def keep_sources(self, record: Record) -> None:
        """Earlier trials behind a bank stay what they were when the record was begun."""
        for recipe in self.study.recipes:
            if recipe.bank and recipe.bank.source:
                source = TrialFolder(Path(recipe.bank.source))
                record.keep_source(recipe.name, source, self.digest(source))

    def digest(self, source: TrialFolder) -> str:
        if str(source.path) not in self._digests:
            self._digests[str(source.path)] = digest_of(source)
        return self._digests[str(source.path)]

    def runs(self, record: Record) -> list[Run]:
        """One run per teacher and trial, finished ones included; writes nothing."""
        prepared: list[TrialRun] = []
        teachers: dict[str, TeacherRun] = {}
        maps: dict[str, MapRun] = {}
        needed: dict[str, Run] = {}
        trained: dict[str, TrialRun] = {}
        for trial in self.study.trials():
            key, deal = self.deal(trial)
            teacher = self.teacher(trial, record)
            if teacher is not None:
                teacher = teachers.setdefault(teacher.folder.id, teacher)
            fixed = self.map(trial, teacher, record)
            if fixed is not None:
                fixed = maps.setdefault(fixed.folder.id, fixed)
            training = training_key(trial, key, fixed or teacher)
            folder = record.trial(trial_id(trial, training))
            one = TrialRun(
                trial,
                folder,
                deal,
                record.deal(key),
                training_key=training,
                twin=trained.get(training),
                teacher=None if fixed else teacher,
                map=fixed,
            )
            finished = folder.info().get("status") == "finished"
            if finished and not one.measuring.possible():
                one.stage = "finished"
                for remark in one.measuring.remarks():
                    self.tell(remark)
            elif one.twin is not None:
                one.twin.followers += 1
            if not one.over and one.unbriefed:
                # A map that is drawn already needs no teacher any more.
                helpers = (teacher, fixed) if not (fixed and fixed.over) else ()
                needed |= {helper.folder.id: helper for helper in helpers if helper}
            trained.setdefault(training, one)
            prepared.append(one)
        return [*needed.values(), *prepared]  # others train while a teacher does

    def teacher(self, trial: Trial, record: Record) -> TeacherRun | None:
        """Who encodes the public images of a trial with a bank, or gives its map an encoder."""
        bank, fixed = trial.recipe.bank, trial.recipe.map
        if bank is None and (fixed is None or not fixed.teachers):
            return None
        teachers = fixed.teachers if fixed else 1
        key, deal = self.deal(trial)
        source = TrialFolder(Path(bank.source)) if bank and bank.source else None
        teacher, images = teacher_trial(trial), public_key(deal)
        known = _key(images, self.digest(source)) if source else training_key(teacher, images, None)
        several = f"{teachers}-" if teachers > 1 else ""
        folder = record.teacher(f"teacher-{several}s{trial.seed}-{known}")
        return TeacherRun(teacher, folder, deal, record.deal(key), source=source, teachers=teachers)

    def map(self, trial: Trial, teacher: TeacherRun | None, record: Record) -> MapRun | None:
        """Who draws the fixed features of a trial that has some."""
        if trial.recipe.map is None:
            return None
        key, deal = self.deal(trial)
        settled = settled_map(trial, deal)
        images = public_key(deal) if settled.needs_public else deal.dataset.train.images.shape[3]
        origin = teacher.folder.id if teacher else None
        known = _key(settled.model_dump(mode="json"), images, trial.seed, origin)
        folder = record.teacher(f"map-s{trial.seed}-{known}")
        return MapRun(trial, folder, deal, record.deal(key), map=settled, teacher=teacher)


def _empty_classes(dataset: Dataset) -> list[str]:
    """Labels with gaps make classes that nobody holds: allowed, but hardly meant."""
    held = set(np.unique(dataset.train.labels).tolist())
    empty = [name for index, name in enumerate(dataset.classes) if index not in held]
    return [f"{len(empty)} classes have no training image ({_some(empty)})"] if empty else []


def _some(names: list[str]) -> str:
    return ", ".join(names[:5]) + (", …" if len(names) > 5 else "")


def training_key(trial: Trial, deal: str, helper: Run | None) -> str:
    """Equal for trials whose clients train alike: recipes may differ in name and fusion only."""
    setup = trial.setup.model_dump(mode="json")
    who = NAME if trial.recipe.name == NAME else "0"
    options = [use_autocast(trial.options, who), trial.options.compile]
    parts = [deal, setup["net"], setup["budget"], trial.recipe.training, trial.seed, options]
    bank = trial.recipe.bank
    if helper:
        parts.append(helper.folder.id)
    if bank:
        parts.append(bank.model_dump(mode="json", include={"size", "selection"}))
    return _key(*parts)


def _key(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:10]


def trial_id(trial: Trial, training: str) -> str:
    """A name that people can read and that no two different trials share."""
    alpha = trial.setup.partition.alpha
    words = [trial.recipe.name, f"a{alpha:g}" if alpha else "", f"s{trial.seed}", training]
    return "-".join(word for word in words if word)


def check_devices(study: Study) -> None:
    """A device that is not there is told before anything trains."""
    asked = study.options.device
    names = set(asked.values()) if isinstance(asked, dict) else {asked}
    for name in names:
        try:
            torch.empty(1, device=choose_device(name, "0"))
        except (RuntimeError, AssertionError) as error:
            cuda = [f"cuda:{index}" for index in range(torch.cuda.device_count())]
            raise AccordError(
                f"device {name!r} cannot be used here ({type(error).__name__}). This machine has: "
                f"{', '.join(['cpu', *cuda])}."
            ) from None
