"""The contract of the stores in ZooKeeper and in MySQL on real servers, also on servers that fail."""

from __future__ import annotations

import uuid

import pymysql
import pytest
from kazoo.client import KazooClient

from app.model import Partition
from app.offsets.contract import OffsetStore, StoreContext
from app.offsets.faults import OffsetStoreFaults
from app.offsets.mysql import MySqlOffsets
from app.offsets.testing import OffsetStoreContract
from app.offsets.zookeeper import ZooKeeperOffsets
from tests.servers.mariadb import MariaDB
from tests.servers.server import Server
from tests.servers.zookeeper import ZooKeeper


class OnServer:
    """What the tests of every store on a server have in common."""

    server: Server

    def context(self) -> StoreContext:
        return StoreContext(self.group, {})

    @pytest.fixture(autouse=True)
    def _group(self) -> None:
        self.group = f"group-{uuid.uuid4().hex}"

    def stop_server(self) -> None:
        self.server.kill()

    def start_server(self) -> None:
        self.server.start()

    def freeze_server(self) -> None:
        self.server.freeze()

    def thaw_server(self) -> None:
        self.server.thaw()


class OnZooKeeper(OnServer):
    @pytest.fixture(autouse=True)
    def _server(self, zookeeper: ZooKeeper) -> None:
        self.server = zookeeper

    def open_store(self) -> OffsetStore:
        return ZooKeeperOffsets(self.context(), hosts=self.server.address)

    def corrupt(self, partition: Partition) -> None:
        client = KazooClient(self.server.address)
        client.start()
        client.set(f"/consumers/{self.group}/offsets/{partition.topic}/{partition.number}", b"x12")
        client.stop()
        client.close()


class TestZooKeeper(OnZooKeeper, OffsetStoreContract):
    """The contract, at the place of old consumers."""


class TestZooKeeperFaults(OnZooKeeper, OffsetStoreFaults):
    """A ZooKeeper that fails."""


class OnMariaDB(OnServer):
    @pytest.fixture(autouse=True)
    def _server(self, mariadb: MariaDB) -> None:
        self.server = mariadb
        self.options = {
            "host": "127.0.0.1",
            "port": mariadb.port,
            "user": mariadb.user,
            "password": mariadb.password,
            "database": mariadb.database,
        }

    def open_store(self) -> OffsetStore:
        return MySqlOffsets(self.context(), **self.options)

    def corrupt(self, partition: Partition) -> None:
        with pymysql.connect(**self.options, autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute(
                "UPDATE winnow_offsets SET next_offset = -7 WHERE topic = %s AND partition_id = %s", partition
            )


class TestMySql(OnMariaDB, OffsetStoreContract):
    """The contract, on MariaDB."""


class TestMySqlFaults(OnMariaDB, OffsetStoreFaults):
    """A MariaDB that fails."""
