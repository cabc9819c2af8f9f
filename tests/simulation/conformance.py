"""
What a cluster with confluent_kafka's clients does, as far as the product depends on it.

The same functions run on the model (`tests/schedules/test_model.py`) and on a real broker
(`tests/integration/test_conformance_of_the_model.py`). A model that differed would prove nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import pytest
from confluent_kafka import OFFSET_INVALID, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]  # not in its __all__

from app.kafka.failures import FENCED, error_of

SECONDS = 600.0
"""For how long to wait for the cluster; a real one may be on a busy machine."""
LONG_AGO = 1_700_000_000_000
"""A timestamp in milliseconds: in 2023."""
COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"


class Kafka(Protocol):
    """A cluster, and how to wait there."""

    name: str
    """Begins every name of this test."""

    def topic(self, partitions: int = 1, *, append_time: bool = False) -> str:
        """Create a topic, perhaps one whose records get the time at which they are written."""

    def producer(self, transactional_id: str | None = None, **settings: Any) -> Any:
        """Make a producer."""

    def consumer(self, isolation: str = COMMITTED, **settings: Any) -> Any:
        """Make a consumer of the group `name`."""

    def admin(self) -> Any:
        """Make an admin client."""

    def until(self, check: Callable[[], object], what: str) -> None:
        """Wait until this holds."""


def opened(kafka: Kafka) -> Any:
    """Return a new owner of the only transactional id, which has fenced all earlier ones."""
    producer = kafka.producer(f"{kafka.name}/id")
    producer.init_transactions(SECONDS)
    return producer


def write(producer: Any, topic: str, *values: bytes) -> None:
    """Write records and wait until they are in the log."""
    for value in values:
        producer.produce(topic, value, partition=0)
    assert 0 == producer.flush(SECONDS)


def send_offset(kafka: Kafka, producer: Any, topic: str, offset: int) -> None:
    """Send an offset in the open transaction."""
    metadata = kafka.consumer().consumer_group_metadata()
    producer.send_offsets_to_transaction([TopicPartition(topic, 0, offset, f"at {offset}")], metadata, SECONDS)


def values(kafka: Kafka, topic: str, isolation: str = COMMITTED) -> list[bytes]:
    """Return what a reader gets from the beginning to where it can read."""
    consumer, found, ends = kafka.consumer(isolation), list[bytes](), list[int]()
    consumer.assign([TopicPartition(topic, 0, 0)])

    def read() -> bool:
        for message in consumer.consume(100, 0.2):
            if (error := message.error()) is None:
                found.append(message.value())
            elif error.code() == KafkaError._PARTITION_EOF:
                ends.append(message.offset())
        return bool(ends)

    kafka.until(read, "the end of the partition")
    consumer.close()
    return found


def ends(kafka: Kafka, topic: str) -> tuple[int, int]:
    """Return the last stable offset and the high watermark."""

    def latest(isolation: IsolationLevel) -> int:
        spec = {TopicPartition(topic, 0): OffsetSpec.latest()}  # type: ignore[no-untyped-call]
        (future,) = kafka.admin().list_offsets(spec, isolation_level=isolation, request_timeout=SECONDS).values()
        return int(future.result(SECONDS).offset)

    return latest(IsolationLevel.READ_COMMITTED), latest(IsolationLevel.READ_UNCOMMITTED)


def stored(kafka: Kafka, topic: str, isolation: str = COMMITTED, seconds: float = SECONDS) -> tuple[int, str]:
    """Return the group's offset and its metadata."""
    consumer = kafka.consumer(isolation)
    (at,) = consumer.committed([TopicPartition(topic, 0)], seconds)
    consumer.close()
    return at.offset, at.metadata or ""


def fails_with(call: Callable[[], object], *codes: int) -> KafkaError:
    """Require that a call raises one of these errors."""
    with pytest.raises(KafkaException) as raised:
        call()
    error = error_of(raised.value)
    assert error.code() in codes, error
    return error


# Fencing


def a_later_owner_fences_the_earlier_one(kafka: Kafka) -> None:
    """It aborts the open transaction, and whatever the earlier owner does then is refused."""
    topic, earlier = kafka.topic(), opened(kafka)
    earlier.begin_transaction()
    write(earlier, topic, b"of the earlier owner")

    later = opened(kafka)

    assert fails_with(lambda: earlier.commit_transaction(SECONDS), *FENCED).fatal()
    kafka.until(lambda: len(set(ends(kafka, topic))) == 1, "the markers")
    assert [] == values(kafka, topic)
    later.begin_transaction()
    write(later, topic, b"of the later owner")
    later.commit_transaction(SECONDS)
    kafka.until(lambda: values(kafka, topic) == [b"of the later owner"], "the commit")


def a_fenced_producer_is_fatal(kafka: Kafka) -> None:
    """`produce` does not give the reason, the others do, again and again."""
    topic, earlier = kafka.topic(), opened(kafka)
    earlier.begin_transaction()
    write(earlier, topic, b"x")
    opened(kafka)
    fails_with(lambda: earlier.commit_transaction(SECONDS), *FENCED)

    fails_with(lambda: earlier.produce(topic, b"y", partition=0), KafkaError._FATAL)
    fails_with(earlier.begin_transaction, *FENCED)
    fails_with(lambda: earlier.abort_transaction(SECONDS), *FENCED)


def records_of_a_fenced_owner_are_refused(kafka: Kafka) -> None:
    """A batch of an old epoch is refused in a partition that has seen the new one."""
    topic, earlier = kafka.topic(), opened(kafka)
    earlier.begin_transaction()
    write(earlier, topic, b"in time")
    later = opened(kafka)
    later.begin_transaction()
    write(later, topic, b"later")

    def is_fenced() -> bool:
        try:
            earlier.produce(topic, b"too late", partition=0)
            earlier.flush(1.0)
            earlier.commit_transaction(SECONDS)
        except KafkaException:
            return True
        return False

    kafka.until(is_fenced, "the refusal")
    later.commit_transaction(SECONDS)
    kafka.until(lambda: values(kafka, topic) == [b"later"], "the commit")


def a_late_end_of_an_old_epoch_changes_nothing(kafka: Kafka) -> None:
    """The end of the earlier owner's transaction does not end the later owner's."""
    topic, earlier = kafka.topic(), opened(kafka)
    earlier.begin_transaction()
    write(earlier, topic, b"earlier")
    later = opened(kafka)
    later.begin_transaction()
    write(later, topic, b"later")

    fails_with(lambda: earlier.commit_transaction(SECONDS), *FENCED)

    stable, high = ends(kafka, topic)
    assert stable < high
    assert [] == values(kafka, topic)
    later.abort_transaction(SECONDS)
    kafka.until(lambda: len(set(ends(kafka, topic))) == 1, "the markers")
    assert [] == values(kafka, topic)


def an_offset_of_an_old_epoch_is_refused(kafka: Kafka) -> None:
    """The earlier owner cannot add an offset any more."""
    topic, earlier = kafka.topic(), opened(kafka)
    earlier.begin_transaction()
    opened(kafka)

    fails_with(lambda: send_offset(kafka, earlier, topic, 7), *FENCED)

    assert (OFFSET_INVALID, "") == stored(kafka, topic)


def an_open_transaction_delays_the_next_owner(kafka: Kafka) -> None:
    """Until it is aborted, the coordinator answers CONCURRENT_TRANSACTIONS; `init_transactions` can be called again."""
    topic, refused = kafka.topic(), list[int]()

    def opens(producer: Any) -> bool:
        try:
            producer.init_transactions(0.1)
        except KafkaException as error:
            refused.append(error_of(error).code())
            return False
        return True

    def is_refused() -> bool:
        earlier = opened(kafka)
        earlier.begin_transaction()
        write(earlier, topic, b"x")
        later = kafka.producer(f"{kafka.name}/id")
        while not opens(later):  # at once again: librdkafka forgets the answer when it asks again, after 0.5 s
            pass
        return KafkaError.CONCURRENT_TRANSACTIONS in refused

    kafka.until(is_refused, "the answer that a transaction is open, which a busy machine may miss")
    assert set(refused) <= {KafkaError.CONCURRENT_TRANSACTIONS, KafkaError._TIMED_OUT}


# Transactions


def aborted_records_stay_unread(kafka: Kafka) -> None:
    """Only a read_uncommitted reader gets them; the producer goes on."""
    topic, producer = kafka.topic(), opened(kafka)
    producer.begin_transaction()
    write(producer, topic, b"aborted")
    producer.abort_transaction(SECONDS)
    producer.begin_transaction()
    write(producer, topic, b"committed")
    producer.commit_transaction(SECONDS)

    kafka.until(lambda: values(kafka, topic) == [b"committed"], "the commit")
    assert [b"aborted", b"committed"] == values(kafka, topic, UNCOMMITTED)


def an_open_transaction_holds_back_readers(kafka: Kafka) -> None:
    """The last stable offset is that of its first record, whatever others write behind it."""
    topic, producer, other = kafka.topic(), opened(kafka), kafka.producer()
    write(other, topic, b"before")
    producer.begin_transaction()
    write(producer, topic, b"open")
    write(other, topic, b"behind")

    assert (1, 3) == ends(kafka, topic)
    assert [b"before"] == values(kafka, topic)
    producer.commit_transaction(SECONDS)
    kafka.until(lambda: ends(kafka, topic) == (4, 4), "the marker, which takes an offset")
    assert [b"before", b"open", b"behind"] == values(kafka, topic)


def an_empty_transaction_writes_nothing(kafka: Kafka) -> None:
    """Its commit is not even noticed by a fence."""
    topic, producer = kafka.topic(), opened(kafka)
    opened(kafka)

    producer.begin_transaction()
    producer.commit_transaction(SECONDS)

    assert (0, 0) == ends(kafka, topic)


def calls_need_their_state(kafka: Kafka) -> None:
    """A transaction must be open, and only one can be."""
    topic, producer = kafka.topic(), opened(kafka)

    fails_with(lambda: producer.produce(topic, b"x", partition=0), KafkaError._STATE)
    producer.begin_transaction()
    fails_with(producer.begin_transaction, KafkaError._STATE)
    write(producer, topic, b"x")
    producer.commit_transaction(SECONDS)
    fails_with(lambda: producer.commit_transaction(SECONDS), KafkaError._STATE)


# Offsets


def an_offset_is_committed_with_its_records(kafka: Kafka) -> None:
    """Both or none become visible."""
    topic, producer = kafka.topic(), opened(kafka)
    producer.begin_transaction()
    write(producer, topic, b"aborted")
    send_offset(kafka, producer, topic, 5)
    producer.abort_transaction(SECONDS)
    assert (OFFSET_INVALID, "") == stored(kafka, topic)

    producer.begin_transaction()
    write(producer, topic, b"committed")
    send_offset(kafka, producer, topic, 6)
    producer.commit_transaction(SECONDS)

    assert (6, "at 6") == stored(kafka, topic)
    kafka.until(lambda: values(kafka, topic) == [b"committed"], "the commit")


def a_pending_offset_is_not_stable(kafka: Kafka) -> None:
    """A stable read waits for the end of the transaction; any other one gets the offset before it."""
    topic, producer = kafka.topic(), opened(kafka)
    producer.begin_transaction()
    send_offset(kafka, producer, topic, 3)
    producer.commit_transaction(SECONDS)
    assert (3, "at 3") == stored(kafka, topic)
    producer.begin_transaction()
    send_offset(kafka, producer, topic, 4)

    fails_with(lambda: stored(kafka, topic, seconds=1.0), KafkaError._TIMED_OUT)
    assert (3, "at 3") == stored(kafka, topic, UNCOMMITTED)
    producer.commit_transaction(SECONDS)
    assert (4, "at 4") == stored(kafka, topic)


def a_fence_ends_what_is_pending(kafka: Kafka) -> None:
    """The pending offset of the earlier owner is dropped."""
    topic, earlier = kafka.topic(), opened(kafka)
    earlier.begin_transaction()
    send_offset(kafka, earlier, topic, 4)

    opened(kafka)

    assert (OFFSET_INVALID, "") == stored(kafka, topic)


def an_offset_can_be_committed_without_a_transaction(kafka: Kafka) -> None:
    """As a person's tools do."""
    topic, consumer = kafka.topic(), kafka.consumer()
    consumer.commit(offsets=[TopicPartition(topic, 0, 9, "by hand")], asynchronous=False)
    consumer.close()

    assert (9, "by hand") == stored(kafka, topic)


# Reading


def an_end_follows_the_last_record_and_its_marker(kafka: Kafka) -> None:
    """A reader's position at the end is behind the marker."""
    topic, producer = kafka.topic(), opened(kafka)
    producer.begin_transaction()
    write(producer, topic, b"1", b"2")
    producer.commit_transaction(SECONDS)
    kafka.until(lambda: ends(kafka, topic) == (3, 3), "the marker")
    consumer, seen = kafka.consumer(), list[tuple[str, int]]()
    consumer.assign([TopicPartition(topic, 0, 0)])

    def read() -> bool:
        for message in consumer.consume(100, 0.2):
            seen.append(("end" if message.error() is not None else "record", message.offset()))
        return ("end", 3) in seen

    kafka.until(read, "the end")
    consumer.close()
    assert [("record", 0), ("record", 1), ("end", 3)] == seen


def an_offset_outside_the_log_is_an_error(kafka: Kafka) -> None:
    """With `auto.offset.reset: error`, as the tasks read."""
    topic, consumer = kafka.topic(), kafka.consumer(**{"auto.offset.reset": "error"})
    consumer.assign([TopicPartition(topic, 0, 1_000)])
    codes: list[int] = []

    def read() -> bool:
        codes.extend(message.error().code() for message in consumer.consume(100, 0.2) if message.error() is not None)
        return KafkaError._AUTO_OFFSET_RESET in codes

    kafka.until(read, "the error")
    consumer.close()


def a_purged_record_is_reported(kafka: Kafka) -> None:
    """Outside transactions, nothing else tells that it was not delivered."""
    topic, reported = kafka.topic(), list[int]()

    def note(error: KafkaError, _: object) -> None:
        reported.append(error.code())

    settings: dict[str, Any] = {"linger.ms": 60_000, "enable.idempotence": True, "on_delivery": note}
    producer = kafka.producer(**settings)
    producer.produce(topic, b"never sent", partition=0)
    assert 1 == len(producer)

    producer.purge()
    producer.poll(0)

    assert ([KafkaError._PURGE_QUEUE], 0) == (reported, len(producer))
    assert [] == values(kafka, topic)


def a_record_without_a_timestamp_is_written_as_now(kafka: Kafka) -> None:
    """The timestamp 0 means none to librdkafka."""
    topic = kafka.topic()
    write(kafka.producer(), topic, b"any")
    assert first_timestamp(kafka, topic) > LONG_AGO


def a_topic_may_replace_timestamps(kafka: Kafka) -> None:
    """By the time at which the records are written."""
    topic, producer = kafka.topic(append_time=True), kafka.producer()
    producer.produce(topic, b"old", partition=0, timestamp=LONG_AGO)
    assert 0 == producer.flush(SECONDS)
    assert first_timestamp(kafka, topic) > LONG_AGO


def first_timestamp(kafka: Kafka, topic: str) -> int:
    """Return the timestamp of the first record, in milliseconds."""
    consumer, times = kafka.consumer(), list[int]()
    consumer.assign([TopicPartition(topic, 0, 0)])

    def read() -> bool:
        times.extend(message.timestamp()[1] for message in consumer.consume(1, 0.2) if message.error() is None)
        return bool(times)

    kafka.until(read, "the record")
    consumer.close()
    return times[0]


CASES: Sequence[Callable[[Kafka], None]] = (
    a_later_owner_fences_the_earlier_one,
    a_fenced_producer_is_fatal,
    records_of_a_fenced_owner_are_refused,
    a_late_end_of_an_old_epoch_changes_nothing,
    an_offset_of_an_old_epoch_is_refused,
    an_open_transaction_delays_the_next_owner,
    aborted_records_stay_unread,
    an_open_transaction_holds_back_readers,
    an_empty_transaction_writes_nothing,
    calls_need_their_state,
    an_offset_is_committed_with_its_records,
    a_pending_offset_is_not_stable,
    a_fence_ends_what_is_pending,
    an_offset_can_be_committed_without_a_transaction,
    an_end_follows_the_last_record_and_its_marker,
    an_offset_outside_the_log_is_an_error,
    a_purged_record_is_reported,
    a_record_without_a_timestamp_is_written_as_now,
    a_topic_may_replace_timestamps,
)
