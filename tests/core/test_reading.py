"""Strict reading of YAML, JSON and settings: what is accepted is what was meant."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from accord.core.budget import Budget
from accord.core.config import Config, parse
from accord.core.errors import AccordError
from accord.core.files import read_json
from accord.core.reading import json_of, read_plain
from accord.core.text import cell, clean, json_text
from accord.core.yamls import MOST_YAML, read_yaml, to_yaml, yaml_of
from accord.data.settings import DataConfig
from accord.study.settings import Options


def test_values_of_yaml_are_those_of_its_version_1_2() -> None:
    expected: dict[str, Any] = {
        **{"1:30": "1:30", "yes": "yes", "No": "No", "on": "on", "off": "off", "y": "y"},
        **{"1_000": "1_000", "2024-01-01": "2024-01-01", "0x10": 16, "+5": 5, "-0": 0},
        **{"1e3": 1000.0, "1e-3": 0.001, ".5": 0.5, "1.": 1.0, "0.5": 0.5, "0": 0},
        **{"true": True, "False": False, "~": None, "null": None, "": None, "'5'": "5"},
        **{"=": "=", "a b": "a b", ".inf": float("inf"), "-.Inf": -float("inf")},
    }
    for text, value in expected.items():
        found = yaml_of(f"a: {text}")["a"]
        assert (type(found), found) == (type(value), value), text
    for value in ("1e3", "1:30", "no", "5", "0o7", "010", "2024-01-01", "~", "", ".inf", "=", "é"):
        assert yaml_of(to_yaml({"a": value})) == {"a": value}


def test_hostile_yaml_is_refused_quickly() -> None:
    nine = ",".join(["*{0}"] * 9)
    bomb = "a: &a [x]\n" + "".join(
        f"{new}: &{new} [{nine.format(old)}]\n"
        for old, new in zip("abcdefgh", "bcdefghi", strict=True)
    )
    merged = "a: &a {x: 1}\n" + "b:\n  <<: [" + ",".join(["*a"] * 20_000) + "]\n"
    refused = {
        **{bomb: "aliases", merged: "aliases", "a: &a [*a]": "nothing before", "a: *b": "nothing"},
        **{"a: 010": "YAML 1.1", "a: 0o10": "YAML 1.1", "a: 08": "leading zero"},
        **{"a: " + "9" * 5000: "5,000 digits", "a: " + "[" * 2000 + "]" * 2000: "nested"},
        **{"a: " + "[" * 100_000: "nested", "{a: " * 100_000: "nested", "a: 1\na: 2": "twice"},
        **{"a: !!timestamp x": "tag", "a: !!int x": "number", "a: !!python/name:os.x": "tag"},
        **{"a:\n\t- 1": "spaces, not tabs", "a\n---\nb": "single document", "a: \x00": "character"},
        **{"? [a]\n: b": "unhashable", "a: [": "expected", "a: !!bool 5": "true or false"},
    }
    for text, said in refused.items():
        with pytest.raises(ValueError, match=said):
            yaml_of(text)


def test_hostile_json_is_refused() -> None:
    refused = (
        "[" * 2000 + "]" * 2000,
        "[" * 100_000,
        "9" * 5000,
        '{"a": 1, "a": 2}',
        "",
        "{",
        "\0",
    )
    for text in (*refused, '{"a": "\\ud800"}', "[1,]", "nan", '{"a":' * 500 + "1" + "}" * 500):
        with pytest.raises(ValueError, match=r".+"):
            json_of(text)
    brackets = json.dumps({"[" * 500: "{" * 500})  # brackets in a text are no nesting
    assert json_of(brackets) == {"[" * 500: "{" * 500}
    assert json_of('{"a": [NaN, 1e3, "\\ud83d\\ude00"]}')["a"][1:] == [1000.0, "😀"]


def test_only_plain_files_of_limited_size_are_read(tmp_path: Path) -> None:
    pipe, loop, large = tmp_path / "pipe", tmp_path / "loop", tmp_path / "large"
    os.mkfifo(pipe)
    loop.symlink_to(loop)
    large.write_bytes(b"#" * (MOST_YAML + 1))
    for path in (pipe, loop, tmp_path, Path("/dev/zero"), tmp_path / "none", Path("a\0b")):
        for read in (read_yaml, read_json, read_plain):
            with pytest.raises(AccordError):
                read(path)
    with pytest.raises(AccordError, match="expected at most"):
        read_yaml(large)
    for content in ("a: é".encode("utf-16"), b"a: \xe9", bytes(range(256))):
        large.write_bytes(content)
        for read in (read_yaml, read_json):
            with pytest.raises(AccordError, match="UTF-8"):
                read(large)
    large.write_bytes(b"\xef\xbb\xbfa: 1")
    assert read_yaml(large) == {"a": 1}


def test_numbers_are_not_made_from_other_kinds() -> None:
    wrong: list[tuple[type[Config], dict[str, Any]]] = [
        *((Budget, {"epochs": value}) for value in (True, "5", "1:30", "1_000", 2.0, None, [1])),
        *((Budget, {"lr": value}) for value in (True, "0.1", float("nan"), float("inf"), [1])),
        *((Budget, {"checkpoints": value}) for value in (True, [True], ["1"], [1.0])),
        *((DataConfig, {"image": value}) for value in (True, {"channels": True}, {"channels": 2})),
        *((Options, {"name": "a", "seeds": value}) for value in (True, [True], ["0"], [1.5], 3)),
        *((Options, {"name": "a", "references": value}) for value in ("yes", 1, "true", None)),
        (Options, {"name": "a", "device": {True: "cpu"}}),
        (Options, {"name": 5}),
        (DataConfig, {"path": ""}),
    ]
    for model, values in wrong:
        with pytest.raises(AccordError, match="expected"):
            parse(model, values, "")
    assert parse(Budget, {"lr": 1, "checkpoints": 5}, "").lr == 1.0


def test_nothing_printed_controls_a_terminal_or_a_spreadsheet() -> None:
    odd = "a\x1b[31m\u202eb\x07\x9b\u2028c"
    assert clean(odd).isprintable()
    assert clean("a\nb") == "a\nb"
    text = json_text({odd: [odd]})
    assert text.replace("\n", "").isprintable()
    assert json.loads(text) == {odd: [odd]}
    assert json_text({"é": 1}) == '{\n "é": 1\n}'
    assert [cell(value) for value in ("=1+1", "-a", "@x", "+", "ok", 5, None, "\x1b")] == [
        *("'=1+1", "'-a", "'@x", "'+", "ok", 5, None, "�")
    ]
