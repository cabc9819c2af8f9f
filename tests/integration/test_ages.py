"""The age of waiting records, read from a real broker."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import KafkaError, Producer

from app.embedded.broker import Cluster
from app.kafka.admin import AdminConnection
from app.kafka.ages import KafkaAges, KafkaFirstRecords
from app.kafka.topics import KafkaTopics
from app.model import Partition
from tests.conftest import Topics
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.integration
DAY = 86_400.0
AT = time.time() - DAY


def write(broker: Cluster, topic: str, partition: int, *ages: float, transactional: bool = False) -> None:
    """Write records with these timestamps, in seconds since `AT`, optionally behind an aborted transaction."""
    settings: dict[str, str] = {"bootstrap.servers": broker.bootstrap}
    producer = Producer(settings | ({"transactional.id": f"{topic}-{partition}"} if transactional else {}))
    if transactional:
        producer.init_transactions(PATIENCE)
        for outcome in (producer.abort_transaction, producer.commit_transaction):
            producer.begin_transaction()
            for age in ages:
                producer.produce(topic, b"line", partition=partition, timestamp=int((AT + age) * 1000))
            producer.flush(PATIENCE)
            outcome(PATIENCE)
        return
    for age in ages:
        producer.produce(topic, b"line", partition=partition, timestamp=int((AT + age) * 1000))
    assert 0 == producer.flush(PATIENCE)


def read_until(ages: KafkaAges, offsets: dict[Partition, int], wanted: dict[Partition, float]) -> None:
    """Look until these are the ages, in seconds since `AT`. Until a look reads a partition, its last reading stands."""
    until(lambda: wanted == {at: round((each.since or AT) - AT, 2) for at, each in ages.waiting(offsets).items()})


def test_the_first_waiting_record_has_an_age(broker: Cluster, topics: Topics) -> None:
    """The age is that of the first readable record at or after the offset."""
    topic = topics("source", 4, {"retention.ms": str(int(7 * DAY * 1000))})
    plain, aborted, empty, other = (Partition(topic, number) for number in range(4))
    write(broker, *plain, 10, 20, 30)
    write(broker, *aborted, 40, 50, transactional=True)
    write(broker, *other, 60)
    connection = AdminConnection({"bootstrap.servers": broker.bootstrap})
    ages = KafkaAges({"bootstrap.servers": broker.bootstrap}, "ages", KafkaTopics(connection))

    read_until(ages, {plain: 1, aborted: 0, empty: 0}, {plain: 20.0, aborted: 40.0, empty: 0.0})
    read_until(ages, {plain: 2, aborted: 0, other: 0}, {plain: 30.0, aborted: 40.0, other: 60.0})
    assert {7 * DAY} == {each.retention for each in ages.waiting({plain: 2, other: 0}).values()}


def test_a_look_at_many_partitions(broker: Cluster, topics: Topics) -> None:
    """
    One partition never delays another, even if it is already read, or its batch is larger than requested.

    If librdkafka waited a second between two fetches, or the broker returned a single batch, most would stay unknown.
    """
    topic = topics("source", 300)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "batch.size": 200_000, "linger.ms": 500})
    for number in range(300):
        for _ in range(2):
            producer.produce(topic, bytes(80_000 if number % 10 == 0 else 2_000), partition=number)
    assert 0 == producer.flush(PATIENCE)
    waits = {Partition(topic, number): 1 for number in range(300)}

    looks = KafkaFirstRecords({"bootstrap.servers": broker.bootstrap}, "ages", seconds=15)

    # Each look begins anew, and a busy machine may be late for one.
    until(lambda: waits.keys() == looks.times(waits).keys(), "a look at all partitions")


def test_what_cannot_be_read_in_time(broker: Cluster, topics: Topics) -> None:
    """The last record read stands for those behind it until nothing waits. Offsets without records have no age."""
    topic = topics("source", 2)
    plain, aborted = Partition(topic, 0), Partition(topic, 1)
    write(broker, *plain, 10, 20, 30)
    write(broker, *aborted, 40, transactional=True)
    kafka = {"bootstrap.servers": broker.bootstrap}
    ages = KafkaAges(kafka, "ages", KafkaTopics(AdminConnection(kafka)))
    read_until(ages, {plain: 0, aborted: 3}, {plain: 10.0, aborted: 0.0})
    ages._first_records._seconds = 0

    assert {plain: round(AT + 10), aborted: None} == {
        each: at.since and round(at.since) for each, at in ages.waiting({plain: 1, aborted: 3}).items()
    }
    assert {} == ages.waiting({aborted: 4})
    assert {} == ages.waiting({plain: 2})


def test_where_nobody_answers_nothing_is_known() -> None:
    """An outage takes no longer than one look, raises no error, and leaves all ages unknown."""
    nowhere = {"bootstrap.servers": "127.0.0.1:1"}
    ages = KafkaAges(nowhere, "ages", KafkaTopics(AdminConnection(nowhere)))

    assert {} == ages.waiting({Partition("ages", 0): 0})


def test_a_client_that_is_refused_is_replaced(broker: Cluster, topics: Topics) -> None:
    """Librdkafka never reads a new password, so with that client the ages would stay unknown, or as they were, for ever."""
    waits = {Partition(topics("source"), 0): 0}
    looks = KafkaFirstRecords({"bootstrap.servers": broker.bootstrap}, "ages", seconds=15)
    looks.times(waits)
    first = looks._consumer
    looks._heard(KafkaError(KafkaError._TRANSPORT))  # exported with an underscore only
    looks.times(waits)
    assert first is looks._consumer
    looks._heard(KafkaError(KafkaError._AUTHENTICATION))
    looks.times(waits)
    looks.times(waits)

    assert looks._consumer not in (None, first)
