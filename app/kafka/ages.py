"""
How old the records are that wait: the timestamp of the first one, read from Kafka.

No request tells it, and a guess from how offsets moved shows 0 for a partition that is idle. So one record of each
partition is read: in a second at most, and only where the offset has moved since the last time.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from app.errors import WinnowError
from app.kafka.first_records import KafkaFirstRecords
from app.kafka.topics import KafkaTopics
from app.model import Partition, Waiting

# The figures are a service to whoever looks: a round must not wait for them.
LOOK_SECONDS = 1.0
# What one look reads at most. The partitions whose age was not read for the longest time come first.
LOOK_PARTITIONS = 250
# How long a topic's retention is believed.
RETENTION_SECONDS = 600.0


class KafkaAges:
    """
    Reads the first waiting record of partitions; what cannot be read in time is left out, and nothing is raised.

    Args:
        kafka: the properties of the source's cluster.
        group: the consumer group, for the ACLs of the client; it is never joined.
        topics: answers for how long a topic keeps its records.
    """

    def __init__(self, kafka: Mapping[str, str], group: str, topics: KafkaTopics) -> None:
        self._first_records = KafkaFirstRecords(kafka, group, LOOK_SECONDS)
        self._topics = topics
        self._known: dict[Partition, tuple[int, float]] = {}
        """The offset and the timestamp that were read last; the newest are at the end."""
        self._retention: dict[str, tuple[float | None, float]] = {}
        """For how long a topic keeps records, and until when that is believed."""

    def waiting(self, offsets: Mapping[Partition, int]) -> dict[Partition, Waiting]:
        """Return the age of the first record at or after each offset, of each partition that answers."""
        try:
            self._read(offsets)
            return {
                partition: Waiting(self._known[partition][1], self._kept(partition.topic))
                for partition, offset in offsets.items()
                if self._known.get(partition, (None, 0.0))[0] == offset
            }
        except WinnowError:  # an outage, which the driver's other questions tell
            return {}

    def _read(self, offsets: Mapping[Partition, int]) -> None:
        """Read what is not known yet, the longest unknown first."""
        order = {partition: place for place, partition in enumerate(self._known)}
        moved = [each for each, offset in offsets.items() if self._known.get(each, (None, 0.0))[0] != offset]
        asked = sorted(moved, key=lambda each: order.get(each, -1))[:LOOK_PARTITIONS]
        for partition, milliseconds in self._first_records.times({each: offsets[each] for each in asked}).items():
            self._known.pop(partition, None)
            if milliseconds is not None:
                self._known[partition] = offsets[partition], milliseconds / 1000

    def _kept(self, topic: str) -> float | None:
        retention, until = self._retention.get(topic, (None, 0.0))
        if time.monotonic() > until:
            retention = self._topics.retention(topic)
            self._retention[topic] = retention, time.monotonic() + RETENTION_SECONDS
        return retention
