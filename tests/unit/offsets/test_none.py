"""The store that remembers nothing keeps the contract within one process."""

from __future__ import annotations

import pytest

from app.model import CommittedOffset, Partition
from app.offsets.contract import OffsetStore, StoreContext, is_local
from app.offsets.none import NoOffsets
from app.offsets.testing import OffsetStoreContract

RAW = Partition("raw", 0)


class TestNoOffsets(OffsetStoreContract):
    """The contract on a single instance; another process would find nothing."""

    @pytest.fixture(autouse=True)
    def _process(self) -> None:
        self.only = NoOffsets(StoreContext("group", {}))

    def open_store(self) -> OffsetStore:
        return self.only


def test_a_task_begins_where_the_driver_planned() -> None:
    """A task finds its planned offsets and continues from there."""
    store = NoOffsets(StoreContext("group", {}, planned={RAW: CommittedOffset(7)}))

    assert {RAW: CommittedOffset(7)} == store.load([RAW], stable=True)
    assert is_local(store)
