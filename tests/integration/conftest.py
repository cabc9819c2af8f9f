"""Marks everything in this folder as an integration test; starts the servers of the offset stores, once each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.embedded.broker import Broker
from tests.conftest import QUICK_JAVA
from tests.integration.service import Winnow
from tests.servers.hbase import HBase, HBaseThrift
from tests.servers.hdfs import Hdfs
from tests.servers.mariadb import MariaDB
from tests.servers.redis import Redis
from tests.servers.zookeeper import ZooKeeper
from tests.support.leftovers import _nothing_is_left_running, no_client_is_left

__all__ = ["_nothing_is_left_running", "no_client_is_left"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder, and no others."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.integration)


@pytest.fixture(autouse=True, scope="session")
def long(request: pytest.FixtureRequest) -> bool:
    """Return whether this is `make faults`: each service runs on Spark, and outages and kills have their full length."""
    Winnow.on_spark = bool(request.config.getoption("long"))
    return Winnow.on_spark


@pytest.fixture(scope="session")
def second() -> Iterator[Broker]:
    """Return a cluster beside the usual one."""
    with Broker(java=QUICK_JAVA) as broker:
        yield broker


@pytest.fixture(params=["one cluster", "two clusters"])
def centre(request: pytest.FixtureRequest) -> Broker | None:
    """Return the cluster of the sink, the dead letters and the offsets; None where it is that of the source."""
    return request.getfixturevalue("second") if request.param == "two clusters" else None


@pytest.fixture
def store(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """Return how a store on its real server is configured."""
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


@pytest.fixture(scope="session")
def redis() -> Iterator[Redis]:
    """Return the Redis of the session; a test that stops it starts it again."""
    with Redis() as server:
        yield server


@pytest.fixture(scope="session")
def zookeeper() -> Iterator[ZooKeeper]:
    """Return the ZooKeeper of the session; a test that stops it starts it again."""
    with ZooKeeper() as server:
        yield server


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDB]:
    """Return the MariaDB of the session; a test that stops it starts it again."""
    with MariaDB() as server:
        yield server


@pytest.fixture(scope="session")
def hdfs() -> Iterator[Hdfs]:
    """Return the HDFS of the session; a test that stops it starts it again."""
    with Hdfs() as server:
        yield server


@pytest.fixture(scope="session")
def hbase() -> Iterator[HBaseThrift]:
    """Return the Thrift server of the session's HBase; a test that stops it starts it again."""
    with HBase() as server, HBaseThrift(server) as thrift:
        yield thrift
