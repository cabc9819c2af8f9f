"""The offset store in HBase, through a real Thrift server."""

from __future__ import annotations

import time
from contextlib import closing
from typing import Any

import happybase
import pytest

from app.errors import Fenced, Transient
from app.model import CommittedOffset, Partition
from app.offsets import hbase as module
from app.offsets.contract import OffsetStore, StoreContext
from app.offsets.faults import OffsetStoreFaults
from app.offsets.hbase import HBaseOffsets
from app.offsets.metadata import OffsetMetadata
from app.offsets.testing import OffsetStoreContract
from tests.integration.stores.stage import OnServer
from tests.servers.hbase import HBaseThrift
from tests.support.waiting import PATIENCE

TABLE = "winnow_offsets"


class OnHBase(OnServer):
    server: HBaseThrift

    @pytest.fixture(autouse=True)
    def _server(self, hbase: HBaseThrift) -> None:
        self.server = hbase

    def open_store(self, **options: Any) -> OffsetStore:
        return HBaseOffsets(self.context, host="127.0.0.1", **{"port": self.server.port, **options})

    def tool(self) -> Any:
        """Connect as another tool."""
        return closing(happybase.Connection("127.0.0.1", self.server.port))

    def row(self, partition: Partition, part: object = "now") -> str:
        return f"{partition.topic}:{self.group}:{part}"


class TestHBaseOffsets(OnHBase, OffsetStoreContract):
    """The contract of offset stores, and what is specific to HBase."""

    def test_the_layout(self) -> None:
        """Tools find the newest row by a reversed scan: one column per partition, with a decimal number."""
        first, second = self.partitions(2)
        with self.store() as store, self.tool() as tool:
            store.save(first, 10, "metadata")
            store.save(second, 20, "")

            ((row, cells),) = tool.table(TABLE).scan(
                row_start=self.row(first, "~"), columns=["offsets"], reverse=True, limit=1
            )

        assert self.row(first).encode() == row
        assert {b"offsets:0": b"10", b"offsets:1": b"20"} == cells

    def test_the_row_of_an_older_job(self) -> None:
        """A group last kept by another job continues from its newest row, and never falls back behind it."""
        (partition,) = self.partitions(1)
        with self.store() as store, self.tool() as tool:
            store.load([partition], stable=True)
            for moment, offset in [(1700000000000, b"30"), (1700000060000, b"50")]:
                tool.table(TABLE).put(self.row(partition, moment), {b"offsets:0": offset})
            assert {partition: CommittedOffset(50)} == store.load([partition], stable=True)

            with pytest.raises(Fenced):
                store.save(partition, 49, "")
            store.save(partition, 51, "ours")

            assert {partition: CommittedOffset(51, "ours")} == store.load([partition], stable=True)

    def test_what_an_older_job_kept_of_other_partitions(self) -> None:
        """It is known until each partition has been saved, and each row of the history has all of them."""
        first, second = self.partitions(2)
        with self.store() as store, self.tool() as tool:
            store.load([first], stable=True)
            tool.table(TABLE).put(self.row(first, 1700000000000), {b"offsets:0": b"30", b"offsets:1": b"40"})

            store.save(first, 31, "ours")

            assert {first: CommittedOffset(31, "ours"), second: CommittedOffset(40)} == store.load(
                [first, second], stable=True
            )
            assert isinstance(store, HBaseOffsets)
            assert {0: 31, 1: 40} == store.history(first.topic, 1)[0].offsets
            with pytest.raises(Fenced):
                store.save(second, 39, "")

    def test_groups_do_not_mix(self) -> None:
        """A group whose name is a prefix of another's has its own rows."""
        (partition,) = self.partitions(1)
        other = HBaseOffsets(StoreContext(f"{self.group}:1", {}), host="127.0.0.1", port=self.server.port)
        with self.store() as store, closing(other):
            other.save(partition, 5, "")
            assert store.load([partition], stable=True) == {}
            store.save(partition, 3, "")

            assert {partition: CommittedOffset(5)} == other.load([partition], stable=True)

    def test_a_dropped_table_is_created_anew(self) -> None:
        """A person may drop it while the service runs; what is committed next is there again."""
        (partition,) = self.partitions(1)
        with closing(self.open_store(table="dropped")) as store, self.tool() as tool:
            store.save(partition, 5, "")
            tool.delete_table("dropped", disable=True)

            with pytest.raises(Transient, match="TableNotFound"):
                store.save(partition, 6, "")
            store.save(partition, 6, "")

            assert {partition: CommittedOffset(6)} == store.load([partition], stable=True)

    def test_the_history(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Each row of the history contains all partitions at that time, with their topic, newest first."""
        monkeypatch.setattr(module, "HISTORY_SECONDS", 0.0)
        first, second = self.partitions(2)
        before = time.time() * 1000
        with closing(self.open_store()) as store:
            assert isinstance(store, HBaseOffsets)
            for partition, offset, metadata in [
                (first, 1, ""),
                (second, 2, str(OffsetMetadata("id-1"))),
                (first, 3, ""),
            ]:
                store.save(partition, offset, metadata)
                time.sleep(0.002)  # rows within one millisecond would overwrite each other

            found = store.history(first.topic, 2)
            earlier = store.history(first.topic, 2, until=found[1].time)

        assert [{0: 3, 1: 2}, {0: 1, 1: 2}] == [past.offsets for past in found]
        assert [{0: "", 1: "id-1"}] * 2 == [past.topic_ids for past in found]
        assert before <= found[1].time < found[0].time <= time.time() * 1000
        assert [{0: 1, 1: 2}, {0: 1}] == [past.offsets for past in earlier]

    def test_the_history_gets_a_row_a_minute(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """However many tasks commit, the history gets at most one row a minute."""
        monkeypatch.setattr(module, "HISTORY_SECONDS", PATIENCE)  # for a busy machine, a minute is short
        (partition,) = self.partitions(1)
        for offset in range(5):
            with self.store() as store:
                store.save(partition, offset, "")
        with closing(self.open_store()) as store:
            assert isinstance(store, HBaseOffsets)
            assert [{0: 0}] == [past.offsets for past in store.history(partition.topic, 10)]

    def test_the_time_to_live(self) -> None:
        """The cells of a table created by Winnow live for 30 days by default, or for the configured time."""
        (partition,) = self.partitions(1)
        with closing(self.open_store(table=f"t-{self.group}", time_to_live_days=7)) as store, self.tool() as tool:
            store.load([partition], stable=True)
            self.open_store().load([partition], stable=True)

            assert [7 * 86400] * 2 == [
                each["time_to_live"] for each in tool.table(f"t-{self.group}").families().values()
            ]
            assert [30 * 86400] * 2 == [each["time_to_live"] for each in tool.table(TABLE).families().values()]


class TestHBaseFaults(OnHBase, OffsetStoreFaults):
    """What happens when the Thrift server is unavailable, or HBase behind it hangs."""

    def freeze_server(self) -> None:
        self.server.hbase.freeze()

    def thaw_server(self) -> None:
        self.server.hbase.thaw()

    def corrupt(self, partition: Partition) -> None:
        with self.tool() as tool:
            tool.table(TABLE).put(self.row(partition), {f"offsets:{partition.number}": b"4x"})
