"""A named fusion: one entry of a recipe's `fusion` or of a study's `fusions`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import SerializeAsAny, model_serializer

from accord.core.config import Config
from accord.core.errors import AccordError
from accord.core.parts import make_part, part_spec
from accord.fusion.base import Fusion, fusions

LABEL = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"  # a label becomes the name of a folder


class NamedFusion(Config):
    """A rule with its name in the registry (`use`) and the name of its rows (`label`)."""

    use: str
    label: str
    rule: SerializeAsAny[Fusion]

    @classmethod
    def read(cls, entry: Any, where: str) -> NamedFusion:
        """The fusion that a name, or a mapping {use, as, parameters…}, describes."""
        if isinstance(entry, NamedFusion):
            return entry
        spec = dict(entry) if isinstance(entry, Mapping) else {"use": entry}
        label = spec.pop("as", spec.get("use"))
        rule = make_part(fusions, spec, where)
        if not isinstance(label, str) or not re.fullmatch(LABEL, label):
            raise AccordError(f"{where}: `as: {label}` should be letters, digits, dots and dashes.")
        return cls(use=spec["use"], label=label, rule=rule)

    @property
    def spec(self) -> dict[str, Any]:
        """The rule as JSON without its label, for workers and saved models."""
        return part_spec(self.use, self.rule)

    def called(self, label: str) -> NamedFusion:
        """The same rule under another label."""
        return self.model_copy(update={"label": label})

    @model_serializer
    def to_json(self) -> dict[str, Any]:
        """The entry as it is written in a study."""
        return {**self.spec, "as": self.label}
