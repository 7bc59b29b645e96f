"""The task in which the server measures all fusions on one block of images."""

from __future__ import annotations

from typing import Any, Literal

from accord.core.config import Config
from accord.data.allocation import Allocation
from accord.federation.tasks.base import Answer, Task, Tell, briefing_at, register
from accord.fusion.details import NO_DETAILS, Details
from accord.fusion.evaluate import measure_block, merged_files
from accord.fusion.homes import NO_SITES, Homes
from accord.fusion.uploads import UploadFiles
from accord.record.record import Record


class Merged(Config):
    """A fusion that has made its own nets."""

    fusion: dict[str, Any]
    nets: int


@register("measure")
class MeasureBlock(Task):
    """Measures every fusion and every client on one block of images; the answer holds tallies.

    The block holds the images start, start + step, … before `stop` of a part.
    """

    round: int
    epoch: int
    last: bool  # whether the epoch is the last of its round
    part: Literal["test", "validation", "own"]
    start: int
    stop: int
    step: int = 1
    details: Details = NO_DETAILS  # what is wanted besides the tallies
    clients: tuple[str, ...]
    sites: tuple[int, ...] = ()  # the site of each client; empty if clients are no sites
    votes: dict[str, dict[str, Any]]  # name in the results → a rule that uses the clients' nets
    merged: dict[str, Merged]  # name in the results → a rule with its own nets

    @property
    def about(self) -> str:
        return f"{self.part} {self.start + 1}–{self.stop}"

    def perform(self, record: Record, tell: Tell) -> Answer:
        trial = self.folder(record)
        folder = trial.round(self.round)
        briefing = briefing_at(folder.briefing)
        allocation = self.images(record)
        images = allocation.part(self.part).slice(self.start, self.stop, self.step)
        paths = [folder.upload(name, self.epoch, self.last) for name in self.clients]
        merged = {}
        for name, rule in self.merged.items():
            nets = [trial.merged(name, self.epoch, index) for index in range(rule.nets)]
            merged[name] = (rule.fusion, merged_files(rule.fusion, nets, briefing))
        clients = UploadFiles(paths, briefing)

        def told(share: float) -> None:
            tell({"share": share})

        homes = self._homes(allocation)
        return measure_block(
            images, clients, self.votes, merged, self.device, told, homes, self.details
        )

    def _homes(self, allocation: Allocation) -> Homes:
        """The sites of the block's images; not of validation images, which only choose."""
        if self.part == "validation":
            return NO_SITES
        owners = allocation.owners(self.part)[self.start : self.stop : self.step]
        return Homes(allocation.site_names, owners, self.sites)
