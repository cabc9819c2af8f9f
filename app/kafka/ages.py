"""
How old the records are that wait: the timestamp of the first one, read from Kafka.

No request tells it, and a guess from how offsets moved shows 0 for a partition that is idle. So one record of each
partition is read: in a second at most, and only where the offset has moved since the last time. Where that second is
too short, the record that was read last stands for those behind it: they are younger.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Mapping

from app.errors import WinnowError
from app.kafka.first_records import KafkaFirstRecords
from app.kafka.topics import KafkaTopics
from app.model import Partition, Waiting

# The figures are a service to whoever looks: a round must not wait for them.
LOOK_SECONDS = 1.0
# How long a topic's retention is believed.
RETENTION_SECONDS = 600.0


class KafkaAges:
    """
    Reads the first waiting record of partitions, and remembers it; nothing is raised.

    Args:
        kafka: the properties of the source's cluster.
        group: the consumer group, for the ACLs of the client; it is never joined.
        topics: answers for how long a topic keeps its records.
    """

    def __init__(self, kafka: Mapping[str, str], group: str, topics: KafkaTopics) -> None:
        self._first_records = KafkaFirstRecords(kafka, group, LOOK_SECONDS)
        self._topics = topics
        self._read: dict[Partition, tuple[int, float | None]] = {}
        """The offset and the timestamp that were read last, None if no record waited; the newest are at the end."""
        self._retention: dict[str, tuple[float | None, float]] = {}
        """For how long a topic keeps records, and until when that is believed."""

    def waiting(self, offsets: Mapping[Partition, int]) -> dict[Partition, Waiting]:
        """Read the first record at or after each offset, the longest unread first; return what is known then."""
        # A partition in which nothing waited meanwhile says nothing about what waits now.
        self._read = {partition: known for partition, known in self._read.items() if partition in offsets}
        order = {partition: place for place, partition in enumerate(self._read)}
        moved = (each for each, offset in offsets.items() if self._last_read(each)[0] != offset)
        asked = {each: offsets[each] for each in sorted(moved, key=lambda each: order.get(each, -1))}
        with contextlib.suppress(WinnowError):  # an outage, which the driver's other questions tell
            for partition, milliseconds in self._first_records.times(asked).items():
                self._read.pop(partition, None)
                self._read[partition] = asked[partition], None if milliseconds is None else milliseconds / 1000
            return dict(self._known(offsets))
        return {}

    def _known(self, offsets: Mapping[Partition, int]) -> Iterator[tuple[Partition, Waiting]]:
        """Yield what was read of each partition at its offset, or before it."""
        for partition, offset in offsets.items():
            at, since = self._last_read(partition)
            if at == offset or (at < offset and since is not None):
                yield partition, Waiting(since, self._kept(partition.topic))

    def _last_read(self, partition: Partition) -> tuple[float, float | None]:
        return self._read.get(partition, (math.inf, None))

    def _kept(self, topic: str) -> float | None:
        retention, until = self._retention.get(topic, (None, 0.0))
        if time.monotonic() > until:
            retention = self._topics.retention(topic)
            self._retention[topic] = retention, time.monotonic() + RETENTION_SECONDS
        return retention
