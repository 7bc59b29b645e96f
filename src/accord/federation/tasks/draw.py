"""The task in which the server draws the values of a map of fixed features."""

from __future__ import annotations

from typing import Any

import torch

from accord.core.config import Config
from accord.core.heap import large_blocks_apart
from accord.core.parts import make_part
from accord.data.imageset import ImageSet
from accord.federation.tasks.base import Answer, Task, Tell, briefing_at, register
from accord.fusion.base import Merge, Scene, fusions
from accord.fusion.uploads import UploadFiles
from accord.messages import MAP, MapHeader, MapValues, Upload, unprefixed
from accord.nets.maps import Earlier, MapConfig, Origins, draw_map
from accord.record.record import Record

VALUES = "map.safetensors"


class Outcome(Config):
    """The uploads of a finished trial's last round, and the fusion that makes its net."""

    place: str  # the trial's path in the record
    round: int
    epoch: int
    clients: tuple[str, ...]
    fusion: dict[str, Any]
    made_up: bool = False  # in a rehearsal the uploads hold initial weights, and nobody checks them

    def earlier(self, record: Record, public: ImageSet, device: str) -> Earlier:
        """The encoder of the trial's net."""
        folder = record.folder(self.place).round(self.round)
        briefing = briefing_at(folder.briefing)
        paths = [folder.upload(name, self.epoch, last=True) for name in self.clients]
        scene = Scene(
            uploads=UploadFiles(paths, briefing, own=self.made_up),
            briefing=briefing,
            public=public,
            device=torch.device(device),
            clients=len(self.clients),
        )
        rule = make_part(fusions, self.fusion, "fusion")
        if not isinstance(rule, Merge):
            raise TypeError(f"{self.fusion} does not merge nets")
        (net,) = rule.merge(scene)
        header = briefing.header
        return Earlier(unprefixed(MAP, net.tensors), header.mean, header.std)


@register("draw")
class DrawMap(Task):
    """Draws the values of a map, from the seed, the public images and the teachers."""

    map: dict[str, Any]
    seed: int
    teacher: str | None = None  # path of the teacher in the record
    names: tuple[str, ...] = ()  # names of the teacher's nets
    before: Outcome | None = None  # the trial that makes a net of the map

    def perform(self, record: Record, tell: Tell) -> Answer:  # noqa: ARG002 - a minute at most
        allocation, config = self.images(record), MapConfig.model_validate(self.map)
        teachers = tuple(unprefixed(MAP, upload.tensors) for upload in self._uploads(record))
        dataset, public = allocation.dataset, allocation.part("public")
        earlier = self.before.earlier(record, public, self.device) if self.before else None
        origins = Origins(self.seed, public, dataset.mean, dataset.std, teachers, earlier)
        with large_blocks_apart():
            values = draw_map(config, dataset.train.images.shape[3], origins)
        MapValues(MapHeader(map=self.map), values).save(self.folder(record).path / VALUES)
        return {}

    def _uploads(self, record: Record) -> list[Upload]:
        if self.teacher is None:
            return []
        folder = record.folder(self.teacher).last_round
        return [Upload.load(folder.upload(name, 0, last=True)) for name in self.names]
