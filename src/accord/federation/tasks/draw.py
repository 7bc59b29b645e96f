"""The task in which the server draws the values of a map of fixed features."""

from __future__ import annotations

from typing import Any

from accord.core.heap import large_blocks_apart
from accord.data.allocation import Allocation
from accord.federation.tasks.base import Answer, Task, Tell, register
from accord.federation.tasks.outcome import Outcome
from accord.messages import MAP, NET, MapHeader, MapValues, Upload, unprefixed
from accord.nets.maps import Earlier, MapConfig, Origins, draw_map
from accord.record.record import Record

VALUES = "map.safetensors"


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
        earlier = self._earlier(record, allocation, config)
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

    def _earlier(self, record: Record, allocation: Allocation, config: MapConfig) -> Earlier | None:
        """The encoders of the trial that this one stands on."""
        if self.before is None:
            return None
        net, briefing = self.before.net(record, allocation, self.device)
        wanted = any(part.needs_clients for part in config.parts)
        others = self.before.client_nets(record) if wanted else []
        clients = tuple(unprefixed(MAP, upload.tensors) for upload in others)
        mean, std = briefing.header.mean, briefing.header.std
        head = unprefixed(NET + "head.", net.tensors)
        return Earlier(unprefixed(MAP, net.tensors), head, clients, mean, std)
