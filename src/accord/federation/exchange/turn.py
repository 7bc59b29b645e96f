"""Checks the upload of a round in which one client trains, if it arrived as a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from accord.core.errors import AccordError
from accord.core.names import shown
from accord.methods.in_turn import InTurn


def check_turn(
    path: Path,
    method: InTurn,
    clients: Sequence[str],
    answered: Sequence[Sequence[str]],
    tell: Callable[[str], None],
) -> None:
    """Refuses several uploads, and tells if a client was asked twice in a turn.

    `path` is the briefing, `clients` are those whose uploads arrived, and `answered` those of each
    round before.
    """
    if len(clients) > 1:
        raise AccordError(
            f"expected one upload, because {path} asks one client, whose net the next client "
            f"trains; found those of {', '.join(map(shown, clients))}. Name one of them, and send "
            "the next briefing to another client."
        )
    turn, done = divmod(len(answered), method.turn)
    for name in clients:
        if any(name in names for names in answered[len(answered) - done :]):
            tell(
                f"client {shown(name)} has answered before in turn {turn + 1} of {method.turns}: "
                "send one briefing of every turn to every client, or some clients count twice"
            )
