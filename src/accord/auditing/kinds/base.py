"""The interface of a kind of evidence. It sees every upload once, one after the other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Literal

from accord.auditing.sign import Sign
from accord.core.registry import Registry
from accord.data.imageset import ImageSet
from accord.fusion.base import Fusion, Outputs
from accord.fusion.evaluate import run_net
from accord.fusion.uploads import UploadFiles
from accord.messages import Briefing, Upload


@dataclass(frozen=True)
class Case:
    """What is known about a trial besides its uploads."""

    briefing: Briefing
    rule: Fusion | None  # the trial's own fusion
    labelled: ImageSet | None  # validation or public images; None for a quick look
    part: str = ""  # which of them
    accepted: list[Path] = field(default_factory=list)  # uploads that were seen and not refused

    @cached_property
    def files(self) -> UploadFiles:
        """The uploads, for kinds of evidence that read them again."""
        return UploadFiles(self.accepted, self.briefing)

    @cached_property
    def outputs(self) -> list[Outputs]:
        """The outputs of each client's net for the labelled images."""
        if self.labelled is None:
            return []
        return [run_net(self.files, k, self.labelled, "cpu") for k in range(len(self.files))]


class Kind(ABC):
    """One kind of evidence about the clients of a trial."""

    name: ClassVar[str]
    of: ClassVar[Literal["nets", "sums", "both"]] = "both"  # the uploads that it understands
    quick: ClassVar[bool] = True  # whether it is cheap enough for the warning after a run

    def __init__(self, case: Case) -> None:
        self.case = case

    @abstractmethod
    def see(self, upload: Upload) -> None:
        """Keeps a few numbers of an upload."""

    @abstractmethod
    def judge(self) -> Iterable[Sign]:
        """The signs of all clients, after all uploads were seen."""


kinds: Registry[type[Kind]] = Registry("evidence", "accord.auditing.kinds")
