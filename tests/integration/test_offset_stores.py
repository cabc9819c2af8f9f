"""The contract of offset stores on real servers."""

from __future__ import annotations

import uuid
from functools import partial

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from app.embedded.broker import Cluster
from app.errors import Unreachable
from app.kafka.offsets import KafkaGroupOffsets
from app.model import CommittedOffset, Partition
from app.offsets.contract import OffsetStore, StoreContext
from app.offsets.testing import OffsetStoreContract
from tests.conftest import Topics
from tests.support.waiting import PATIENCE, without


class TestKafkaGroupOffsets(OffsetStoreContract):
    """The group's offsets in Kafka, as the driver and at-least-once tasks use them."""

    @pytest.fixture(autouse=True)
    def _kafka(self, broker: Cluster, topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("app.kafka.offsets.DRIVER_SECONDS", PATIENCE)
        monkeypatch.setattr("app.kafka.offsets.COMMIT_SECONDS", PATIENCE)
        self.topics = topics
        self.context = StoreContext(f"group-{uuid.uuid4().hex}", {"bootstrap.servers": broker.bootstrap})
        with self.store() as store:
            ask = partial(store.load, self.partitions(1), stable=True)
            without(Unreachable, ask, "the group's coordinator, which a new broker may still be electing")

    def open_store(self) -> OffsetStore:
        return KafkaGroupOffsets(self.context)

    def partitions(self, count: int) -> list[Partition]:
        topic = self.topics("raw", count)
        return [Partition(topic, number) for number in range(count)]

    def test_a_stable_load_waits_for_a_transaction(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A stable load waits for an open transaction instead of returning the offset before it (KIP-447)."""
        (partition,) = self.partitions(1)
        own = {"transactional.id": f"t-{uuid.uuid4().hex}", "log_level": "0"}
        producer = Producer({**self.context.kafka, **own})
        producer.init_transactions(PATIENCE)
        with self.store() as store:
            store.save(partition, 1, "before")
            member = Consumer({**self.context.kafka, "group.id": self.context.group, "log_level": "0"})
            group = member.consumer_group_metadata()
            member.close()
            producer.begin_transaction()
            producer.send_offsets_to_transaction([TopicPartition(*partition, 2, "inside")], group, PATIENCE)

            assert {partition: CommittedOffset(1, "before")} == store.load([partition], stable=False)
            with monkeypatch.context() as hasty:
                hasty.setattr("app.kafka.offsets.DRIVER_SECONDS", 2.0)
                with pytest.raises(Unreachable, match="Timed out"):
                    store.load([partition], stable=True)
            producer.commit_transaction(PATIENCE)
            assert {partition: CommittedOffset(2, "inside")} == store.load([partition], stable=True)
