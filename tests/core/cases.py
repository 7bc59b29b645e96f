"""Many cases in one test: a failure says which of them it was."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

Test = Callable[..., None]


@contextmanager
def case(*what: object) -> Iterator[None]:
    """Adds `what` to whatever fails inside."""
    try:
        yield
    except Exception as error:
        error.add_note(f"in the case {', '.join(map(str, what))}")
        raise


def looped(names: str | tuple[str, ...], values: Iterable[Any]) -> Callable[[Test], Test]:
    """As pytest.mark.parametrize, for cases so small that each one needs no test of its own.

    All cases are tried; those that fail are told together, each with its values.
    """
    keys, cases = (names,) if isinstance(names, str) else names, list(values)

    def decorate(test: Test) -> Test:
        @wraps(test)
        def run(*args: Any, **fixtures: Any) -> None:
            failed: list[Exception] = []
            for one in cases:
                given = (one,) if isinstance(names, str) else one
                chosen = dict(zip(keys, given, strict=True))
                try:
                    with case(*(f"{key} = {value!r}" for key, value in chosen.items())):
                        test(*args, **fixtures, **chosen)
                except Exception as error:
                    failed.append(error)
            if len(failed) == 1:
                raise failed[0]
            if failed:
                raise ExceptionGroup(f"{len(failed)} of {len(cases)} cases failed", failed)

        signature = inspect.signature(test)
        own = [each for name, each in signature.parameters.items() if name not in keys]
        run.__signature__ = signature.replace(parameters=own)  # type: ignore[attr-defined]
        return run

    return decorate
