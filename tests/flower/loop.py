"""A grid in this process: it hands Flower's own messages to the functions of a node."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from flwr.app import Context, Message, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

from accord.flower.client import answer, say_name

Change = Callable[[Message], Message | None]  # what a bad node does to its answer; None: nothing


@dataclass
class Loop(Grid):
    """Nodes with their configurations; `changes` are what bad nodes do to their answers."""

    nodes: dict[int, dict[str, Any]]
    registered: dict[int, str] = field(default_factory=dict)
    changes: dict[int, Change] = field(default_factory=dict)
    waiting: dict[str, Message] = field(default_factory=dict)
    asked: list[tuple[int, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        # Flower sets these in the process of a ServerApp, before any message can be made.
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1

    def set_run(self, run: Run) -> None: ...

    @property
    def run(self) -> Run:
        raise NotImplementedError

    def create_message(self, *_: Any, **__: Any) -> Message:
        raise NotImplementedError

    def send_and_receive(self, *_: Any, **__: Any) -> Iterable[Message]:
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        return list(self.nodes)

    def get_nodes(self) -> Iterable[NodeInfo]:
        return [NodeInfo(node_id=n, name=self.registered.get(n, "")) for n in self.nodes]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        sent = []
        for message in messages:
            name = f"message-{len(self.asked)}"
            message.metadata.__dict__["_message_id"] = name
            node, kind = message.metadata.dst_node_id, message.metadata.message_type
            self.asked.append((node, kind))
            context = Context(0, node, self.nodes[node], RecordDict(), {})
            reply = (say_name if kind == "query" else answer)(message, context)
            change = self.changes.get(node) if kind == "train" else None
            changed = change(reply) if change else reply
            if changed is not None:
                self.waiting[name] = changed
            sent.append(name)
        return sent

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self.waiting.pop(name) for name in list(message_ids) if name in self.waiting]
