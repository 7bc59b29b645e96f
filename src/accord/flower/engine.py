"""The engine of a ServerApp: clients' jobs go to Flower's nodes, the server's own are done here.

A node works on one job at a time. A node that is gone, that does not answer in time or whose upload
is refused fails its job; the trial goes on if enough other clients have answered.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from flwr.app import Message as Envelope
from flwr.app import MessageType
from flwr.serverapp import Grid

from accord.core.errors import ClientError
from accord.core.files import read_json
from accord.core.names import file_name, shown
from accord.core.text import one_line
from accord.core.versions import versions
from accord.engines.base import Engine, Job, Message
from accord.federation.remote import Desk, progress_file
from accord.federation.tasks import Task
from accord.federation.tasks.answer import AnswerBriefing
from accord.flower.letters import Letter
from accord.record.record import Record

Handle = Callable[[Message[Task]], None]
Tell = Callable[[str], None]
MOST = 64  # jobs that wait in the engine, so that not all briefings of a large study are written
PAUSE = 0.1  # seconds between two looks for answers
LOOK = 1.0  # seconds between two looks for nodes, and for their progress
HELLO = 120.0  # seconds in which a node must say its name


class ServerEngine(Engine[Task], Protocol):
    """An engine on this machine that can be heard for a moment."""

    def hear(self, handle: Handle, seconds: float | None = None) -> None: ...


@dataclass(frozen=True)
class Patience:
    """How long the server waits, in seconds: for nodes to connect, and for each answer."""

    connect: float = 60.0
    answer: float = 86_400.0


@dataclass
class _Sent:
    """A message that waits for its answer."""

    node: int
    since: float
    job: Job[Task] | None = None  # None: the question for the node's name


@dataclass
class FlowerEngine:
    """An engine over Flower's grid. `nodes` is the folder of all nodes, if they run here."""

    grid: Grid
    server: ServerEngine  # does the server's own work
    patience: Patience
    tell: Tell
    nodes: Path | None = None
    names: dict[int, str] = field(default_factory=dict)  # node → the client's name
    seen: dict[str, float] = field(default_factory=dict)  # client → when its node was last there
    sent: dict[str, _Sent] = field(default_factory=dict)  # message → whom it was sent to
    waiting: deque[Job[Task]] = field(default_factory=deque)  # jobs for nodes
    own: deque[Job[Task]] = field(default_factory=deque)  # jobs for the server
    told: set[str] = field(default_factory=set)  # what was told once and is not told again

    def open(self, record: Path) -> None:
        self.desk = Desk(Record(record))
        self.server.open(record)
        self.began, self.looked = time.monotonic(), 0.0

    def free(self) -> int:
        return max(0, MOST - len(self.waiting) - len(self.own))

    def busy(self) -> int:
        jobs = sum(one.job is not None for one in self.sent.values())
        return len(self.waiting) + jobs + len(self.own) + self.server.busy()

    def ask(self, job: Job[Task]) -> None:
        if self.desk.addressee(job.task) is None:
            self.own.append(job)
        else:
            self.waiting.append(job)

    def hear(self, handle: Handle) -> None:
        """Calls `handle` with each message, until at least one job has ended."""
        before = self.busy()
        while self.busy() >= before:
            if time.monotonic() - self.looked > LOOK:
                self.looked = time.monotonic()
                self._find_nodes()
                self._tell_progress(handle)
            self._send(handle)
            self._receive(handle)
            self._give_up(handle)
            self._work(handle)

    def _work(self, handle: Handle) -> None:
        """Lets the server do its own jobs; otherwise waits for a moment."""
        while self.own and self.server.free():
            self.server.ask(self.own.popleft())
        if self.server.busy():
            self.server.hear(handle, PAUSE)
        else:
            time.sleep(PAUSE)

    def close(self) -> None:
        """Ends the server's own processes; the nodes stop when the ServerApp ends."""
        self.server.close()

    # --- nodes ---------------------------------------------------------------------------------

    def _find_nodes(self) -> None:
        """Notes which nodes are there. A node that was registered without a name is asked for it.

        The registered name counts: the server's owner gave it, together with the node's key.
        """
        there = list(self.grid.get_nodes())
        known = {node.node_id for node in there}
        for node in [node for node in self.names if node not in known]:
            del self.names[node]
        asked = {one.node for one in self.sent.values() if one.job is None}
        for info in there:
            if info.node_id not in self.names and info.node_id not in asked:
                if info.name:
                    self._meet(info.node_id, info.name)
                else:
                    self._push(info.node_id, Letter({}), MessageType.QUERY, HELLO)
        for name in self.names.values():
            self.seen[name] = time.monotonic()

    def _meet(self, node: int, name: str) -> None:
        if name in self.names.values():
            self._tell_once(
                f"two nodes call themselves {name[:100]!r}; the second one is not asked"
            )
            return
        self.names[node] = name
        self.tell(f"the node of client {shown(name)} is connected")

    def _node_of(self, client: str) -> int | None:
        return next((node for node, name in self.names.items() if name == client), None)

    # --- messages ------------------------------------------------------------------------------

    def _push(
        self, node: int, letter: Letter, kind: str, ttl: float, job: Job[Task] | None = None
    ) -> None:
        envelope = Envelope(letter.to_flower(), node, kind, ttl=ttl)
        for message in self.grid.push_messages([envelope]):
            if message:
                self.sent[message] = _Sent(node, time.monotonic(), job)
                return
        if job is not None:
            self.waiting.append(job)  # Flower did not take it: it is tried again

    def _send(self, handle: Handle) -> None:
        """Sends waiting jobs to their nodes, if these are there and idle."""
        at_work = {one.node for one in self.sent.values()}
        for job in list(self.waiting):
            client = self.desk.addressee(job.task) or ""
            node = self._node_of(client)
            if node is None:
                self._miss(job, client, handle)
            elif node not in at_work and isinstance(job.task, AnswerBriefing):
                self.waiting.remove(job)
                at_work.add(node)
                text, parts = self.desk.request(job.task)
                self._push(node, Letter(text, parts), MessageType.TRAIN, self.patience.answer, job)

    def _miss(self, job: Job[Task], client: str, handle: Handle) -> None:
        """Fails a job whose node has been away for too long."""
        since = self.seen.get(client, self.began)
        if time.monotonic() - since > self.patience.connect:
            self.waiting.remove(job)
            when = "is gone" if client in self.seen else "did not connect"
            said = f"its node {when}: the server waited {self.patience.connect:.0f} s for it."
            self._fail(job, said, handle)

    def _receive(self, handle: Handle) -> None:
        if not self.sent:
            return
        for envelope in self.grid.pull_messages(list(self.sent)):
            found = self.sent.pop(envelope.metadata.reply_to_message_id, None)
            if found is None:
                continue
            try:
                if not envelope.has_content():
                    raise ClientError(f"its node failed: {envelope.error.reason}")
                letter = Letter.from_flower(envelope.content)
            except (ClientError, ValueError) as error:
                if found.job is not None:
                    self._fail(found.job, str(error), handle)
                continue
            if found.job is None:
                self._meet(found.node, str(letter.text.get("name")))
            else:
                self._accept(found.job, letter, handle)

    def _accept(self, job: Job[Task], letter: Letter, handle: Handle) -> None:
        if not isinstance(job.task, AnswerBriefing):
            raise TypeError("only clients answer")
        try:
            result = self.desk.accept(job.task, letter.text, letter.parts)
        except ClientError as error:
            self._fail(job, str(error), handle)
            return
        self._compare(job.task.name, result.pop("versions"))
        handle(Message(job, "done", {"result": result}))

    def _compare(self, client: str, found: dict[str, str]) -> None:
        """Tells once if a node has another version of torch: its last bits may then differ."""
        own = versions()["torch"]
        if found.get("torch") != own:
            self._tell_once(
                f"the node of client {shown(client)} has torch {found.get('torch')}, the server "
                f"{own}: the last bits of results may differ between them"
            )

    def _tell_once(self, line: str) -> None:
        if line not in self.told:
            self.told.add(line)
            self.tell(one_line(line))

    def _give_up(self, handle: Handle) -> None:
        """Fails jobs that were not answered in time."""
        for message, one in list(self.sent.items()):
            limit = HELLO if one.job is None else self.patience.answer
            if time.monotonic() - one.since > limit:
                del self.sent[message]
                if one.job is not None:
                    self._fail(one.job, f"it did not answer within {limit:.0f} s.", handle)

    def _fail(self, job: Job[Task], said: str, handle: Handle) -> None:
        handle(Message(job, "failed", {"error": "client", "message": one_line(said)}))

    def _tell_progress(self, handle: Handle) -> None:
        """The progress of nodes on this machine, which they write into files."""
        if self.nodes is None:
            return
        for one in self.sent.values():
            client = self.names.get(one.node)
            if one.job is None or client is None:
                continue
            path = progress_file(self.nodes / file_name(client))
            share = read_json(path).get("share") if path.exists() else None
            if isinstance(share, float):
                handle(Message(one.job, "news", {"share": min(max(share, 0.0), 1.0)}))
