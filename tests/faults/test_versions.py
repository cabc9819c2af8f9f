"""The service on older brokers, and on brokers that are upgraded under load."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, IsolationLevel, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]  # not in its __all__

from app.embedded.broker import Broker
from tests.chaos.cluster import stopped
from tests.chaos.epochs import Coordinator
from tests.conftest import QUICK_JAVA
from tests.independent import Feeder, amiss, arrived, connect_again, read
from tests.integration.service import Winnow, settings
from tests.servers.kafka_tool import kafka_tool
from tests.support.ivy import kafka, resolved
from tests.support.spark import QUICK
from tests.support.waiting import until

OLDEST = "3.9.2"
VERSIONS = (OLDEST, "4.0.2", "4.1.2")
PARTITIONS, SOME = 3, 2_000
"""The partitions of each topic, and how many lines arrive between two faults."""


class Load:
    """A service that cleanses steadily written lines."""

    def __init__(self, broker: Broker, folder: Path, replicas: int, **more: object) -> None:
        names = ("raw", "clean", "dead")
        self._broker = broker
        self.source, self.sink, dead = (broker.create_topic(each, PARTITIONS, replication=replicas) for each in names)
        self.feeder = Feeder(broker.bootstrap, self.source, PARTITIONS)
        config = settings(broker.bootstrap, group=self.sink, sources=[self.source], sink=self.sink, dead=dead, **more)
        self.service = Winnow(config, folder)
        self._expected = 0

    def more_arrives(self) -> None:
        """Wait until lines arrive that were written just now."""
        self._expected = self.feeder.written.total() + SOME
        arrived(self._broker.bootstrap, self.sink, self._expected)

    def stalls_in_a_transaction(self) -> None:
        """Stop a task that has open transactions until the broker has aborted them."""
        stalled = False
        while not stalled:
            with stopped(until(lambda: self.service.workers, "a task")[0]):
                if self._open_transactions():
                    stalled = until(lambda: not self._open_transactions(), "the broker has aborted them")

    def _open_transactions(self) -> bool:
        stable, written = (
            self._ends(each) for each in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
        )
        return stable != written

    def _ends(self, isolation: IsolationLevel) -> list[int]:
        latest: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        wanted = {TopicPartition(self.sink, number): latest for number in range(PARTITIONS)}
        found = self._broker.admin().list_offsets(wanted, isolation_level=isolation)
        return [each.result().offset for each in found.values()]

    def is_exact(self) -> None:
        """Stop the load, and require that each line has arrived once and in order."""
        self.feeder.stop()
        arrived(self._broker.bootstrap, self.sink, self.feeder.written.total())
        assert 0 == self.service.stop()
        assert {} == amiss(self.feeder.written, read(self._broker.bootstrap, self.sink))


@pytest.mark.parametrize("version", VERSIONS)
def test_an_older_kafka(version: str, tmp_path: Path) -> None:
    """Exactly once through a killed task, a killed broker and a killed service."""
    with Broker(java=QUICK, jars=resolved(kafka(version))) as broker:
        load = Load(broker, tmp_path, 1)
        with load.feeder, load.service:
            load.more_arrives()
            until(lambda: load.service.workers, "a task")[0].kill()
            load.more_arrives()
            broker.kill()
            broker.start()
            connect_again()
            load.more_arrives()
            load.is_exact()


@pytest.mark.parametrize(("version", "committed"), [(OLDEST, OFFSET_INVALID), ("4.0.2", 20)])
def test_a_late_offset_of_a_fenced_producer(version: str, committed: int) -> None:
    """Brokers refuse it. Before 4.0, they forget the offset of the transaction that is open, too."""
    with (
        Broker(java=QUICK, jars=resolved(kafka(version))) as broker,
        Coordinator(broker.bootstrap) as coordinator,
        closing(Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})) as consumer,
    ):
        topic = broker.create_topic("raw", 1)
        transactional = {"bootstrap.servers": broker.bootstrap, "transactional.id": "id"}
        Producer(transactional).init_transactions()
        fenced = coordinator.open("id")
        producer = Producer(transactional)
        producer.init_transactions()
        producer.begin_transaction()
        producer.send_offsets_to_transaction([TopicPartition(topic, 0, 20)], consumer.consumer_group_metadata())

        error = coordinator.commit_offset("id", "g", fenced, TopicPartition(topic, 0, 10))
        producer.commit_transaction()

        assert KafkaError.INVALID_PRODUCER_EPOCH == error
        assert committed == consumer.committed([TopicPartition(topic, 0)])[0].offset


@pytest.mark.parametrize("version", ["4.1.0", "4.1.2"])
def test_a_task_that_stalls_longer_than_its_transaction(version: str, tmp_path: Path) -> None:
    """Up to 4.1.0, brokers answer what comes afterwards with a fatal error instead of a fence (KAFKA-19690)."""
    soon = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}
    with Broker(java=QUICK, jars=resolved(kafka(version)), properties=soon) as broker:
        load = Load(broker, tmp_path, 1, transaction_timeout="10s")
        with load.feeder, load.service:
            for _ in range(3):
                load.more_arrives()
                load.stalls_in_a_transaction()
            load.more_arrives()
            load.is_exact()


def test_a_rolling_upgrade(tmp_path: Path) -> None:
    """Each node is replaced by a newer one. Then transaction.version rises, and all other features, under load."""
    with Broker(nodes=3, java=QUICK_JAVA, jars=resolved(kafka(OLDEST))) as broker:
        load = Load(broker, tmp_path, 3)
        with load.feeder, load.service:
            load.more_arrives()
            broker.jars = None
            for node in (1, 2, 3):
                broker.stop(node)
                broker.start(node)
                connect_again()
                load.more_arrives()
            assert 0 == transaction_version(broker)
            features(broker, "upgrade", "--release-version", "4.3")
            assert 2 == transaction_version(broker)
            load.more_arrives()
            load.is_exact()


def transaction_version(broker: Broker) -> int:
    """Return what all nodes use; with 2, each transaction has an epoch of its own (KIP-890)."""
    found = re.search(r"transaction\.version.*FinalizedVersionLevel: (\d+)", features(broker, "describe"))
    return int(found[1]) if found else 0


def features(broker: Broker, *arguments: str) -> str:
    """Run kafka-features."""
    return kafka_tool("org.apache.kafka.tools.FeatureCommand", "--bootstrap-server", broker.bootstrap, *arguments)
