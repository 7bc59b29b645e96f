"""Runs one trial: in every round brief, ask and advance; then merge, measure and record."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

from accord.core.names import shown
from accord.engines.base import Job
from accord.federation.arrivals import check_present, refusal_of, refuse_copies
from accord.federation.briefing import public_studied
from accord.federation.devices import choose_device
from accord.federation.map_run import MapRun
from accord.federation.measuring import Measuring
from accord.federation.measuring.scope import Scope
from accord.federation.membership import EVERYBODY, Membership
from accord.federation.rounds import Round, forget_memories, link_uploads, remembered, rounds_of
from accord.federation.standing import rounds_before
from accord.federation.starting import first_state
from accord.federation.tasks import Task
from accord.federation.tasks.advance import Advance
from accord.federation.tasks.answer import AnswerBriefing
from accord.federation.teacher_run import TeacherRun
from accord.federation.trial_info import trial_info
from accord.federation.trial_log import TrialLog
from accord.federation.waiting import can_begin, failed_before
from accord.federation.work import Run, Step
from accord.fusion.named import NamedFusion
from accord.messages import ServerState

UNKNOWN = 1_000  # images of a site, for the estimate of its work; the server does not know them


@dataclass
class TrialRun(Run):
    """Runs a trial; `twin`, `teacher` and `map` are runs that it waits for."""

    kind: ClassVar[str] = "trial"
    training_key: str = field(kw_only=True)  # trials with the same key have the same training
    twin: TrialRun | None = field(default=None, kw_only=True)  # earlier one with the same training
    teacher: TeacherRun | None = field(default=None, kw_only=True)  # makes the features of its bank
    map: MapRun | None = field(default=None, kw_only=True)  # draws its fixed features
    before: TrialRun | None = field(default=None, kw_only=True)  # it begins with its result
    followers: int = field(default=0, kw_only=True)  # later trials that still need its uploads
    trained: bool = field(default=False, kw_only=True)  # all uploads of all rounds exist
    again: bool = field(default=False, kw_only=True)  # it was finished and is now fused again
    min_clients: int | None = field(default=None, kw_only=True)  # uploads that a round needs
    silent: dict[str, str] = field(default_factory=dict, kw_only=True)  # failed client → reason

    @cached_property
    def rounds(self) -> tuple[Round, ...]:
        return rounds_of(self.trial, self.folder, self.clients, self.min_clients)

    @cached_property
    def measuring(self) -> Measuring:
        return self._measuring()

    @cached_property
    def log(self) -> TrialLog:
        return TrialLog(self.folder)

    def _measuring(self, membership: Membership = EVERYBODY, keep: str | None = None) -> Measuring:
        about = (self.trial, self.folder, self.allocation, self.rounds)
        scope = Scope(*about, membership, keep, rounds_before(self))
        return Measuring(scope, self.place, self.key, self.device)

    @property
    def clients(self) -> tuple[str, ...]:
        return self.allocation.partition.names

    @property
    def device(self) -> str:  # of the server
        return choose_device(self.trial.options.device, self.clients[0])

    # --- what is left to do --------------------------------------------------------------------

    def untrained(self) -> list[tuple[Round, str]]:
        """Rounds and clients that still have to answer."""
        return [(one, client) for one in self.rounds for client in self._missing(one)]

    def _missing(self, one: Round) -> list[str]:
        """The clients that still have to answer in a round.

        In a one-shot trial, clients answer again if a user has deleted their uploads. With several
        rounds this is impossible, because the clients' memories no longer exist.
        """
        if not one.closed:
            return one.unanswered()
        if len(self.rounds) > 1:
            return []
        return [c for c in one.answered if not one.upload(c, one.last_epoch).exists()]

    @property
    def unbriefed(self) -> bool:
        """Whether the first briefing must still be made, which needs the teacher and the map."""
        return not self.folder.briefing.exists() or bool(self._missing(self.rounds[0]))

    def training_size(self, client: str) -> float:
        """A client's work in one round, measured in images passed through the net."""
        deal = self.allocation
        own = int(deal.partition.label_counts[self.clients.index(client)].sum())
        images = (own or UNKNOWN) + public_studied(self.trial, deal)
        return float(images * self.trial.setup.budget.epochs * self.trial.recipe.views_per_image)

    def work(self) -> float:
        left, agenda = ([] if self.twin else self.untrained()), self.measuring.agenda
        training = sum(self.training_size(client) for _, client in left)
        return training + self.advance_work() + agenda.merge_work() + agenda.measure_work()

    def advance_work(self) -> float:
        """The work of the server to begin the rounds that are left."""
        left = sum(not one.closed for one in self.rounds) if self.trial.recipe.several_rounds else 0
        return left * self.trial.method.work(len(self.allocation.split.public))

    # --- the steps of a trial ------------------------------------------------------------------

    def way(self) -> Iterator[Step]:
        while not can_begin(self):
            yield None
        self.failures += failed_before(self)
        self._write_info("running")
        if self.failures:
            return
        if self.twin is not None:
            link_uploads(self.twin.rounds, self.rounds)
        self.log.began(self.trial.recipe.name, self.rounds)
        measuring: list[Job[Task]] = []  # jobs of the round before, done while clients train
        for one in self.rounds:
            yield [*self._questions(one), *measuring]
            self._tidy_before(one)
            self._close(one)
            if self.failures:
                return
            self.trained = one is self.rounds[-1]
            yield self._advance(one)
            yield list(self.measuring.merge_jobs(one))
            measuring = list(self.measuring.measure_jobs(one))
        yield measuring
        self.remarks += self.measuring.agenda.remarks()
        self._write_measures(self.rounds[-1])

    def fuse_again(
        self, fusions: list[NamedFusion], membership: Membership, keep: str | None
    ) -> None:
        """Prepares the finished trial for other fusions of its uploads.

        The nets of the fusion `keep` are kept until `forget_merged`.
        """
        self.trial = replace(self.trial, fusions=tuple(fusions))
        self.measuring = self._measuring(membership, keep)
        self.status, self.again, self.steps = "open", True, self._fusing()

    def _fusing(self) -> Iterator[Step]:
        """Only the last steps; earlier rounds are measured if their uploads still exist."""
        yield self._advance(self.rounds[-1])
        for one in self.rounds:
            yield list(self.measuring.merge_jobs(one))
            yield list(self.measuring.measure_jobs(one))
        self.remarks += self.measuring.agenda.remarks()
        self.measuring.write()

    def take(self, job: Job[Task], result: dict[str, Any]) -> None:
        super().take(job, result)
        self.measuring.tallies.take(job.task, result)
        if isinstance(job.task, AnswerBriefing):
            one = self.rounds[job.task.round - 1]
            refusal = refusal_of(self, one, job.task.name)
            if refusal is not None:
                self.take_failure(job, refusal)
            else:
                self.log.answered(one, job.task.name)
        elif isinstance(job.task, Advance):
            self.log.advanced(job.task.round, len(job.task.answered), result)

    def take_failure(self, job: Job[Task], reason: str) -> None:
        if isinstance(job.task, AnswerBriefing):
            self.silent[job.task.name] = reason
            self.log.failed(job.task.round, job.task.name, reason)
        else:
            super().take_failure(job, reason)

    # --- one round -----------------------------------------------------------------------------

    def _questions(self, one: Round) -> list[Job[Task]]:
        """Writes the briefing and asks the clients that have not answered, the largest first."""
        self.silent = {}
        check_present(self, one)
        missing = self._missing(one)
        if missing or (one.number == 1 and not one.folder.briefing.exists()):
            self.write_briefing(one.folder, self.trial.method.brief(self._state(one)))
        sizes = self.allocation.partition.label_counts.sum(axis=1).tolist()
        self.log.asked(one, missing, dict(zip(self.clients, sizes, strict=True)))
        return [
            self.question(
                client,
                self.clients.index(client),
                self.training_size(client),
                number=one.number,
                remembers=remembered(self.rounds, client, one),
                at_server=bool(self.trial.recipe.pooled),
            )
            for client in sorted(missing, key=self.training_size, reverse=True)
        ]

    def _state(self, one: Round) -> ServerState:
        """The server's state at the start of a round; that of round 1 is made here and kept."""
        path = one.folder.server_state
        if path.exists():
            return ServerState.load(path)
        state = first_state(self.trial, self.allocation, self.teacher, self.map)
        if self.trial.recipe.several_rounds:
            state.save(path)
        return state

    def _close(self, one: Round) -> None:
        """Writes the round's report; if too few clients have answered, the trial fails."""
        if one.closed:
            return
        refuse_copies(self, one)
        missing = one.unanswered()
        there = len(one.asked) - len(missing)
        if there < one.needed:
            self.log.stopped(one, there)
            reasons = [f"client {shown(name)}: {reason}" for name, reason in self.silent.items()]
            self.failures += reasons or [f"client {shown(missing[0])} left no upload"]
            if len(self.rounds) > 1:
                self.failures.append(
                    f"round {one.number} got {there} uploads and needs {one.needed}; run the same "
                    "command again to ask the missing clients again"
                )
            return
        self._write_events(one, [name for name in one.asked if name not in missing])
        fused = self.trial.method.fusion_applied(one.number)
        one.close(self.silent, fused, keep_counts=self.allocation.scheme.elsewhere)
        self.log.closed(one)
        if not self.trial.options.keep_checkpoints:
            forget_memories(self.rounds, one)
        for name, reason in one.report.failed.items():
            self.remarks.append(
                f"{self.folder.id}: client {shown(name)} failed in round {one.number}, which "
                f"went on without it: {reason}"
            )

    def _write_events(self, one: Round, answered: list[str]) -> None:
        """Writes events.jsonl in order: the lines of earlier rounds, then those of this round."""
        before = [e for e in self.folder.read_events() if e["round"] < one.number]
        self.folder.write_events([*before, *self.events_of(one.folder, answered)])

    def _advance(self, one: Round) -> list[Job[Task]]:
        """The job that makes the state after a round, if it is needed and does not exist."""
        if self.folder.round(one.number + 1).server_state.exists():
            return []
        if one is self.rounds[-1]:
            if not self.measuring.scope.uses_final_state:
                return []
        elif self.rounds[one.number].closed:
            return []
        task = Advance(
            place=self.place,
            allocation=self.key,
            device=self.device,
            round=one.number,
            method=self.trial.method_spec,
            epoch=one.last_epoch,
            answered=one.answered,
            clients=len(self.clients),
        )
        return [Job(task, self.trial.method.work(len(self.allocation.split.public)))]

    def _tidy_before(self, one: Round) -> None:
        """Removes the uploads of the round before, which has been measured by now."""
        if one.number == 1:
            return
        before = self.rounds[one.number - 2]
        self._write_measures(before)
        if not self.trial.options.keep_checkpoints:
            before.forget()

    def _write_measures(self, one: Round) -> None:
        if self.measuring.write():
            self.log.measured(one.number)

    # --- the end -------------------------------------------------------------------------------

    def close(self) -> None:
        if self.twin is not None:
            self.twin.followers -= 1
            self.twin.tidy()

    def tidy(self) -> None:
        """Removes files that only an unfinished trial, or one with the same training, needs."""
        if self.status != "finished" or self.followers or self.trial.options.keep_checkpoints:
            return
        *earlier, last = self.rounds
        for one in earlier:
            one.forget()
            shutil.rmtree(one.folder.path / "memory", ignore_errors=True)
        last.forget_checkpoints()

    def end(self, status: Literal["finished", "failed"]) -> None:
        if status == "failed" and self.again:
            return  # its earlier results are kept
        self._write_info(status)
        self.tidy()

    def _write_info(self, status: Literal["running", "finished", "failed"]) -> None:
        self.folder.write_info(trial_info(self, status, self.folder.info()))
