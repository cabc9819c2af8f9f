"""An offset store of a third party."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.packages import install

STORE = '''
class Dictionary:
    """A store of a third party."""

    transactional = False

    def __init__(self, context, *, url: str, prefix: str = ""):
        self.context, self.url = context, url

    def load(self, partitions, *, stable): return {}
    def save(self, partition, offset, metadata): pass
    def reset(self, partition, offset, metadata): pass
    def close(self): pass
'''


@pytest.fixture
def third_party_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a distribution with its own offset store, `dictionary`."""
    install(tmp_path, "somebodys_store", STORE, "[winnow.offsets]\ndictionary = somebodys_store:Dictionary\n")
    monkeypatch.syspath_prepend(tmp_path)
