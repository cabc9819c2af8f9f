"""What the tests of all offset stores on servers share."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from app.embedded.broker import Cluster
from app.model import Partition, Plugin
from app.offsets.contract import StoreContext
from app.offsets.registry import open_store
from tests.conftest import Topics
from tests.independent import Written, by_partition, cleansed, line, produce, read
from tests.integration.in_process import run
from tests.integration.service import settings
from tests.servers.server import Server

STORES = ("kafka", "redis", "files", "zookeeper", "mysql", "hbase")
"""The stores that persist offsets, as the fixture `store` configures them."""


class OnServer:
    """A store on a server that can fail. Each test has its own group."""

    server: Server

    @pytest.fixture(autouse=True)
    def _group(self) -> None:
        self.group = f"group-{uuid.uuid4().hex[:8]}"
        self.context = StoreContext(self.group, {})

    def stop_server(self) -> None:
        self.server.kill()

    def start_server(self) -> None:
        self.server.start()

    def freeze_server(self) -> None:
        self.server.freeze()

    def thaw_server(self) -> None:
        self.server.thaw()


class StoreStage:
    """The topics of one test, a service that runs on them with a store, and the results."""

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

    def remembered(self, store: dict[str, Any] | None = None) -> dict[int, int]:
        """Ask the store itself, or another one."""
        options = dict(store or self.store)
        name = options.pop("name")
        opened = open_store(Plugin(name, options), StoreContext(self.sink, self.config["kafka"]))
        partitions = [Partition(self.source, number) for number in range(3)]
        try:
            return {each.number: at.offset for each, at in opened.load(partitions, stable=True).items()}
        finally:
            opened.close()


def lines(partition: int, *numbers: int) -> list[bytes]:
    return [cleansed(n, partition) for n in numbers]
