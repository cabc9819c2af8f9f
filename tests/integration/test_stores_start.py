"""
Where the service starts with each offset store: the first time, again, with new partitions, and outside the range.

The driver, its tasks, Kafka and the stores' servers are real; only Spark is not, because it has no part in this.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewPartitions  # type: ignore[attr-defined]  # not in its __all__

from app.embedded.broker import Cluster
from app.model import Partition, Plugin
from app.offsets.contract import StoreContext
from app.offsets.registry import open_store
from tests import independent
from tests.conftest import Topics
from tests.independent import Written, by_partition, cleansed, line, produce, read
from tests.integration.in_process import run
from tests.integration.service import settings

Configured = Callable[[], dict[str, Any]]

STORES = ("kafka", "redis", "files", "zookeeper", "mysql")
REMEMBERING = pytest.mark.parametrize("store", STORES, indirect=True)


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
    return {"name": name}


class Stage:
    """Topics and a configuration of one test, and what it has written."""

    def __init__(self, broker: Cluster, topics: Topics, store: dict[str, Any], **more: object) -> None:
        self.broker, self.source, self.sink = broker, topics("raw", 2), topics("clean", 3)
        self.store = store
        self.config = settings(
            broker.bootstrap,
            group=self.sink,
            sources=[self.source],
            sink=self.sink,
            dead=topics("dead"),
            delivery_guarantee="at-least-once",
            **more,
        ) | {"offsets": {"store": store}}

    def write(self, partition: int, first: int, last: int) -> None:
        produce(
            self.broker.bootstrap,
            self.source,
            [Written(line(n, partition), None, partition) for n in range(first, last)],
        )

    def run(self) -> int:
        return run(self.config)[0]

    def cleansed(self) -> dict[int, list[bytes | None]]:
        return by_partition(read(self.broker.bootstrap, self.sink))

    def remembered(self) -> dict[int, int]:
        """Ask the store itself."""
        options = {key: value for key, value in self.store.items() if key != "name"}
        opened = open_store(Plugin(self.store["name"], options), StoreContext(self.sink, self.config["kafka"]))
        partitions = [Partition(self.source, number) for number in range(3)]
        try:
            return {each.number: at.offset for each, at in opened.load(partitions, stable=True).items()}
        finally:
            opened.close()


def lines(partition: int, *numbers: int) -> list[bytes]:
    return [cleansed(n, partition) for n in numbers]


@REMEMBERING
def test_the_three_starts(broker: Cluster, topics: Topics, store: dict[str, Any]) -> None:
    """A first start follows the policy; a later one goes on; a partition that came since begins at its beginning."""
    stage = Stage(broker, topics, store)
    stage.write(0, 0, 5)
    stage.write(1, 0, 3)

    assert 0 == stage.run()
    assert {0: 5, 1: 3} == stage.remembered()

    stage.write(0, 5, 7)
    assert 0 == stage.run()
    assert {0: 7, 1: 3} == stage.remembered()

    grown = independent.client(broker.bootstrap).create_partitions([NewPartitions(stage.source, 3)])
    grown[stage.source].result(30)
    stage.write(2, 0, 4)
    assert 0 == stage.run()

    assert {0: 7, 1: 3, 2: 4} == stage.remembered()
    expected = {0: lines(0, *range(7)), 1: lines(1, *range(3)), 2: lines(2, *range(4))}
    assert expected == stage.cleansed()


@REMEMBERING
def test_an_offset_outside_the_range(broker: Cluster, topics: Topics, store: dict[str, Any]) -> None:
    """Records that were deleted unread block their partition, or are skipped, as out.of.range says."""
    stage = Stage(broker, topics, store)
    stage.write(0, 0, 5)
    assert 0 == stage.run()
    stage.write(0, 5, 20)
    stage.write(1, 0, 2)
    for deleted in independent.client(broker.bootstrap).delete_records([TopicPartition(stage.source, 0, 15)]).values():
        deleted.result(30)

    assert 1 == stage.run()
    assert {0: 5, 1: 2} == stage.remembered()

    stage.config["out.of.range"] = "earliest"
    assert 0 == stage.run()

    assert {0: 20, 1: 2} == stage.remembered()
    assert lines(0, *range(5), *range(15, 20)) == stage.cleansed()[0]


@pytest.mark.parametrize("store", ["none"], indirect=True)
def test_nothing_is_remembered(broker: Cluster, topics: Topics, store: dict[str, Any]) -> None:
    """Without a store each start follows the policy."""
    stage = Stage(broker, topics, store)
    stage.write(0, 0, 3)

    assert 0 == stage.run()
    assert 0 == stage.run()

    assert lines(0, 0, 1, 2, 0, 1, 2) == stage.cleansed()[0]
