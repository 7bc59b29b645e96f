"""Uploads of real clients on digits, and the scene of a server that merges them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from accord.client.base import answer
from accord.client.make import make_client
from accord.data.imageset import ImageSet
from accord.fusion.base import Scene
from accord.fusion.uploads import UploadFiles
from accord.messages import Briefing, Memory
from tests_support import images_of

CLIENTS = {
    "0": [0] * 9 + [1] * 3,
    "1": [1] * 4 + [2] * 8 + [3] * 6,
    "2": [3] * 10,
}


def images(client: str) -> ImageSet:
    return images_of(CLIENTS[client])


def scene_of(
    briefing: Briefing,
    folder: Path,
    clients: Sequence[str] = tuple(CLIENTS),
    memories: dict[str, Memory] | None = None,
) -> Scene:
    """Lets these clients answer `briefing`; `memories` are taken along and renewed."""
    kept = {} if memories is None else memories
    paths = []
    for name in clients:
        client = make_client(images(name), briefing, name, memory=kept.get(name))
        paths.append(folder / f"client-{name}.safetensors")
        answer(client).save(paths[-1])
        memory = client.memory()
        if memory is not None:
            kept[name] = memory
    files = UploadFiles(paths, briefing)
    return Scene(uploads=files, briefing=briefing, public=images_of([]), clients=len(CLIENTS))
