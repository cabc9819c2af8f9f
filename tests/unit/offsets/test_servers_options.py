"""The options of stores on servers: nothing connects, and every mistake is named."""

from __future__ import annotations

import pytest
from kazoo.protocol.paths import normpath

from app.model import Partition, Plugin
from app.offsets.contract import StoreContext
from app.offsets.failures import StoreOptionError
from app.offsets.registry import open_store
from app.offsets.zookeeper import ZooKeeperOffsets

MYSQL = {"host": "h", "user": "u", "database": "d"}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("zookeeper", {"hosts": "a:2181,b:2181/chroot", "root": "/spark", "namespace": "etl", "position": "start"}),
        ("redis", {"url": "rediss://h:6379/0?ssl_ca_certs=/ca.pem&max_connections=1"}),
        ("mysql", MYSQL | {"port": "3307", "table": "offsets", "ssl.ca": "/ca.pem", "password": "p"}),
        ("hbase", {"host": "h", "port": 9091, "table": "etl:offsets", "time.to.live.days": 7, "transport": "framed"}),
    ],
)
def test_right_options(name: str, options: dict[str, object]) -> None:
    """A store opens without its server, and is not transactional."""
    store = open_store(Plugin(name, options), StoreContext("group", {}))

    assert not store.transactional
    store.close()


@pytest.mark.parametrize(
    ("name", "options", "problem"),
    [
        ("redis", {"url": "redis://h?timeout=3"}, "url has a wrong parameter after its .: .* 'timeout'"),
        ("redis", {"url": "rediss://h?ssl_cert_reqs=all"}, "url has a wrong parameter after its .: .*: all"),
        ("zookeeper", {"hosts": "a", "position": "middle"}, "position must be end or start, not 'middle'"),
        ("zookeeper", {"hosts": "a", "username": "u"}, "username and password must be set together"),
        ("zookeeper", {}, "option 'hosts' is missing"),
        ("mysql", MYSQL | {"port": 0}, "port must be a whole number from 1 to 65535, not 0"),
        ("mysql", MYSQL | {"table": "a; drop"}, "table must be a name"),
        ("mysql", {"host": "h", "user": "u"}, "option 'database' is missing"),
        ("hbase", {"host": "h", "transport": "http"}, "transport must be buffered or framed, not 'http'"),
        ("hbase", {"host": "h", "table": "-offsets"}, "table must be a name of letters"),
        ("hbase", {"host": "h", "time.to.live.days": "x"}, "time.to.live.days must be a whole number"),
    ],
)
def test_wrong_options(name: str, options: dict[str, object], problem: str) -> None:
    """A mistake is found before anything connects."""
    with pytest.raises(StoreOptionError, match=problem):
        open_store(Plugin(name, options), StoreContext("group", {}))


@pytest.mark.parametrize(("group", "node"), [("a/b", "a%2Fb"), (".", "%2E"), ("..", "%2E%2E"), ("...", "...")])
def test_zookeeper_takes_the_path_of_any_group(group: str, node: str) -> None:
    """Kafka allows groups that are no name of a node."""
    path = ZooKeeperOffsets(StoreContext(group, {}), hosts="a")._path(Partition("raw", 0))

    assert f"/consumers/{node}/offsets/raw/0" == normpath(path)
