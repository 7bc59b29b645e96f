"""Registries find parts by themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from accord.core.errors import AccordError
from accord.core.registry import Registry


def test_a_file_that_does_not_import_is_told_at_every_look_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never as an unknown part: that would send the user after a mistake he did not make."""
    package = tmp_path / "broken_parts"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "wrong.py").write_text("import there_is_no_such_module\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    parts: Registry[int] = Registry("part", "broken_parts")
    for _ in range(2):
        with pytest.raises(ModuleNotFoundError, match="there_is_no_such_module"):
            parts.get("anything")


def test_an_unknown_name_is_told_with_the_nearest() -> None:
    parts: Registry[int] = Registry("part")
    parts.register("entropy")(1)
    with pytest.raises(AccordError, match="did you mean 'entropy'"):
        parts.get("entrpy")
