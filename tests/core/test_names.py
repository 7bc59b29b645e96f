"""Names of clients from users' data: as file names, on a terminal, and in order."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from accord.core.names import (
    chosen,
    file_name,
    label_name,
    listed,
    look_alike,
    natural,
    shown,
    typed,
)
from accord.core.randomness import numpy_generator

# Names that have a meaning for a file system, a terminal, or for Accord's own file names.
HARD = (
    *("..", ".", "", "con", "CON.txt", "nul", "com1", "a/b", "a\\b", "a b", "a_b", "a\nb", "a\tb"),
    *("end.", "x" * 60, "x" * 61, "x" * 300, "🏥", "🏥" * 100, "Zürich", "-x", ".x", "~", "a~b"),
    *("a@3", "0@1", "0", "1", "\x1b[31mred", "[red]", "client-0", "*", "C:", "\u202eevil"),
)


def test_a_plain_name_is_its_own_file_name() -> None:
    for name in ("0", "north", "clinic-a", "a.b_c-9", "x" * 60):
        assert file_name(name) == name


def test_names_with_capitals_differ_on_a_disk_that_ignores_them() -> None:
    for name, expected in {"North": "North~1", "NORTH": "NORTH~1f", "A.b_C": "A.b_C~11"}.items():
        assert file_name(name) == expected
    alike = ("north", "North", "nOrth", "NORTH", "X" * 50, "x" * 50, "X" * 45, "x" * 45)
    assert len({file_name(name).lower() for name in alike}) == len(alike)


def test_hard_names_get_different_safe_file_names() -> None:
    found = {name: file_name(name) for name in HARD}
    assert len(set(found.values())) == len(HARD)
    assert len({text.lower() for text in found.values()}) == len(HARD)
    assert found["a/b"].startswith("a_b~")
    for name in ("..", "con", "CON.txt", "end.", "a/b", "x" * 61, "🏥", "a@3", "~"):
        assert found[name] != name


@settings(max_examples=300, deadline=None)
@given(st.text(), st.text())
def test_every_file_name_is_safe_and_belongs_to_one_name(one: str, other: str) -> None:
    found = file_name(one)
    assert found.isascii()
    assert set("/\\@:*?<>|\"' \n\0").isdisjoint(found)
    assert 0 < len(found) <= 60
    assert not found.endswith(".")
    assert file_name(file_name(one)) != found or file_name(one) == one
    assert (found.lower() == file_name(other).lower()) == (one == other)
    assert file_name(one).lower() != file_name(one.swapcase()).lower() or one == one.swapcase()


@settings(max_examples=200, deadline=None)
@given(st.text())
def test_a_shown_name_is_one_short_printable_line(name: str) -> None:
    assert shown(name).isprintable()
    assert 0 < len(shown(name)) <= 60
    if name and name == name.strip() and name.isprintable() and len(name) <= 60:
        assert shown(name) == name


def test_spaces_at_the_ends_of_a_name_are_shown() -> None:
    for name, expected in {"": "''", "a": "a", " a": "' a'", "a ": "'a '", "  ": "'  '"}.items():
        assert shown(name) == expected
    assert len({shown(" " * k + "x" * 59) for k in range(3)}) == 3


def test_long_names_that_begin_alike_are_shown_differently() -> None:
    assert shown("x" * 299 + "a") != shown("x" * 299 + "b")
    assert listed([str(k) for k in range(12)]) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more"


def test_a_label_keeps_capitals_as_they_are() -> None:
    for name in ("North", "north", "UCSF", "con", "a b", "X" * 60):
        plain = name in ("North", "north", "UCSF")
        assert label_name(name) == (name if plain else file_name(name))


def test_names_that_look_alike_are_found() -> None:
    names = ["a", "b", "A ", "North 1", "north1", "e\u0301", "\u00e9", "0", "00"]
    assert look_alike(names) == ["a", "A ", "North 1", "north1", "e\u0301", "\u00e9"]


def test_a_text_chooses_the_names_that_begin_with_it_or_else_contain_it() -> None:
    names = ["turns-s1", "turns-sums-s1", "public-turns-s2"]
    cases = {
        "turns": {"turns-s1", "turns-sums-s1"},
        "turns-s": {"turns-s1", "turns-sums-s1"},
        "public-turns": {"public-turns-s2"},
        "s2": {"public-turns-s2"},
        "s3": set(),
    }
    assert {text: chosen(names, text) for text in cases} == cases
    assert chosen(names, "") == chosen(names, None) == set(names)


def test_a_name_can_be_typed_as_it_is() -> None:
    assert [typed(name) for name in ("a", "a ", "it's")] == ["a", "'a '", "'it'\"'\"'s'"]


def test_names_are_sorted_as_people_do() -> None:
    order = ["", "2", "9", "10", "10b", "100", "a", "a9", "a10", "b"]
    mixed = ["b", "10", "a10", "2", "100", "", "a9", "9", "a", "10b"]
    assert sorted(mixed, key=natural) == order
    assert sorted(["1", "01", "1" * 9_999], key=natural) == ["01", "1", "1" * 9_999]


def test_a_slash_in_a_name_does_not_make_it_another_generator() -> None:
    draws = {
        float(numpy_generator(0, *names).random())
        for names in (("a", "b"), ("a/b",), ("a%2Fb",), ("a", "b", ""), ("a/", "b"))
    }
    assert len(draws) == 5
