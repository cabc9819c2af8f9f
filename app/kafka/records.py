"""
Reads with consumers that join no group and commit nothing: committed records, and where a log was truncated.

`read` is the loop for all bounded reads: of commands, and of what shows how a transaction ended.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, suppress

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from app.errors import OffsetMoved, Truncated
from app.headers import Headers
from app.kafka import settings
from app.kafka.admin import ANSWER_SECONDS
from app.kafka.consumer import look_up_leaders, seek
from app.kafka.failures import explaining, is_end, is_refusal, of_partition, timed_out
from app.model import LastRead, Partition
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

        Raises Unreachable if an end is not reached and nothing has arrived for SILENT_SECONDS, and NotUsable if Kafka
        denies access.
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
        ends: the offset to stop before in each partition; without them, reading never ends.
        fails: tells the errors that end reading from those that pass.

    Raises:
        KafkaException: one that `fails`; or an end was not reached, and nothing has arrived for SILENT_SECONDS.
    """
    limits: Mapping[Partition, float] = dict.fromkeys(starts, math.inf) if ends is None else ends
    open_until = {each: limits[each] for each in starts if starts[each] < limits[each]}
    if not open_until:
        return
    consumer = Consumer(configured, logger=settings.SILENT)
    try:
        look_up_leaders(consumer, {partition.topic for partition in open_until})
        consumer.assign([TopicPartition(*partition, starts[partition]) for partition in open_until])
        turn = TURN_SECONDS if ends is None else BOUNDED_TURN_SECONDS
        heard_at = time.monotonic()
        while open_until:
            before = list(open_until)
            messages = consumer.consume(READ_AT_ONCE, turn)
            yield list(_taken(messages, open_until, fails))
            if ended := [TopicPartition(*each) for each in before if each not in open_until]:
                consumer.incremental_unassign(ended)  # or what follows their ends would hide that others are silent
            heard_at = time.monotonic() if messages or ends is None else heard_at
            if time.monotonic() - heard_at > SILENT_SECONDS:
                raise timed_out()
    finally:
        with suppress(KafkaException):
            consumer.close()


def _taken(
    messages: list[Message], open_until: dict[Partition, float], fails: Callable[[KafkaError], bool]
) -> Iterator[Record]:
    """Yield the records before the ends; forget what has reached its end: by its last record, or by what follows it."""
    for message in messages:
        error, partition, offset = message.error(), partition_of(message), message.offset() or 0
        if error is None:
            if offset < open_until.get(partition, 0):
                key, value = message.key(), message.value()
                yield Record(partition, offset, message.timestamp()[1], key, value, headers_of(message))
            offset += 1
        elif fails(error):
            raise KafkaException(error)
        if (error is None or is_end(error)) and offset >= open_until.get(partition, math.inf):
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


def find_cut(kafka: Mapping[str, str], group: str, partition: Partition, last: LastRead) -> int | None:
    """Find where a log was truncated: librdkafka asks for it (KIP-320), but tells it only as the error of a reader."""
    own = settings.reader(kafka, group) | {"auto.offset.reset": "error"}
    at = TopicPartition(*partition, last.after, leader_epoch=last.epoch)
    with (
        explaining(kafka, f"asking where {partition} was truncated"),
        closing(Consumer(own, logger=settings.SILENT)) as consumer,
    ):
        consumer.assign([at])
        seek(consumer, at)
        deadline = time.monotonic() + ANSWER_SECONDS
        while time.monotonic() < deadline:
            for message in consumer.consume(1, TURN_SECONDS):
                if (error := message.error()) is None or is_end(error):
                    return None  # the last record read is still there
                match of_partition(error, partition, "reading"):
                    case Truncated() as found:
                        return found.cut
                    case OffsetMoved():
                        return None
        raise timed_out()
