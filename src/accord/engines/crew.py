"""The workers of a Dask cluster: who is there, who is fit for work, and who is free."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from accord.core.errors import AccordError
from accord.engines.dask import Call, Function, Link, Seen

WAITING = 30.0  # seconds between two lines that tell that there is no worker

Content = dict[str, Any]
Judge = Callable[[Content], str | None]


@dataclass(eq=False)
class Member:
    """One worker process, which does one job at a time."""

    seen: Seen
    state: Literal["examined", "fit", "unfit"] = "examined"
    exam: Call | None = None
    busy: bool = False
    reason: str = ""  # why it is unfit

    @property
    def name(self) -> str:
        seen = self.seen
        return seen.name if seen.name == seen.address else f"{seen.name} ({seen.address})"


class Crew:
    """Examines every worker before its first job, also workers that join later.

    `examine` is executed by the worker, with `question` as its content; `judge` gives the reason
    why its answer makes it unfit, or None.
    """

    def __init__(
        self, link: Link, examine: Function, judge: Judge, tell: Callable[[str], None]
    ) -> None:
        self._link, self._examine, self._judge, self._tell = link, examine, judge, tell
        self.question: Content = {}
        self._members: dict[str, Member] = {}
        self._told_threads = False
        self._told_waiting = time.monotonic()

    def look(self) -> None:
        """Takes note of the workers that have come and gone."""
        seen = self._link.workers()
        if seen is None:
            return
        for key in self._members.keys() - seen.keys():
            exam = self._members.pop(key).exam
            if exam is not None:
                self._link.drop([exam])
        for key, worker in seen.items():
            if key in self._members:
                self._members[key].seen = worker
            else:
                member = self._members[key] = Member(worker)
                member.exam = self._link.call(self._examine, self.question, worker.address)

    def there(self, member: Member) -> bool:
        return self._members.get(member.seen.key) is member

    def leave(self, member: Member) -> None:
        """Forgets a worker that has lost its job; if it is still there, it is examined again."""
        if self.there(member):
            del self._members[member.seen.key]

    def idle(self) -> list[Member]:
        """The workers that can begin a job now."""
        members = self._members.values()
        return [one for one in members if one.state == "fit" and not one.busy and one.seen.running]

    def heard(self, call: int) -> bool:
        """Takes the end of a call, if it is the examination of a worker."""
        for member in self._members.values():
            if member.exam is not None and member.exam.number == call:
                self._decide(member, member.exam)
                return True
        return False

    def _decide(self, member: Member, exam: Call) -> None:
        outcome, member.exam = self._link.outcome(exam), None
        if outcome.kind == "lost":
            self.leave(member)
            return
        found = outcome.body
        reason = (
            f"it cannot run Accord ({found['message']}). Install the same version of Accord there."
            if outcome.kind == "error"
            else self._judge(found)
        )
        if reason is not None:
            member.state, member.reason = "unfit", reason
            self._tell(f"worker {member.name} gets no jobs: {reason}")
            return
        member.state = "fit"
        if member.seen.threads > 1 and not self._told_threads:
            self._told_threads = True
            self._tell(
                f"worker {member.name} has {member.seen.threads} threads, but Accord uses one "
                "thread of each worker process. Start more workers with --nthreads 1 to use all "
                "cores."
            )

    def wait_or_stop(self) -> None:
        """Tells that there is no worker for the jobs. Stops if every worker is unfit."""
        states = [member.state for member in self._members.values()]
        if "fit" in states:
            self._told_waiting = time.monotonic()
            return
        if states and "examined" not in states:
            unfit = "\n".join(f"  {one.name}: {one.reason}" for one in self._members.values())
            raise AccordError(
                f"no worker of the cluster at {self._link.address} can be used:\n{unfit}\n"
                "Correct the workers and run the same command again."
            )
        if time.monotonic() - self._told_waiting > WAITING:
            self._told_waiting = time.monotonic()
            checked = f" ({len(states)} not yet examined)" if states else ""
            self._tell(
                f"waiting for workers of the cluster at {self._link.address}{checked}; Ctrl-C stops"
            )
