"""The uploads of a trial that have arrived: they are checked before the trial uses them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from accord.core.names import shown
from accord.federation.rounds import Round

if TYPE_CHECKING:
    from accord.federation.trial_run import TrialRun


def known_counts(run: TrialRun, client: str, one: Round) -> Sequence[int] | None:
    """The label counts that a client's upload must have; None if the server does not know them.

    They are those of the images that the client was given. A site with its own images must keep to
    the counts of its first upload: its weight in every fusion depends on them.
    """
    counts = [int(n) for n in run.allocation.partition.label_counts[run.clients.index(client)]]
    if any(counts):
        return counts
    earlier = [o.report.label_counts for o in run.rounds if o.number < one.number and o.closed]
    return next((found[client] for found in earlier if client in found), None)


def refusal_of(run: TrialRun, one: Round, client: str) -> str | None:
    """Why a client's uploads are refused, and put aside; None if they are good."""
    return one.refusal(client, known_counts(run, client, one))


def same_images(run: TrialRun, one: str, two: str) -> bool:
    """Whether a study gives two clients the same images, so that their sums are equal."""
    indices = run.allocation.partition.indices
    a, b = (indices[run.clients.index(name)] for name in (one, two))
    return bool(len(a)) and np.array_equal(a, b)


def check_present(run: TrialRun, one: Round) -> None:
    """Checks the uploads that were there before this command; bad ones are asked for again.

    After a round was closed, only a one-shot trial can ask for an upload again.
    """
    linked = not one.folder.briefing.exists()  # those of a trial with the same training
    if linked or (one.closed and len(run.rounds) > 1):
        return
    for client in one.answered:
        if one.upload(client, one.last_epoch).exists():
            reason = refusal_of(run, one, client)
            if reason is not None:
                run.log.failed(one.number, client, reason)
                run.remarks.append(f"{run.folder.id}: client {shown(client)}: {reason}")


def refuse_copies(run: TrialRun, one: Round) -> None:
    """Refuses uploads that two clients have sent alike, before a round is closed."""
    refused = one.refuse_copies(lambda a, b: same_images(run, a, b))
    for client, reason in refused.items():
        run.silent[client] = reason
        run.log.failed(one.number, client, reason)
