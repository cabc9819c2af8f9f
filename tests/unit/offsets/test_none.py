"""The store that remembers nothing keeps the contract within one process."""

from __future__ import annotations

import pytest

from app.model import CommittedOffset, Partition
from app.offsets.contract import OffsetStore, StoreContext, is_local
from app.offsets.none import NoOffsets
from app.offsets.testing import OffsetStoreContract
from tests.fakes import CONTROL, FakeKafka
from tests.fakes.driver import forget

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


def test_a_task_knows_the_metadata_of_its_planned_offset() -> None:
    """Its counts, its backlog and the last record read go on from round to round."""
    kafka = FakeKafka({RAW: [CONTROL] * 9})
    kafka.committed[RAW] = CommittedOffset(7, "winnow/2 in=7 out=7 backlog=9 read=7@2")

    forget(kafka, RAW)

    assert {RAW: CommittedOffset(7, "winnow/2 in=7 out=7 backlog=9 read=7@2")} == kafka.committed
