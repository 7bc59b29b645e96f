"""Reading of YAML files that users write; errors explain the mistakes.

Values are read as the core schema of YAML 1.2 says, and not as YAML 1.1, in which `1:30` is 90,
`no` is false and `2024-01-01` is a date: these are texts here. A number that the two versions read
differently is refused. The work is limited before it begins: the size of the file, the depth of its
nesting, and the number of entries that its aliases repeat.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, ClassVar

import yaml

from accord.core.errors import AccordError
from accord.core.reading import DEEPEST, read_text
from accord.core.text import one_line

# The C loader reads the same YAML and is ten times faster.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
MOST_YAML = 2**20  # bytes of a file that a user writes
MOST_REPEATED = 10_000  # entries that all aliases of a file repeat
LONGEST_NUMBER = 100  # characters

NULL = r"~|null|Null|NULL|"
BOOL = r"true|True|TRUE|false|False|FALSE"
INT = r"[-+]?[0-9]+|0x[0-9a-fA-F]+|0o[0-7]+"
FLOAT = (
    r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)
OCTAL = re.compile(r"[-+]?0[0-9]+|0o[0-7]+")


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping at the top of a YAML file."""
    return mapping_of(read_text(path, MOST_YAML), path)


def mapping_of(text: str, path: Path) -> dict[str, Any]:
    """The mapping at the top of a YAML text, which was read from `path`."""
    try:
        values = yaml_of(text)
    except ValueError as error:
        raise AccordError(f"{path} is not valid YAML: {error}") from None
    if values is None:
        raise AccordError(f"{path} is empty: expected a mapping such as `name: my-study`.")
    if not isinstance(values, dict):
        raise AccordError(
            f"{path}: expected a mapping such as `name: my-study`, found a {type(values).__name__}."
        )
    return values


def yaml_of(text: str) -> Any:
    """The value of a YAML text. Raises ValueError with the reason if it cannot be read."""
    try:
        _refuse_large(text)
        return yaml.load(text, Loader=_Strict)  # a SafeLoader
    except yaml.YAMLError as error:
        why = one_line(str(error)).replace('in "<unicode string>", ', "at ")
        raise ValueError(f"{why}.{_about_tabs(error, text)}") from None
    except (RecursionError, MemoryError):
        raise ValueError("its content is too large or too deeply nested.") from None


def to_yaml(values: dict[str, Any]) -> str:
    return yaml.dump(
        values,
        Dumper=_Quoting,
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=None,
    )


def _about_tabs(error: yaml.YAMLError, text: str) -> str:
    mark = getattr(error, "problem_mark", None)
    lines = text.splitlines()[mark.line : mark.line + 1] if mark else []
    indent = [line[: len(line) - len(line.lstrip())] for line in lines]
    return " YAML is indented with spaces, not tabs." if any("\t" in one for one in indent) else ""


def _refuse_large(text: str) -> None:
    """Refuses deep nesting, and aliases that repeat too much, before anything is built."""
    sizes: dict[str, int] = {}  # anchor → number of entries
    open_now: list[tuple[str | None, int]] = []  # anchor of each open list or mapping, and its size
    repeated = 0
    for event in yaml.parse(text, Loader=LOADER):
        size, anchor = 1, getattr(event, "anchor", None)
        if isinstance(event, yaml.CollectionStartEvent):
            open_now.append((anchor, 1))
            if len(open_now) > DEEPEST:
                raise _refused(f"it is nested more than {DEEPEST} levels deep", event.start_mark)
            continue
        if isinstance(event, yaml.CollectionEndEvent):
            anchor, size = open_now.pop()
        elif isinstance(event, yaml.AliasEvent):
            if anchor not in sizes:
                raise _refused(f"*{anchor} stands for nothing before it", event.start_mark)
            size = sizes[str(anchor)]
            repeated += size
        elif not isinstance(event, yaml.ScalarEvent):
            continue
        if repeated > MOST_REPEATED or size > MOST_REPEATED * DEEPEST:
            raise _refused(
                f"its aliases repeat more than {MOST_REPEATED:,} entries; write them out",
                event.start_mark,
            )
        if anchor is not None and not isinstance(event, yaml.AliasEvent):
            sizes[anchor] = size
        if open_now:
            open_now[-1] = (open_now[-1][0], open_now[-1][1] + size)


def _refused(why: str, mark: Any) -> yaml.YAMLError:
    return yaml.constructor.ConstructorError(None, None, why, mark)


class _Strict(LOADER):  # type: ignore[misc, valid-type]
    """A safe loader with the core schema of YAML 1.2.

    It refuses a repeated key, because one of its two values would be lost, and every tag except
    those of the core schema.
    """

    yaml_implicit_resolvers: ClassVar[dict[Any, Any]] = {}
    yaml_constructors: ClassVar[dict[Any, Any]] = {}

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            name = str(key.value)
            if name in seen and name != "<<":
                raise _refused(f"the key {name!r} occurs twice", key.start_mark)
            seen.add(name)
        found: dict[Any, Any] = super().construct_mapping(node, deep)
        return found

    def number(self, node: yaml.ScalarNode) -> int | float:
        """A whole number or a decimal number. The text is checked, because a tag can be wrong."""
        text, whole = node.value, node.tag.endswith(":int")
        if len(text) > LONGEST_NUMBER:
            raise _refused(f"a number of {len(text):,} digits cannot be meant", node.start_mark)
        if OCTAL.fullmatch(text):
            raise _refused(
                f"{text} is another number in YAML 1.1 than in YAML 1.2. Write it without the "
                f"leading zero, or as text in quotes: '{text}'",
                node.start_mark,
            )
        if not re.fullmatch(INT if whole else FLOAT, text):
            raise _refused(f"expected a number, found {text[:40]!r}", node.start_mark)
        if whole:
            return int(text, 16 if text.startswith("0x") else 10)
        special = text.lower().endswith((".inf", ".nan"))
        return float(text.replace(".", "") if special else text)

    def truth(self, node: yaml.ScalarNode) -> bool:
        if not re.fullmatch(BOOL, node.value):
            raise _refused(f"expected true or false, found {node.value[:40]!r}", node.start_mark)
        return bool(node.value.lower() == "true")


_TAG = "tag:yaml.org,2002:"
for _name, _text, _starts in (
    ("bool", BOOL, "tTfF"),
    ("int", INT, "-+0123456789"),
    ("float", FLOAT, "-+.0123456789"),
    ("null", NULL, "~nN"),
    ("merge", "<<", "<"),
):
    _Strict.add_implicit_resolver(_TAG + _name, re.compile(f"^(?:{_text})$"), list(_starts))
_Strict.add_implicit_resolver(_TAG + "null", re.compile(r"^$"), [""])
_Strict.add_constructor(_TAG + "bool", _Strict.truth)
_Strict.add_constructor(_TAG + "int", _Strict.number)
_Strict.add_constructor(_TAG + "float", _Strict.number)
for _name in ("null", "str", "seq", "map"):
    _Strict.add_constructor(_TAG + _name, LOADER.yaml_constructors[_TAG + _name])
_Strict.add_constructor(None, LOADER.yaml_constructors[None])


class _Quoting(yaml.SafeDumper):
    """A dumper whose texts are texts for YAML 1.1 and for YAML 1.2: `1e3` is quoted."""


_Quoting.add_implicit_resolver(_TAG + "float", re.compile(f"^(?:{FLOAT})$"), list("-+.0123456789"))
_Quoting.add_implicit_resolver(_TAG + "int", re.compile(f"^(?:{INT})$"), list("-+0123456789"))
