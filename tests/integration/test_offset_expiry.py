"""Brokers expire offsets after two minutes, yet every partition keeps its place whatever the service does meanwhile."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from app.config import Config
from app.embedded.broker import Broker
from app.kafka.admin import AdminConnection
from app.kafka.cluster import KafkaGroup
from app.model import Pause
from app.start import clients
from tests import independent
from tests.conftest import QUICK_JAVA, STEADY
from tests.independent import Written, by_partition, cleansed, committed, line, produce, read
from tests.integration.in_process import Running, run
from tests.integration.service import settings
from tests.support.waiting import PATIENCE, until


@pytest.fixture(scope="module")
def forgetful() -> Iterator[Broker]:
    """
    Return a broker that expires the offsets of a group that has been idle for two minutes.

    A service renews them every quarter of that time. On a busy machine, between two runs of one, it may take longer than
    the rest of a minute, the shortest time that Kafka knows.
    """
    soon = {"offsets.retention.minutes": "2", "offsets.retention.check.interval.ms": "1000"}
    with Broker(properties={**soon, **STEADY}, java=QUICK_JAVA) as broker:
        yield broker


def test_it_tells_for_how_long(forgetful: Broker) -> None:
    """The driver asks a broker for the retention time of offsets."""
    assert 120.0 == KafkaGroup([AdminConnection({"bootstrap.servers": forgetful.bootstrap})], "g").offset_retention()


def config(broker: Broker, name: str) -> dict[str, Any]:
    """Create topics with some lines in partitions 0 and 1 and none left in 2. Return a configuration for them."""
    for role in ("raw", "clean", "dead"):
        broker.create_topic(f"{name}.{role}", 3)
    produce(
        broker.bootstrap, f"{name}.raw", [Written(line(n, each), None, each) for each in range(3) for n in range(9)]
    )
    return settings(broker.bootstrap, group=name, sources=[f"{name}.raw"], sink=f"{name}.clean", dead=f"{name}.dead")


def test_every_partition_keeps_its_place(forgetful: Broker) -> None:
    """
    Idle, blocked and paused partitions all continue where they were after the retention time of offsets.

    An idle group shows that the broker does expire offsets.
    """
    bootstrap, names = forgetful.bootstrap, ("idle", "paused")
    idle, paused = [config(forgetful, name) for name in names]

    def stand_at(name: str) -> list[int]:
        return [at for _, at in sorted(committed(bootstrap, name, f"{name}.raw").items())]

    def cleansed_by(name: str) -> dict[int, list[bytes | None]]:
        return by_partition(read(bootstrap, f"{name}.clean"))

    # Partition 2 is blocked because its next records were deleted.
    independent.commit(bootstrap, "idle", {("idle.raw", 2): 2})
    for deleted in independent.client(bootstrap).delete_records([TopicPartition("idle.raw", 2, 5)]).values():
        deleted.result(PATIENCE)
    with contextlib.ExitStack() as stack:
        services = [stack.enter_context(Running(each)) for each in (idle, paused)]
        until(lambda: [9, 9, 2] == stand_at("idle") and [9, 9, 9] == stand_at("paused"), "the first lines")
        clients(Config.model_validate(paused)).pauses.set(Pause(1, "test"))
        independent.commit(bootstrap, "nobody", {("idle.raw", 0): 9})
        until(lambda: not committed(bootstrap, "nobody", "idle.raw"), "the broker to forget")
        assert [[9, 9, 2], [9, 9, 9]] == [stand_at(name) for name in names]
        codes = [end() for end in services]
    # A backfill finds no work, but renews the offsets.
    for name in names:
        produce(bootstrap, f"{name}.raw", [Written(line(n, 1), None, 1) for n in range(9, 11)])
    clients(Config.model_validate(paused)).pauses.clear()
    codes += [run(each)[0] for each in (idle, paused)]

    assert [0, 0, 1, 0] == codes
    assert [[9, 11, 2], [9, 11, 9]] == [stand_at(name) for name in names]
    for name, counts in zip(names, ([9, 11, 0], [9, 11, 9]), strict=True):
        found = cleansed_by(name)
        assert [[cleansed(n, each) for n in range(count)] for each, count in enumerate(counts)] == [
            found.get(each, []) for each in range(3)
        ]
