"""Times the work of the server: to begin a round, to merge uploads, and to measure fusions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from accord.checks import check_values
from accord.closed_form.sums import Sums
from accord.core.clock import Stopwatch
from accord.core.parts import make_part
from accord.data.imageset import ImageSet
from accord.federation.pooled_sums import total_of
from accord.federation.rehearsal.speed import Effort
from accord.federation.tasks.base import release_memory
from accord.fusion.base import Merge, Scene, Vote, fusions
from accord.fusion.evaluate import measure_block, merged_files
from accord.fusion.uploads import UploadFiles
from accord.messages import Briefing, ServerState
from accord.methods import Method
from accord.record.folders import TrialFolder

Spec = dict[str, Any]
Merged = dict[str, tuple[Spec, UploadFiles]]  # fusion → its specification and its nets


@dataclass(frozen=True)
class ServerWork:
    """The work of the server with a few uploads."""

    folder: TrialFolder
    briefing: Briefing
    uploads: list[Path]
    public: ImageSet  # a few of the public images
    images: ImageSet  # one block of the images that are measured
    device: str

    def measure(self, method: Method | None, rules: dict[str, Spec]) -> dict[str, Any]:
        """The values of `Speed` that describe the server. `method` is None if no round begins."""
        advance, after = None, None
        if method is not None:
            advance, after = self._advance(method)
        merges: dict[str, Effort] = {}
        merged: Merged = {}
        for index, (name, spec) in enumerate(rules.items()):
            rule = make_part(fusions, spec, "fusion")
            if isinstance(rule, Merge):
                merges[name], nets = self._merge(rule, str(index), after)
                merged[name] = (spec, merged_files(spec, nets, self.briefing))
        votes = {
            name: spec
            for name, spec in rules.items()
            if isinstance(make_part(fusions, spec, "fusion"), Vote)
        }
        return {
            "load": self._load(),
            "advance": advance,
            "merges": merges,
            "forward": self._forward(votes, merged),
        }

    @property
    def _sums(self) -> bool:
        return self.briefing.header.uploads == "sums"

    def _files(self) -> UploadFiles:
        return UploadFiles(self.uploads, self.briefing, check=check_values)

    def _load(self) -> float:
        """The seconds to read, check and add an upload."""
        spent = Stopwatch()
        found = self._files().load(0)
        if self._sums:
            found_sums = Sums.of(found.tensors)
            found_sums + found_sums
        return spent.seconds

    def _scene(self, after: ServerState | None = None) -> Scene:
        files = self._files()
        return Scene(
            uploads=files,
            briefing=self.briefing,
            public=self.public,
            validation=self.images,
            device=torch.device(self.device),
            total=total_of(files, self.folder.total) if self._sums else None,
            after=after,
            clients=len(files),
        )

    def _advance(self, method: Method) -> tuple[Effort, ServerState]:
        short = method.shortened()
        state = ServerState.load(self.folder.round(1).server_state)
        spent = Stopwatch(self.device)
        found = short.advance(state, self._scene())
        found.save(self.folder.round(2).server_state)
        seconds = spent.seconds
        release_memory()  # the next work is another job
        return self._effort(seconds, short.work(len(self.public))), found

    def _merge(
        self, rule: Merge, name: str, after: ServerState | None
    ) -> tuple[Effort, list[Path]]:
        short = rule.shortened()
        spent = Stopwatch(self.device)
        paths = []
        for index, upload in enumerate(short.merge(self._scene(after))):
            paths.append(self.folder.merged(name, 0, index))
            upload.save(paths[-1])
        seconds = spent.seconds
        release_memory()
        return self._effort(seconds, short.work(len(self.public))), paths

    def _effort(self, seconds: float, work: float) -> Effort:
        return Effort(seconds=seconds, clients=len(self.uploads), work=work)

    def _forward(self, votes: dict[str, Spec], merged: Merged) -> float:
        """The seconds of one net for one image, with the reading of the net and the votes."""
        alone = 0 if self._sums else len(self.uploads)
        nets = alone + sum(len(files) for _, files in merged.values())
        if not nets or not len(self.images):
            return 0.0
        spent = Stopwatch(self.device)
        measure_block(self.images, self._files(), votes, merged, self.device, lambda _: None)
        return spent.seconds / (nets * len(self.images))
