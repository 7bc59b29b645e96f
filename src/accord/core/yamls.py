"""Reading of YAML files that users write; errors explain the mistakes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from accord.core.errors import AccordError

# For files that Accord wrote itself: the C loader reads the same YAML and is ten times faster.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping at the top of a YAML file."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise AccordError(f"{path} does not exist.") from None
    except IsADirectoryError:
        raise AccordError(f"{path} is a folder; expected a YAML file.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise AccordError(f"{path} cannot be read: {error}") from None
    try:
        values = yaml.load(text, Loader=_Strict)  # a SafeLoader that refuses repeated keys
    except yaml.YAMLError as error:
        tabs = " YAML is indented with spaces, not tabs." if "'\\t'" in str(error) else ""
        why = " ".join(str(error).split()).replace('in "<unicode string>", ', "at ")
        raise AccordError(f"{path} is not valid YAML: {why}.{tabs}") from None
    if values is None:
        raise AccordError(f"{path} is empty: expected a mapping such as `name: my-study`.")
    if not isinstance(values, dict):
        raise AccordError(
            f"{path}: expected a mapping such as `name: my-study`, found a {type(values).__name__}."
        )
    return values


def to_yaml(values: dict[str, Any]) -> str:
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True, default_flow_style=None)


class _Strict(yaml.SafeLoader):
    """A safe loader that refuses a repeated key, because one of its two values would be lost."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            name = str(key.value)
            if name in seen and name != "<<":
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {name!r} occurs twice", key.start_mark
                )
            seen.add(name)
        return super().construct_mapping(node, deep)
