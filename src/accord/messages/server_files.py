"""Files that the server computes once: encoded public images, and the values of a map."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from accord.core.config import Config
from accord.messages.base import Message


class FeaturesHeader(Config):
    """The nets that encoded the images."""

    # Digest of the briefing that these nets were trained for; None: they are from a saved model.
    briefing: str | None = None


@dataclass(frozen=True)
class Features(Message):
    """Features of the public images from the server's teacher, of unit length, and labels."""

    header: FeaturesHeader
    kind: ClassVar[str] = "features"
    header_type: ClassVar[type[Config]] = FeaturesHeader


class MapHeader(Config):
    """The settings of the map that the values belong to."""

    map: dict[str, Any]


@dataclass(frozen=True)
class MapValues(Message):
    """The values of a map of fixed features, drawn by the server."""

    header: MapHeader
    kind: ClassVar[str] = "map"
    header_type: ClassVar[type[Config]] = MapHeader
