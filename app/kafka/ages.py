"""
The age of waiting records: the timestamp of each partition's first one, read from Kafka.

No request returns it, and an estimate from how offsets moved shows 0 for an idle partition. So one record of each
partition is read, within a second in total, and only if the offset has moved since. If that second is too short, the
record read last serves as a bound: the records behind it are younger.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, KafkaException, TopicPartition

from app.errors import WinnowError
from app.kafka import settings
from app.kafka.failures import is_end, is_refusal, of_cluster
from app.kafka.records import partition_of
from app.kafka.topics import KafkaTopics
from app.model import FirstWaiting, Partition

# The figures are informational: a round must not wait longer for them.
LOOK_SECONDS = 1.0
# How long a topic's retention is cached.
RETENTION_SECONDS = 600.0
READ_SECONDS = 5.0
TURN_SECONDS = 0.1
# How many partitions are read at a time, which bounds the memory.
READ_AT_ONCE = 250
# One batch of each partition is enough. The broker returns a batch that exceeds the fetch size alone, so the usual one
# must fit. A partition with a full queue must not delay the next fetch, as it does for a second by default.
SMALL: settings.Settings = {
    "queued.min.messages": 1,
    "fetch.queue.backoff.ms": 0,
    "max.partition.fetch.bytes": 64 << 10,
}


class KafkaFirstRecords:
    """Reads records of the source within `seconds` a look. `group` is the service's, set as the consumer's group.id."""

    def __init__(self, kafka: Mapping[str, str], group: str, seconds: float = READ_SECONDS) -> None:
        self._kafka = kafka
        self._group = group
        self._seconds = seconds
        self._consumer: Consumer | None = None

    def times(self, offsets: Mapping[Partition, int]) -> dict[Partition, int | None]:
        """Read the partitions in the given order."""
        if not offsets:
            return {}
        try:
            if self._consumer is None:
                own: dict[str, Any] = settings.reader(self._kafka, self._group) | SMALL | {"error_cb": self._heard}
                self._consumer = Consumer(own, logger=settings.SILENT)
            return self._read(self._consumer, offsets)
        except KafkaException as error:
            self._consumer = None  # a client whose only broker was killed may never respond again
            raise of_cluster(error, "reading the records that wait", self._kafka) from error

    def _heard(self, error: KafkaError) -> None:
        if is_refusal(error):
            self._consumer = None  # librdkafka never rereads secrets

    def _read(self, consumer: Consumer, offsets: Mapping[Partition, int]) -> dict[Partition, int | None]:
        asked = (TopicPartition(*partition, offset) for partition, offset in offsets.items())
        consumer.assign(list(islice(asked, READ_AT_ONCE)))
        unseen, times = set(offsets), dict[Partition, int | None]()
        deadline = time.monotonic() + self._seconds
        while unseen and (left := deadline - time.monotonic()) > 0:
            answered = set()
            for message in consumer.consume(READ_AT_ONCE, min(TURN_SECONDS, left)):
                partition, error = partition_of(message), message.error()
                if partition in unseen and (error is None or is_end(error)):
                    answered.add(partition)
                    unseen.discard(partition)
                    if error is not None:
                        times[partition] = None
                    elif (stamp := message.timestamp())[0] != TIMESTAMP_NOT_AVAILABLE:
                        times[partition] = stamp[1]
            if answered:  # the rest of what was fetched need not become messages
                consumer.incremental_unassign([TopicPartition(*each) for each in answered])
                consumer.incremental_assign(list(islice(asked, len(answered))))
        consumer.unassign()
        return times


class KafkaAges:
    """Reads and caches the first waiting record of partitions; never raises. `group` is only for the client's ACLs."""

    def __init__(self, kafka: Mapping[str, str], group: str, topics: KafkaTopics) -> None:
        self._first_records = KafkaFirstRecords(kafka, group, LOOK_SECONDS)
        self._topics = topics
        self._read: dict[Partition, tuple[int, float | None]] = {}
        """The offset and the timestamp read last, None if no record waited; the latest reads are at the end."""
        self._retention: dict[str, tuple[float | None, float]] = {}
        """The retention of each topic, and when the cached value expires."""

    def waiting(self, offsets: Mapping[Partition, int]) -> dict[Partition, FirstWaiting]:
        """Read the first record at or after each offset, least recently read partitions first; return what is known."""
        # An old reading says nothing about a partition that has caught up since.
        self._read = {partition: known for partition, known in self._read.items() if partition in offsets}
        unread = [each for each in offsets if each not in self._read]
        asked = {each: offsets[each] for each in (*unread, *self._read) if self._last_read(each)[0] != offsets[each]}
        with contextlib.suppress(WinnowError):  # the driver's other requests report an outage
            for partition, milliseconds in self._first_records.times(asked).items():
                self._read.pop(partition, None)
                self._read[partition] = asked[partition], None if milliseconds is None else milliseconds / 1000
            return dict(self._known(offsets))
        return {}

    def _known(self, offsets: Mapping[Partition, int]) -> Iterator[tuple[Partition, FirstWaiting]]:
        """Yield the last reading of each partition at or before its offset."""
        for partition, offset in offsets.items():
            at, since = self._last_read(partition)
            if at == offset or (at < offset and since is not None):
                yield partition, FirstWaiting(since, self._kept(partition.topic))

    def _last_read(self, partition: Partition) -> tuple[float, float | None]:
        return self._read.get(partition, (math.inf, None))

    def _kept(self, topic: str) -> float | None:
        retention, until = self._retention.get(topic, (None, 0.0))
        if time.monotonic() > until:
            retention = self._topics.retention(topic)
            self._retention[topic] = retention, time.monotonic() + RETENTION_SECONDS
        return retention
