"""The servers of the offset stores: one of each for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.offsets import files, mysql
from app.offsets import hbase as in_hbase
from app.offsets import redis as in_redis
from app.offsets import zookeeper as in_zookeeper
from app.offsets.faults import OffsetStoreFaults
from tests.servers.hbase import HBase, HBaseThrift
from tests.servers.hdfs import Hdfs
from tests.servers.mariadb import MariaDB
from tests.servers.redis import Redis
from tests.servers.zookeeper import ZooKeeper


@pytest.fixture(autouse=True)
def _patience(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Give stores more time than a task has: the server of a busy machine may take it.

    Not where the server fails: some stores wait for it as long.
    """
    if not issubclass(request.cls or object, OffsetStoreFaults):
        for store in (files, in_hbase, mysql, in_redis, in_zookeeper):
            monkeypatch.setattr(store, "SECONDS", 60)
        monkeypatch.setattr(in_hbase, "CREATE_SECONDS", 60)


@pytest.fixture
def store(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """Return the configuration of a store on its real server."""
    name = request.param
    match name:
        case "redis":
            return {"name": name, "url": request.getfixturevalue("redis").url}
        case "files":
            return {"name": name, "url": f"file://{tmp_path}"}
        case "zookeeper":
            return {"name": name, "hosts": request.getfixturevalue("zookeeper").address}
        case "mysql":
            server = request.getfixturevalue("mariadb")
            options = {key: getattr(server, key) for key in ("user", "password", "database")}
            return {"name": name, "host": "127.0.0.1", "port": server.port, **options}
        case "hbase":
            return {"name": name, "host": "127.0.0.1", "port": request.getfixturevalue("hbase").port}
    return {"name": name}


@pytest.fixture(scope="package")
def redis() -> Iterator[Redis]:
    """Return the Redis of the folder; a test that stops it starts it again."""
    with Redis() as server:
        yield server


@pytest.fixture(scope="package")
def zookeeper() -> Iterator[ZooKeeper]:
    """Return the ZooKeeper of the folder; a test that stops it starts it again."""
    with ZooKeeper() as server:
        yield server


@pytest.fixture(scope="package")
def mariadb() -> Iterator[MariaDB]:
    """Return the MariaDB of the folder; a test that stops it starts it again."""
    with MariaDB() as server:
        yield server


@pytest.fixture(scope="package")
def hdfs() -> Iterator[Hdfs]:
    """Return the HDFS of the folder; a test that stops it starts it again."""
    with Hdfs() as server:
        yield server


@pytest.fixture(scope="package")
def hbase() -> Iterator[HBaseThrift]:
    """Return the Thrift server of the folder's HBase; a test that stops it starts it again."""
    with HBase() as server, HBaseThrift(server) as thrift:
        yield thrift
