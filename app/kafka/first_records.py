"""Reads the first record at or after an offset in many partitions at once, for the age of what waits."""

from __future__ import annotations

import time
from collections.abc import Mapping
from itertools import islice

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, KafkaException, Message, TopicPartition

from app.kafka import settings
from app.kafka.failures import of_cluster
from app.model import Partition

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
    "fetch.max.bytes": 4 << 20,
    "fetch.wait.max.ms": 100,
}


class KafkaFirstRecords:
    """
    Reads records of the source with a consumer that joins no group and commits nothing, within `seconds` a look.

    `group` is the service's, set as the consumer's group.id.
    """

    def __init__(self, kafka: Mapping[str, str], group: str, seconds: float = READ_SECONDS) -> None:
        self._kafka = kafka
        self._group = group
        self._seconds = seconds
        self._consumer: Consumer | None = None

    def times(self, offsets: Mapping[Partition, int]) -> dict[Partition, int | None]:
        """
        Return the timestamp of the first committed record at or after each offset, in milliseconds since 1970.

        The timestamp is None if no record waits. A partition is left out if it does not respond in time, or if its
        record has no timestamp. Partitions are read in the given order.

        Raises:
            Unreachable, NotUsable: Kafka does not respond, or denies access.
        """
        if not offsets:
            return {}
        try:
            return self._read(offsets)
        except KafkaException as error:
            self._consumer = None  # a client whose only broker was killed may never respond again
            raise of_cluster(error, "reading the records that wait") from error

    def _read(self, offsets: Mapping[Partition, int]) -> dict[Partition, int | None]:
        if self._consumer is None:
            own = settings.reader(self._kafka, self._group) | SMALL
            self._consumer = Consumer(own, logger=settings.SILENT)
        asked = (TopicPartition(*partition, offset) for partition, offset in offsets.items())
        self._consumer.assign(list(islice(asked, READ_AT_ONCE)))
        unseen, times = set(offsets), dict[Partition, int | None]()
        deadline = time.monotonic() + self._seconds
        while unseen and (left := deadline - time.monotonic()) > 0:
            answered = set()
            for message in self._consumer.consume(READ_AT_ONCE, min(TURN_SECONDS, left)):
                partition = Partition(message.topic() or "", message.partition() or 0)
                if partition in unseen and _answers(message):
                    answered.add(partition)
                    unseen.discard(partition)
                    times |= _time(partition, message)
            if answered:  # the rest of what was fetched need not become messages
                self._consumer.incremental_unassign([TopicPartition(*each) for each in answered])
                self._consumer.incremental_assign(list(islice(asked, len(answered))))
        self._consumer.unassign()
        return times


def _answers(message: Message) -> bool:
    """Return whether this is a record or the end of its partition, rather than a temporary error."""
    error = message.error()
    return error is None or error.code() == KafkaError._PARTITION_EOF  # noqa: SLF001


def _time(partition: Partition, message: Message) -> dict[Partition, int | None]:
    if message.error() is not None:
        return {partition: None}
    kind, milliseconds = message.timestamp()
    return {} if kind == TIMESTAMP_NOT_AVAILABLE else {partition: milliseconds}
