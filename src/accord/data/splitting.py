"""The split that a study asks for: its sections `data` and `partition` decide on it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from accord.core.errors import AccordError
from accord.data.elsewhere import no_split
from accord.data.images import Dataset
from accord.data.schemes import Scheme
from accord.data.settings import ELSEWHERE, DataConfig
from accord.data.split import Split, split


def split_of(dataset: Dataset, data: DataConfig, scheme: Scheme, seed: int) -> Split:
    """The purpose of each image. `data.dealt` selects the images that clients hold."""
    if data.name == ELSEWHERE:
        return no_split(data)
    if scheme.elsewhere and data.test_per_client:
        raise AccordError(
            f"'data.test_per_client': expected 0, because the clients hold their own images on "
            f"their own machines; found {data.test_per_client}. Remove the key."
        )
    chosen = split(
        dataset,
        classes=data.classes,
        test_fraction=data.test_fraction,
        public=data.public,
        validation=data.validation,
        train_limit=data.train_limit,
        test_limit=data.test_limit,
        seed=seed,
        column=scheme.named_by,
        test_per_client=data.test_per_client,
    )
    if scheme.named_by and scheme.leave_out:
        chosen = _without(chosen, dataset.train.columns.get(scheme.named_by), scheme.leave_out)
    if data.dealt == "train":
        return chosen
    if data.dealt == "all":
        return replace(chosen, train=np.sort(np.concatenate([chosen.train, chosen.public])))
    if not len(chosen.public):
        raise AccordError(
            "there are no public images to train on: set data.public, for example to 0.1."
        )
    return replace(chosen, train=chosen.public)


def _without(chosen: Split, values: NDArray[np.str_] | None, site: str) -> Split:
    """The split without the public and validation images of a site that takes no part."""
    if values is None:
        return chosen  # the scheme reports the missing column
    public, validation = (part[values[part] != site] for part in (chosen.public, chosen.validation))
    return replace(chosen, public=public, validation=validation)
