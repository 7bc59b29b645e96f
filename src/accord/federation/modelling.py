"""A model from the files of nets and the fusion that combines them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from accord.fusion.base import Merge
from accord.fusion.evaluate import combiner_of, merged_files, voting
from accord.fusion.named import NamedFusion
from accord.fusion.uploads import UploadFiles
from accord.messages import NET, Briefing, unprefixed
from accord.messages.saved_model import ModelHeader
from accord.model.predictor import Predictor


def model_of(
    fusion: NamedFusion, nets: Sequence[str | Path], briefing: Briefing, origin: dict[str, Any]
) -> Predictor:
    """The model of `fusion`; `nets` are the clients' uploads, or the nets that it has merged."""
    if isinstance(fusion.rule, Merge):
        files = merged_files(fusion.spec, nets, briefing)
    else:
        files = UploadFiles(nets, briefing)
    combiner = combiner_of(voting(fusion.spec), files)
    header = ModelHeader.of(files.briefing.header, len(files), combiner.name, fusion.spec, origin)
    return Predictor(header, combiner, lambda index: unprefixed(NET, files.load(index).tensors))
