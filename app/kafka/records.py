"""
Reads committed records with a consumer that joins no group and commits nothing.

`read` is the loop for all bounded reads: of commands, and of what shows how a transaction ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import suppress

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from app.headers import Headers
from app.kafka import settings
from app.kafka.consumer import look_up_leaders
from app.kafka.failures import explaining, is_end, is_refusal, timed_out
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
        Yield what has arrived in each turn; see `read`.

        Raises:
            Unreachable: an end was not reached, and nothing has arrived for SILENT_SECONDS.
            NotUsable: Kafka denies access.
        """
        with explaining(self._kafka, "reading records"):
            yield from read(settings.reader(self._kafka, self._group), starts, ends)


def read(
    configured: settings.Settings,
    starts: Mapping[Partition, int],
    ends: Mapping[Partition, int] | None = None,
    *,
    fails: Callable[[KafkaError], bool] = is_refusal,
) -> Generator[list[Record]]:
    """
    Yield what has arrived in each turn, even if that is nothing.

    Args:
        configured: the consumer's settings.
        starts: where to start in each partition.
        ends: the offset to stop before in each partition; without them, reading never ends.
        fails: tells the errors that end reading from those that pass.

    Raises:
        KafkaException: one that `fails`; or an end was not reached, and nothing has arrived for SILENT_SECONDS.
    """
    open_until = None if ends is None else {each: ends[each] for each in starts if starts[each] < ends[each]}
    if open_until == {}:
        return
    consumer = Consumer(settings.CONSUMER_DEFAULTS | configured, logger=settings.SILENT)
    try:
        wanted = starts if open_until is None else open_until
        look_up_leaders(consumer, {partition.topic for partition in wanted})
        consumer.assign([TopicPartition(*partition, starts[partition]) for partition in wanted])
        turn = TURN_SECONDS if open_until is None else BOUNDED_TURN_SECONDS
        heard_at = time.monotonic()
        while open_until is None or open_until:
            messages = consumer.consume(READ_AT_ONCE, turn)
            yield list(_taken(messages, open_until, fails))
            heard_at = time.monotonic() if messages or open_until is None else heard_at
            if time.monotonic() - heard_at > SILENT_SECONDS:
                raise timed_out()
    finally:
        with suppress(KafkaException):
            consumer.close()


def _taken(
    messages: list[Message], open_until: dict[Partition, int] | None, fails: Callable[[KafkaError], bool]
) -> Iterator[Record]:
    """Yield the records before the ends; forget what has reached its end: by its last record, or by what follows it."""
    for message in messages:
        error, partition, offset = message.error(), partition_of(message), message.offset() or 0
        if error is None:
            if open_until is None or offset < open_until.get(partition, 0):
                key, value = message.key(), message.value()
                yield Record(partition, offset, message.timestamp()[1], key, value, headers_of(message))
            offset += 1
        elif fails(error):
            raise KafkaException(error)
        if open_until and (error is None or is_end(error)) and offset >= open_until.get(partition, offset + 1):
            del open_until[partition]


def partition_of(message: Message) -> Partition:
    """Return the partition of a record, or of an error in place of one."""
    return Partition(message.topic() or "", message.partition() or 0)


def headers_of(message: Message) -> Headers:
    """
    Return the headers of a record; none if a name is not UTF-8.

    Kafka allows any bytes in a name. For such a name confluent-kafka 2.16 raises SystemError and leaves a list with
    holes behind; reading it a second time kills the process.
    """
    try:
        return message.headers() or []  # type: ignore[return-value]  # consumed ones are bytes or None
    except (SystemError, UnicodeDecodeError):
        message.set_headers([])
        return []
