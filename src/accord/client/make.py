"""Makes a client from a briefing. Only this module distinguishes the two kinds of clients."""

from __future__ import annotations

from accord.client.base import Client, Precision
from accord.client.summing import Summing
from accord.client.training import Training
from accord.data.imageset import ImageSet
from accord.messages import Briefing, Memory, TrainingSpec


def make_client(
    data: ImageSet,
    briefing: Briefing,
    name: str,
    precision: Precision | None = None,
    memory: Memory | None = None,
) -> Client:
    """The client that the briefing asks for; `memory` is what it has kept from its last round."""
    precision = precision or Precision()
    if isinstance(briefing.header.training, TrainingSpec):
        return Training(data, briefing, name, precision, memory)
    return Summing(data, briefing, name, precision)
