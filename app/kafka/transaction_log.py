"""
Finds open transactions in Kafka's own topic `__transaction_state`.

librdkafka 2.16 has neither ListTransactions nor DescribeTransactions. The coordinator writes each change of a
transaction to that topic, with the state and the start time.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping

from app.cures import ANY
from app.errors import NotUsable, Unreachable
from app.facts import OpenTransaction
from app.kafka.admin import AdminConnection
from app.kafka.records import KafkaRecords
from app.kafka.topics import KafkaTopics
from app.model import Partition, transactional_id

TOPIC = "__transaction_state"
STATES = ("empty", "ongoing", "committing", "aborting", "committed", "aborted", "dead", "fencing")
OPEN = frozenset({"ongoing", "committing", "aborting", "fencing"})
FLEXIBLE = 1
"""The first value version with varint lengths."""


class KafkaTransactionLog:
    """Finds the open transactions of a group on the cluster that it writes to."""

    def __init__(self, kafka: Mapping[str, str], group: str) -> None:
        self._topics = KafkaTopics(AdminConnection(kafka))
        self._records = KafkaRecords(kafka, group)
        self._group = group

    def open_transactions(self, since: int) -> list[OpenTransaction]:
        """
        Return the open transactions of the group, in order.

        Args:
            since: when the oldest may have begun, in milliseconds since 1970; older records are not read.

        Raises:
            Unreachable, NotUsable: Kafka does not respond, or does not let us read its topic.
        """
        log = self._topics.source_topics([TOPIC], None, {TOPIC}).get(TOPIC)
        if log is None:  # no transaction was ever opened on this cluster
            return []
        partitions = [Partition(TOPIC, number) for number in range(log.partitions)]
        marks = self._topics.watermarks(partitions)
        found = self._topics.offsets_at(partitions, since)
        if silent := len(partitions) - len(marks.keys() & found.keys()):
            raise Unreachable(f"{silent} partitions of {TOPIC} are unavailable", "restore the brokers that host them")
        ends = {partition: each.high_watermark for partition, each in marks.items()}
        starts = {partition: ends[partition] if at is None else at for partition, at in found.items()}
        last: dict[Partition, OpenTransaction | None] = {}
        for records in self._records.batches(starts, ends):
            for record in records:
                if (source := self.source_of(record.key or b"")) is not None:
                    last[source] = transaction(source, record.value)
        return [each for _, each in sorted(last.items()) if each is not None and each.state in OPEN]

    def source_of(self, key: bytes) -> Partition | None:
        """Return the source partition of a record's key; None if it is not one of the group's."""
        if key[:2] != b"\0\0":
            return None
        identity = _text(key, 2)
        _, topic, number = identity.rsplit("/", 2) if identity.count("/") > 1 else ("", "", "")
        source = Partition(topic, int(number) if number.isdecimal() else 0)
        return source if identity == transactional_id(self._group, source) else None


def transaction(source: Partition, value: bytes | None) -> OpenTransaction | None:
    """
    Return the transaction in the value of a record; None if there is none.

    Raises:
        NotUsable: a newer Kafka has written it in another format.
    """
    if not value:
        return None
    try:
        version, producer, epoch, _timeout, state = struct.unpack_from(">hqhib", value)
        if version > FLEXIBLE:
            raise _not_readable(source)
        (began,) = struct.unpack_from(">q", value, _after_partitions(value, version) + 8)
        return OpenTransaction(source, STATES[state], began, producer, epoch)
    except (struct.error, IndexError):
        raise _not_readable(source) from None


def _not_readable(source: Partition) -> NotUsable:
    cure = f"use Kafka's own tool: {ANY.list_transactions()}"
    return NotUsable(
        f"{TOPIC} holds a record about {source} in a format that this version of Winnow does not support", cure
    )


def _after_partitions(data: bytes, version: int) -> int:
    """Return where the list of partitions ends; the times of the last change and of the start follow it."""
    at = struct.calcsize(">hqhib")
    flexible = version == FLEXIBLE
    topics, at = _length(data, at, flexible=flexible)
    for _ in range(topics):
        name, at = _length(data, at, flexible=True) if flexible else _short(data, at)
        at += name
        partitions, at = _length(data, at, flexible=flexible)
        at += 4 * partitions
        if flexible:
            at = _after_tags(data, at)
    return at


def _after_tags(data: bytes, at: int) -> int:
    tags, at = _varint(data, at)
    for _ in range(tags):
        _, at = _varint(data, at)
        size, at = _varint(data, at)
        at += size
    return at


def _length(data: bytes, at: int, *, flexible: bool) -> tuple[int, int]:
    """Return a length, 0 for null, and where it ends."""
    if flexible:
        length, at = _varint(data, at)
        return max(0, length - 1), at
    return max(0, struct.unpack_from(">i", data, at)[0]), at + 4


def _short(data: bytes, at: int) -> tuple[int, int]:
    return struct.unpack_from(">h", data, at)[0], at + 2


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place, byte in enumerate(_bytes(data, at)):
        value |= (byte & 0x7F) << 7 * place
        at += 1
    return value, at


def _bytes(data: bytes, at: int) -> Iterator[int]:
    """Yield the bytes of a varint; all but the last have the highest bit set."""
    while True:
        yield data[at]
        if not data[at] & 0x80:
            return
        at += 1


def _text(data: bytes, at: int) -> str:
    length, at = _short(data, at)
    return data[at : at + length].decode(errors="replace")
