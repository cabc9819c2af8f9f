"""The contract of offset stores on real servers."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import psutil
import pytest
from confluent_kafka import Producer, TopicPartition

from app.embedded.broker import Broker, Cluster
from app.errors import Transient
from app.model import CommittedOffset, Partition
from app.offsets.contract import OffsetStore, StoreContext
from app.offsets.kafka import KafkaGroupOffsets
from app.offsets.testing import OffsetStoreContract
from tests.conftest import QUICK_JAVA, Topics
from tests.support.waiting import without


class TestKafkaGroupOffsets(OffsetStoreContract):
    """The group's offsets in Kafka, as the driver and at-least-once tasks use them."""

    @pytest.fixture(autouse=True)
    def _kafka(self, broker: Cluster, topics: Topics) -> None:
        self.topics = topics
        self.context = StoreContext(f"group-{uuid.uuid4().hex}", {"bootstrap.servers": broker.bootstrap})

    def open_store(self) -> OffsetStore:
        return KafkaGroupOffsets(self.context)

    def partitions(self, count: int) -> list[Partition]:
        topic = self.topics("raw", count)
        return [Partition(topic, number) for number in range(count)]

    def test_a_stable_load_waits_for_a_transaction(self) -> None:
        """A stable load waits for an open transaction instead of returning the offset before it (KIP-447)."""
        (partition,) = self.partitions(1)
        own = {"transactional.id": f"t-{uuid.uuid4().hex}", "log_level": "0"}
        producer = Producer({**self.context.kafka, **own})
        producer.init_transactions(10)
        with self.store() as store:
            store.save(partition, 1, "before")
            group = KafkaGroupOffsets(self.context)._reader(stable=True).consumer_group_metadata()
            producer.begin_transaction()
            producer.send_offsets_to_transaction([TopicPartition(*partition, 2, "inside")], group, 10)

            assert {partition: CommittedOffset(1, "before")} == store.load([partition], stable=False)
            producer.commit_transaction(10)
            assert {partition: CommittedOffset(2, "inside")} == store.load([partition], stable=True)


PARTITION = Partition("raw", 0)


@pytest.fixture
def doomed() -> Iterator[Broker]:
    """Return a broker that the test may kill."""
    with Broker(java=QUICK_JAVA) as broker:
        broker.create_topic(PARTITION.topic)
        yield broker


@pytest.fixture
def store(doomed: Broker) -> KafkaGroupOffsets:
    """Return a store that has saved offset 1 there; the test closes it."""
    store = KafkaGroupOffsets(StoreContext("group", {"bootstrap.servers": doomed.bootstrap}))
    store.save(PARTITION, 1, "")
    return store


def test_a_commit_whose_broker_dies_ends_in_time_and_comes_before_the_next(
    doomed: Broker, store: KafkaGroupOffsets
) -> None:
    """A commit without an answer is an error in time; librdkafka repeats it later, but never after a newer one."""
    (server,) = psutil.Process(*doomed.pids).children()
    server.suspend()
    with pytest.raises(Transient, match="raw-0@2: committing the offset failed"):
        store.reset(PARTITION, 2, "")
    repeated = store._last_commit
    doomed.kill()
    with pytest.raises(Transient, match="raw-0@3: committing the offset failed"):
        store.reset(PARTITION, 3, "")
    newer_waits = store._last_commit is repeated
    doomed.start()
    without(Transient, lambda: store.save(PARTITION, 4, ""), "the offset of after the outage")
    stored = store.load([PARTITION], stable=True)[PARTITION]
    store.close()

    assert newer_waits
    assert 4 == stored.offset


def test_a_store_closes_while_a_commit_has_no_answer(doomed: Broker, store: KafkaGroupOffsets) -> None:
    """A process can end while its last commit waits for a broker that is lost."""
    doomed.kill()
    with pytest.raises(Transient):
        store.reset(PARTITION, 2, "")
    store.close()
