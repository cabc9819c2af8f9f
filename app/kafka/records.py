"""Reads committed records for a command, with a consumer that joins no group and commits nothing."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from app.kafka import settings
from app.kafka.consumer import CONTROL_SECONDS
from app.kafka.failures import is_refusal, of_cluster
from app.kafka.headers import headers_of
from app.model import Partition
from app.records import Record

READ_AT_ONCE = 2_000
TURN_SECONDS, BOUNDED_TURN_SECONDS = 0.2, 0.02
"""How long to gather records: while a person watches, and with an end, which is only checked after each turn."""
# With an unavailable broker, the end of a range might never be reached.
SILENT_SECONDS = 30.0


class KafkaRecords:
    """Reads records in batches. `group` is the service's, set as the consumer's group.id."""

    def __init__(self, kafka: Mapping[str, str], group: str) -> None:
        self._kafka = kafka
        self._group = group

    def batches(
        self, starts: Mapping[Partition, int], ends: Mapping[Partition, int] | None = None
    ) -> Generator[list[Record]]:
        """
        Yield what has arrived in each turn, even if that is nothing.

        Args:
            starts: where to start in each partition.
            ends: the offset to stop before in each partition; without them, reading never ends.

        Raises:
            Unreachable: an end was not reached, and nothing has arrived for SILENT_SECONDS.
            NotUsable: Kafka denies access.
        """
        open_until = None if ends is None else {each: ends[each] for each in starts if starts[each] < ends[each]}
        if open_until == {}:
            return
        own = settings.CONSUMER_DEFAULTS | settings.reader(self._kafka, self._group)
        consumer = Consumer(own, logger=settings.SILENT)
        try:
            wanted = starts if open_until is None else open_until
            for topic in {partition.topic for partition in wanted}:  # a new client looks leaders up only every second
                consumer.list_topics(topic, CONTROL_SECONDS)
            consumer.assign([TopicPartition(*partition, starts[partition]) for partition in wanted])
            turn = TURN_SECONDS if open_until is None else BOUNDED_TURN_SECONDS
            heard_at = time.monotonic()
            while open_until is None or open_until:
                messages = consumer.consume(READ_AT_ONCE, turn)
                yield list(_records(messages, open_until))
                heard_at = time.monotonic() if messages or open_until is None else heard_at
                _refuse_silence(time.monotonic() - heard_at)
                _settle(messages, open_until)
        except KafkaException as error:
            raise of_cluster(error, "reading records") from error
        finally:
            consumer.close()


def _refuse_silence(seconds: float) -> None:
    if seconds > SILENT_SECONDS:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))  # noqa: SLF001


def _records(messages: list[Message], open_until: Mapping[Partition, int] | None) -> Iterator[Record]:
    for message in messages:
        error, partition, offset = message.error(), _partition(message), message.offset() or 0
        if error is not None:
            if is_refusal(error):
                raise KafkaException(error)
        elif open_until is None or offset < open_until.get(partition, 0):
            key, value = message.key(), message.value()
            yield Record(partition, offset, message.timestamp()[1], key, value, headers_of(message))


def _settle(messages: list[Message], open_until: dict[Partition, int] | None) -> None:
    """Forget the partitions that have reached their end: by its last record, or by what follows it."""
    for message in messages if open_until else ():
        error, partition, offset = message.error(), _partition(message), message.offset() or 0
        at_end = error is not None and error.code() == KafkaError._PARTITION_EOF  # noqa: SLF001
        reached = offset if at_end else offset + 1
        if open_until and (error is None or at_end) and reached >= open_until.get(partition, reached + 1):
            del open_until[partition]


def _partition(message: Message) -> Partition:
    return Partition(message.topic() or "", message.partition() or 0)
