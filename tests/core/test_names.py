"""Names of clients from users' data: as file names, on a terminal, and in order."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from accord.core.names import file_name, listed, natural, shown
from accord.core.randomness import numpy_generator

# Names that have a meaning for a file system, a terminal, or for Accord's own file names.
HARD = (
    *("..", ".", "", "con", "CON.txt", "nul", "com1", "a/b", "a\\b", "a b", "a_b", "a\nb", "a\tb"),
    *("end.", "x" * 60, "x" * 61, "x" * 300, "🏥", "🏥" * 100, "Zürich", "-x", ".x", "~", "a~b"),
    *("a@3", "0@1", "0", "1", "\x1b[31mred", "[red]", "client-0", "*", "C:", "\u202eevil"),
)


def test_a_plain_name_is_its_own_file_name() -> None:
    for name in ("0", "north", "clinic-a", "A.b_c-9", "x" * 60):
        assert file_name(name) == name


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
    assert (found == file_name(other)) == (one == other)


@settings(max_examples=200, deadline=None)
@given(st.text())
def test_a_shown_name_is_one_short_printable_line(name: str) -> None:
    assert shown(name).isprintable()
    assert 0 < len(shown(name)) <= 60
    if name and name.isprintable() and len(name) <= 60:
        assert shown(name) == name


def test_long_names_that_begin_alike_are_shown_differently() -> None:
    assert shown("x" * 299 + "a") != shown("x" * 299 + "b")
    assert listed([str(k) for k in range(12)]) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more"


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
