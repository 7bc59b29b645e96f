"""The JSON file of an allocation, beside its saved partition."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from accord.attacks.settings import NO_ATTACK, AttackConfig
from accord.core.config import Config, parse
from accord.core.files import read_json
from accord.data.schemes import Partitioned
from accord.data.settings import DataConfig, ShiftConfig


class AllocationFile(Config):
    """The content of an allocation's JSON file."""

    folder: str  # the folder of the decoded dataset in the cache
    data: DataConfig
    scheme: Partitioned
    seed: int
    shift: ShiftConfig
    attack: AttackConfig = NO_ATTACK
    # The name of the partition's file in the same folder.
    partition: str = Field(pattern=r"^[A-Za-z0-9._-]+\.safetensors$")
    key: str  # the hash of all settings above, which shows damage

    @classmethod
    def read(cls, path: Path) -> AllocationFile:
        return parse(cls, read_json(path), str(path))
