"""The group's offsets in Kafka, whose broker freezes or is lost during a commit."""

from __future__ import annotations

import uuid

import psutil
import pytest

from app.embedded.broker import Broker
from app.errors import Transient, Unreachable
from app.kafka.offsets import KafkaGroupOffsets
from app.model import Partition
from app.offsets.contract import StoreContext
from tests.chaos.cluster import stopped
from tests.support.waiting import without


@pytest.fixture
def partition(mortal: Broker) -> Partition:
    """Return the partition of a new topic."""
    return Partition(mortal.create_topic(f"saved-{uuid.uuid4().hex}"), 0)


@pytest.fixture
def store(mortal: Broker, partition: Partition) -> KafkaGroupOffsets:
    """Return a store that has saved offset 1 there, and close it after the test."""
    store = KafkaGroupOffsets(StoreContext(partition.topic, {"bootstrap.servers": mortal.bootstrap}))
    without(Transient, lambda: store.save(partition, 1, ""), "the first offset")  # the broker may have just started
    return store


def test_a_commit_whose_broker_dies_ends_in_time_and_comes_before_the_next(
    mortal: Broker, partition: Partition, store: KafkaGroupOffsets
) -> None:
    """A commit without a response fails in time. librdkafka repeats it later, but never after a newer one."""
    (server,) = psutil.Process(*mortal.pids).children()
    with stopped(server):
        with pytest.raises(Transient, match=f"{partition}@2: committing the offset failed"):
            store.reset(partition, 2, "")
        repeated = store._last_commit
        mortal.kill()
    with pytest.raises(Transient, match=f"{partition}@3: committing the offset failed"):
        store.reset(partition, 3, "")
    newer_waits = store._last_commit is repeated
    mortal.start()
    without(Transient, lambda: store.save(partition, 4, ""), "the offset of after the outage")
    stored = without(Unreachable, lambda: store.load([partition], stable=True), "an answer")[partition]
    store.close()

    assert newer_waits
    assert 4 == stored.offset


def test_a_store_closes_while_a_commit_has_no_answer(
    mortal: Broker, partition: Partition, store: KafkaGroupOffsets
) -> None:
    """A process can end while its last commit waits for a lost broker."""
    mortal.kill()
    with pytest.raises(Transient):
        store.reset(partition, 2, "")
    store.close()
    mortal.start()  # its client ends once that commit has its answer
