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

from app.errors import WinnowError
from app.kafka.first_records import KafkaFirstRecords
from app.kafka.topics import KafkaTopics
from app.model import FirstWaiting, Partition

# The figures are informational: a round must not wait longer for them.
LOOK_SECONDS = 1.0
# How long a topic's retention is cached.
RETENTION_SECONDS = 600.0


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
        order = {partition: place for place, partition in enumerate(self._read)}
        moved = (each for each, offset in offsets.items() if self._last_read(each)[0] != offset)
        asked = {each: offsets[each] for each in sorted(moved, key=lambda each: order.get(each, -1))}
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
