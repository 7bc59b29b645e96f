"""Reading YAML files that people write, with mistakes explained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from accord.errors import AccordError


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping at the top of a YAML file."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise AccordError(f"{path} does not exist.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise AccordError(f"{path} cannot be read: {error}") from None
    try:
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise AccordError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from None
    if values is None:
        raise AccordError(f"{path} is empty: expected a mapping such as `name: my-study`.")
    if not isinstance(values, dict):
        raise AccordError(
            f"{path}: expected a mapping such as `name: my-study`, found a {type(values).__name__}."
        )
    return values


def to_yaml(values: dict[str, Any]) -> str:
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True, default_flow_style=None)
