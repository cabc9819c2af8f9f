"""Fixtures for the tests of the configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.config.good import TEXT


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a good file in the working directory, so that messages name it as `winnow.yaml`."""
    monkeypatch.chdir(tmp_path)
    path = Path("winnow.yaml")
    path.write_text(TEXT)
    return path
