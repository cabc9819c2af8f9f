"""The offset store in ZooKeeper, on a real server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kazoo.client import KazooClient

from app.errors import NotAllowed, Transient
from app.model import CommittedOffset, Partition
from app.offsets.contract import OffsetStore
from app.offsets.faults import OffsetStoreFaults
from app.offsets.testing import OffsetStoreContract
from app.offsets.zookeeper import ZooKeeperOffsets
from tests.integration.stores.stage import OnServer
from tests.servers.zookeeper import ZooKeeper
from tests.support.waiting import PATIENCE


class OnZooKeeper(OnServer):
    @pytest.fixture(autouse=True)
    def _server(self, zookeeper: ZooKeeper) -> None:
        self.server = zookeeper

    def open_store(self, **options: Any) -> OffsetStore:
        return ZooKeeperOffsets(self.context, **{"hosts": self.server.address, **options})

    @contextmanager
    def tool(self) -> Iterator[Any]:
        """Connect as another tool."""
        client = KazooClient(self.server.address, timeout=60)
        client.start(PATIENCE)
        try:
            yield client
        finally:
            client.stop()
            client.close()

    def path(self, partition: Partition) -> str:
        return f"/consumers/{self.group}/offsets/{partition.topic}/{partition.number}"


class TestZooKeeperOffsets(OnZooKeeper, OffsetStoreContract):
    """The contract of offset stores, and what is specific to ZooKeeper."""

    def test_old_tools_find_a_plain_number(self) -> None:
        """A partition's node is where old consumers expect it, and contains only a decimal number."""
        (partition,) = self.partitions(1)
        with self.store() as store, self.tool() as tool:
            store.save(partition, 1042, "metadata")

            assert tool.get(self.path(partition))[0] == b"1042"
            assert [str(partition.number)] == tool.get_children(self.path(partition).rpartition("/")[0])

    def test_the_number_of_another_tool_is_believed(self) -> None:
        """Another tool's number counts. The stale metadata stored with it is ignored until the next save."""
        (partition,) = self.partitions(1)
        with self.store() as store, self.tool() as tool:
            store.save(partition, 50, "ours")
            tool.set(self.path(partition), b"30")
            assert {partition: CommittedOffset(30)} == store.load([partition], stable=True)

            store.save(partition, 31, "again")

            assert {partition: CommittedOffset(31, "again")} == store.load([partition], stable=True)

    def test_a_group_that_old_tools_have_left(self) -> None:
        """A node without a child is an offset without metadata, from which the group continues."""
        (partition,) = self.partitions(1)
        with self.store() as store, self.tool() as tool:
            tool.create(self.path(partition), b"7", makepath=True)
            assert {partition: CommittedOffset(7)} == store.load([partition], stable=True)

            store.save(partition, 8, "ours")

            assert {partition: CommittedOffset(8, "ours")} == store.load([partition], stable=True)

    @pytest.mark.parametrize(
        ("options", "folder"),
        [
            ({"root": "/spark/offsets"}, "/spark/offsets/{group}"),
            ({"root": "/"}, "/{group}"),
            ({"namespace": "etl", "root": "spark"}, "/etl/spark/{group}"),
            ({"namespace": "etl"}, "/etl/consumers/{group}/offsets"),
        ],
    )
    def test_other_places(self, options: dict[str, str], folder: str) -> None:
        """Jobs with their own tree find GROUP/TOPIC/PARTITION below their root, also within Curator's namespace."""
        (partition,) = self.partitions(1)
        store = self.open_store(**options)
        store.save(partition, 5, "")
        store.close()

        with self.tool() as tool:
            path = f"{folder.format(group=self.group)}/{partition.topic}/{partition.number}"
            assert tool.get(path)[0] == b"5"

    def test_a_chroot(self) -> None:
        """A chroot after the hosts is the root of every path, and is created if missing."""
        (partition,) = self.partitions(1)
        store = self.open_store(hosts=f"{self.server.address}/chroot-{self.group}")
        store.save(partition, 5, "")
        store.close()

        with self.tool() as tool:
            assert tool.get(f"/chroot-{self.group}{self.path(partition)}")[0] == b"5"

    def test_the_start_of_a_batch(self) -> None:
        """With `position: start` tools see the start of the last batch, while the group continues at its end."""
        (partition,) = self.partitions(1)
        store = self.open_store(position="start")
        with self.tool() as tool:
            for offset, seen in [(10, b"10"), (25, b"10"), (25, b"10"), (40, b"25")]:
                store.save(partition, offset, f"up to {offset}")

                assert seen == tool.get(self.path(partition))[0]
                assert {partition: CommittedOffset(offset, f"up to {offset}")} == store.load([partition], stable=True)

            tool.set(self.path(partition), b"25")
            assert {partition: CommittedOffset(40, "up to 40")} == store.load([partition], stable=True)
            tool.set(self.path(partition), b"20")
            assert {partition: CommittedOffset(20)} == store.load([partition], stable=True)

            store.reset(partition, 12, "")
            assert tool.get(self.path(partition))[0] == b"12"
        store.close()

    def test_position_can_change(self) -> None:
        """The next offset is found whichever position it was stored with."""
        (partition,) = self.partitions(1)
        at_start, at_end = self.open_store(position="start"), self.open_store()
        at_start.save(partition, 10, "")
        at_start.save(partition, 20, "")

        assert {partition: CommittedOffset(20)} == at_end.load([partition], stable=True)
        at_end.save(partition, 30, "")
        assert {partition: CommittedOffset(30)} == at_start.load([partition], stable=True)
        at_start.close()
        at_end.close()

    def test_nodes_of_a_user(self) -> None:
        """If a user is configured, everybody can read the nodes but only that user can change them."""
        (partition,) = self.partitions(1)
        owner = self.open_store(root=self.group, username="winnow", password="right")
        stranger = self.open_store(root=self.group, username="winnow", password="wrong")
        owner.save(partition, 5, "")

        assert {partition: CommittedOffset(5)} == stranger.load([partition], stable=True)
        with pytest.raises(Transient, match=r"ZooKeeper denied access.*check the username and password") as caught:
            stranger.save(partition, 6, "")
        assert isinstance(caught.value.__cause__, NotAllowed)
        assert {partition: CommittedOffset(5)} == owner.load([partition], stable=True)
        owner.close()
        stranger.close()

    def test_another_writer_comes_between_read_and_write(self) -> None:
        """The offset is read again, and stored if it still may be."""
        (partition,) = self.partitions(1)
        with self.store() as store, self.tool() as tool:
            store.save(partition, 5, "")

            class Meanwhile(str):
                """Metadata. The store formats it after it has read the node, and then another tool changes the node."""

                __slots__ = ()

                def __format__(self, spec: str) -> str:
                    if tool.get(path)[0] == b"5":
                        tool.set(path, b"6")
                    return str(self)

            path = self.path(partition)
            store.save(partition, 7, Meanwhile("ours"))

            assert {partition: CommittedOffset(7, "ours")} == store.load([partition], stable=True)


class TestZooKeeperFaults(OnZooKeeper, OffsetStoreFaults):
    """What happens when ZooKeeper fails."""

    def corrupt(self, partition: Partition) -> None:
        with self.tool() as tool:
            tool.set(self.path(partition), b"4x")
