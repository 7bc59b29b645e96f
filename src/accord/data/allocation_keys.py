"""Names of allocations and of public images: hashes of all that they depend on."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from accord.attacks.settings import NO_ATTACK, AttackConfig
from accord.data.images import Dataset
from accord.data.schemes import Scheme
from accord.data.settings import NO_SHIFT, DataConfig, ShiftConfig

if TYPE_CHECKING:
    from accord.data.allocation import Allocation


def allocation_key(
    dataset: Dataset,
    data: DataConfig,
    scheme: Scheme,
    seed: int,
    shift: ShiftConfig = NO_SHIFT,
    attack: AttackConfig = NO_ATTACK,
) -> str:
    """A name for an allocation: a hash of the source's content and of all settings that matter."""
    # The path is left out, because the name of the cache entry identifies the content.
    data_text = data.model_dump_json(exclude={"path"})
    settings = f"{data_text} {scheme.model_dump_json()} {shift.model_dump_json()}"
    if attack.attacks:
        settings += f" {attack.model_dump_json()}"
    text = f"{dataset.folder.name} {settings} {seed}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def public_key(allocation: Allocation) -> str:
    """A hash of the public images and their augmentation: all data that a teacher depends on."""
    digest = hashlib.sha256(allocation.split.public.astype("<i8").tobytes())
    digest.update(
        f"{allocation.dataset.folder.name} {allocation.classes} {allocation.data.augment}".encode()
    )
    return digest.hexdigest()[:16]
