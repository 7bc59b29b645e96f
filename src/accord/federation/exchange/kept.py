"""The server's own file of a round of files: its state, and who has answered so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from pydantic import Field

from accord.core.config import Config, parse
from accord.core.errors import AccordError
from accord.federation.exchange.brief import server_file
from accord.messages import Briefing, ServerState

AGAIN = "Restore it from a copy, or begin again with `accord brief`."


class Answers(Config):
    """The clients of each round before, and the label counts of every client that has answered."""

    answered: tuple[tuple[str, ...], ...] = ()
    label_counts: dict[str, tuple[int, ...]] = Field(default={})

    def and_now(self, counts: Mapping[str, Sequence[int]]) -> Answers:
        """These answers and those of one more round: client → its label counts."""
        known = {**self.label_counts, **{name: tuple(some) for name, some in counts.items()}}
        return Answers(answered=(*self.answered, tuple(sorted(counts))), label_counts=known)


@dataclass(frozen=True)
class Kept:
    """The content of the file at `path`."""

    path: Path
    state: ServerState
    answers: Answers

    def refuse_other(self, briefing: Briefing, path: Path) -> None:
        if self.state.briefing().digest != briefing.digest:
            raise AccordError(
                f"{self.path} belongs to another briefing than {path}. Put the right file there."
            )


def read_kept(briefing: Path) -> Kept | None:
    """The server's file beside a briefing; None if there is none, as with one round."""
    path = server_file(briefing)
    if not path.is_file():
        return None
    state = ServerState.load(path)
    for name, tensor in state.tensors.items():
        if not bool(torch.isfinite(tensor).all()):
            raise AccordError(
                f"{path} is damaged: tensor {name[:100]!r} holds NaN or infinity. {AGAIN}"
            )
    own = {key: value for key, value in state.header.own.items() if key in Answers.model_fields}
    try:
        answers = parse(Answers, own, str(path))
    except AccordError as error:
        raise AccordError(f"{error} {AGAIN}") from None
    classes = len(state.header.briefing.classes)
    if any(len(counts) != classes for counts in answers.label_counts.values()):
        raise AccordError(
            f"{path} is damaged: expected {classes} label counts of each client. {AGAIN}"
        )
    return Kept(path, state, answers)
