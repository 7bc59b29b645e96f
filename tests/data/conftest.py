from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def own_folders(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes the user's data, cache or working directory."""
    own = tmp_path_factory.mktemp("own")
    monkeypatch.setenv("ACCORD_CACHE", str(own / "cache"))
    monkeypatch.setenv("HOME", str(own))
    monkeypatch.delenv("ACCORD_DATA", raising=False)
    monkeypatch.chdir(own)
