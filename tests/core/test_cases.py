"""Looped tests: every case is tried, and those that fail are named."""

from __future__ import annotations

import pytest

from core.cases import case, looped


def test_every_case_is_tried_with_what_else_the_test_is_given() -> None:
    tried = []

    @looped(("a", "b"), [(1, 2), (3, 4)])
    @looped("c", "xy")
    def test(fixture: str, a: int, b: int, c: str) -> None:
        tried.append((fixture, a, b, c))

    test(fixture="f")
    assert tried == [("f", 1, 2, "x"), ("f", 1, 2, "y"), ("f", 3, 4, "x"), ("f", 3, 4, "y")]


def test_one_case_that_fails_is_named() -> None:
    @looped("n", range(5))
    def test(n: int) -> None:
        assert n != 3

    with pytest.raises(AssertionError) as caught:
        test()
    assert caught.value.__notes__ == ["in the case n = 3"]


def test_all_cases_that_fail_are_told_together() -> None:
    @looped("n", range(5))
    def test(n: int) -> None:
        assert n % 2

    with pytest.raises(ExceptionGroup, match="3 of 5 cases failed") as caught:
        test()
    notes = [error.__notes__ for error in caught.value.exceptions]
    assert notes == [[f"in the case n = {n}"] for n in (0, 2, 4)]


@looped("n", [1, 2])
def test_fixtures_are_given_as_to_any_other_test(n: int, request: pytest.FixtureRequest) -> None:
    assert n in (1, 2)
    assert request.node.name == "test_fixtures_are_given_as_to_any_other_test"


def test_what_fails_inside_a_case_says_which() -> None:
    with pytest.raises(ValueError, match="no") as caught, case("left", 7):
        raise ValueError("no")
    assert caught.value.__notes__ == ["in the case left, 7"]
