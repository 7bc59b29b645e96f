"""Uploads in memory, instead of files."""

from __future__ import annotations

from collections.abc import Iterable

from accord.fusion.base import Summary
from accord.messages import Briefing, Upload


class Held(list[Upload]):
    """The uploads that answer a briefing."""

    def __init__(self, briefing: Briefing, uploads: Iterable[Upload] = ()) -> None:
        super().__init__(uploads)
        self.briefing = briefing

    def load(self, index: int) -> Upload:
        return self[index]

    def summaries(self) -> list[Summary]:
        return [Summary(upload.header, upload.tensors) for upload in self]
