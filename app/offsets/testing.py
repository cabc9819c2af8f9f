"""
Tests of what an offset store promises; needs pytest.

    class TestMine(OffsetStoreContract):
        def open_store(self):
            return Mine(StoreContext("group", {}), url="…")

Each test calls `open_store` once for each process that it simulates: what one saves, the others must find.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing
from uuid import uuid4

import pytest

from app.errors import Fenced
from app.model import CommittedOffset, Partition
from app.offsets.contract import OffsetStore
from app.offsets.metadata import MAX_BYTES

THREADS = 8


class StoreTests:
    """The base of a store's tests."""

    def open_store(self) -> OffsetStore:
        """Open the tested store; called several times per test, always for the same group."""
        raise NotImplementedError

    def partitions(self, count: int) -> list[Partition]:
        """Return partitions that no test has used before; override it if their topic must exist."""
        topic = f"topic-{uuid4().hex[:8]}"
        return [Partition(topic, number) for number in range(count)]

    def store(self) -> AbstractContextManager[OffsetStore]:
        """Open a store, and close it in the end."""
        return closing(self.open_store())


class OffsetStoreContract(StoreTests):
    """The promises of every offset store; subclass it and implement `open_store`."""

    def test_is_an_offset_store(self) -> None:
        """The object has the methods of a store, and says whether it is transactional."""
        with self.store() as store:
            assert isinstance(store, OffsetStore)
            assert store.transactional in (True, False)

    @pytest.mark.parametrize("stable", [True, False])
    def test_a_partition_without_an_offset_is_left_out(self, *, stable: bool) -> None:
        """A partition without an offset, as at its first start, is not an error."""
        known, unknown = self.partitions(2)
        with self.store() as store:
            store.save(known, 3, "")

            assert {known: CommittedOffset(3)} == store.load([known, unknown], stable=stable)
            assert store.load([], stable=stable) == {}

    @pytest.mark.parametrize("metadata", ["", "winnow/2 topic=a since=0 in=1", "x" * MAX_BYTES])
    def test_what_was_saved_is_found_by_others(self, metadata: str) -> None:
        """Another process finds the offset and its metadata, as after a restart."""
        (partition,) = self.partitions(1)
        with self.store() as store:
            store.save(partition, 7, metadata)

        with self.store() as later:
            assert {partition: CommittedOffset(7, metadata)} == later.load([partition], stable=True)

    def test_partitions_do_not_mix(self) -> None:
        """Each partition has its own offset, however large."""
        first, second, third = self.partitions(3)
        with self.store() as store:
            store.save(first, 1, "a")
            store.save(second, 2**62, "b")

            found = store.load([first, second, third], stable=True)

        assert {first: CommittedOffset(1, "a"), second: CommittedOffset(2**62, "b")} == found

    def test_the_same_offset_can_be_saved_again(self) -> None:
        """An idle partition renews its offset; its metadata may have changed."""
        (partition,) = self.partitions(1)
        with self.store() as store:
            store.save(partition, 5, "old")
            store.save(partition, 5, "new")

            assert {partition: CommittedOffset(5, "new")} == store.load([partition], stable=True)

    def test_an_offset_does_not_go_back(self) -> None:
        """A smaller offset is refused, and changes nothing."""
        (partition,) = self.partitions(1)
        with self.store() as store:
            store.save(partition, 9, "kept")

            with pytest.raises(Fenced) as caught:
                store.save(partition, 8, "refused")

            assert (partition, 8) == (caught.value.partition, caught.value.offset)
            assert {partition: CommittedOffset(9, "kept")} == store.load([partition], stable=True)

    def test_a_zombie_cannot_move_it_back(self) -> None:
        """An earlier owner that saves late is fenced, even if it never loaded the new offset."""
        (partition,) = self.partitions(1)
        with self.store() as zombie, self.store() as owner:
            zombie.save(partition, 10, "")
            owner.load([partition], stable=True)
            owner.save(partition, 20, "owner")

            with pytest.raises(Fenced):
                zombie.save(partition, 15, "zombie")

            assert {partition: CommittedOffset(20, "owner")} == owner.load([partition], stable=True)

    def test_a_reset_may_go_back(self) -> None:
        """A reset may move the offset back, and saves continue from there."""
        (partition,) = self.partitions(1)
        with self.store() as store:
            store.save(partition, 100, "")
            store.reset(partition, 40, "reset")
            assert {partition: CommittedOffset(40, "reset")} == store.load([partition], stable=True)

            store.save(partition, 41, "")

            assert {partition: CommittedOffset(41)} == store.load([partition], stable=True)

    def test_threads_save_side_by_side(self) -> None:
        """Threads save different partitions concurrently, and no save is lost."""
        partitions = self.partitions(THREADS)
        with self.store() as store, ThreadPoolExecutor(THREADS) as threads:
            for offset in range(1, 4):
                list(threads.map(lambda partition: store.save(partition, offset, ""), partitions))  # noqa: B023

            found = store.load(partitions, stable=True)

        assert dict.fromkeys(partitions, CommittedOffset(3)) == found
