"""The details of a fusion and of a client in measures.json."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from accord.core.metrics import Metrics
from accord.data.allocation import PartName

Answer = dict[str, Any]  # of a measure task


def examples_in(answer: Answer | None, fusion: str) -> dict[str, Any]:
    """The key `examples` of a fusion, or nothing if there are none."""
    known = answer["examples"] if answer else {}
    return {"examples": known[fusion]} if fusion in known else {}


def neighbours_in(answer: Answer | None, client: int) -> dict[str, Any]:
    """The key `neighbours` of a client, or nothing if it was not measured."""
    known = answer["neighbours"] if answer else []
    return {"neighbours": known[client]} if known else {}


def left_out(
    answers: Sequence[Answer],
    fusion: str,
    clients: Sequence[str],
    part: PartName,
    everybody: dict[str, Metrics],
) -> dict[str, Any]:
    """The key `leave_one_out` of a fusion, or nothing if it was not measured.

    `answers` are those of all blocks of the part. `everybody` are the metrics of each fusion of all
    clients on the same images. A client without whom the scores are not finite is not listed.
    """
    if not answers or fusion not in answers[0]["without"]:
        return {}
    metrics = everybody[fusion]
    images = sum(map(sum, metrics.confusion))
    each = zip(*(answer["without"][fusion] for answer in answers), strict=True)
    without = {
        client: sum(hits) / images
        for client, hits in zip(clients, each, strict=True)
        if None not in hits
    }
    return {"leave_one_out": {"part": part, "all": metrics.accuracy, "without": without}}
