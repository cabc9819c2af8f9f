"""
Finds open transactions in Kafka's own topic `__transaction_state`.

librdkafka 2.16 has neither ListTransactions nor DescribeTransactions. The coordinator writes each change of a
transaction to that topic, with the state and the start time.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from io import BytesIO
from typing import Any

from app.cures import ANY
from app.errors import NotUsable, Unreachable
from app.facts import OpenTransaction
from app.headers import whole_number
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
        """Return the group's open transactions, in order; reads back to `since`, in milliseconds since 1970."""
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
        identity = key[4:].decode(errors="replace")
        _, topic, number = identity.rsplit("/", 2) if identity.count("/") > 1 else ("", "", "")
        source = Partition(topic, whole_number(number) or 0)
        return source if identity == transactional_id(self._group, source) else None


def transaction(source: Partition, value: bytes | None) -> OpenTransaction | None:
    """Return the transaction in the value of a record, None if there is none; raises NotUsable for a newer format."""
    if not value:
        return None
    try:
        return _parsed(source, _Bytes(value))
    except (struct.error, IndexError):
        what = f"{TOPIC} holds a record about {source} in a format that this version of Winnow does not support"
        raise NotUsable(what, f"use Kafka's own tool: {ANY.list_transactions()}") from None


def _parsed(source: Partition, value: _Bytes) -> OpenTransaction:
    version, producer, epoch, _timeout, state = value.take(">hqhib")
    if version > FLEXIBLE:
        raise IndexError
    flexible = version == FLEXIBLE
    for _ in range(value.length(">i", flexible=flexible)):
        value.skip(value.length(">h", flexible=flexible))
        value.skip(4 * value.length(">i", flexible=flexible))
        for _ in range(value.varint() if flexible else 0):  # tags
            value.varint()
            value.skip(value.varint())
    _changed, began = value.take(">qq")
    return OpenTransaction(source, STATES[state], began, producer, epoch)


class _Bytes(BytesIO):
    """Reads Kafka's binary format."""

    skip = BytesIO.read

    def take(self, layout: str) -> tuple[Any, ...]:
        return struct.unpack(layout, self.read(struct.calcsize(layout)))

    def length(self, layout: str, *, flexible: bool) -> int:
        """Read a length, 0 for null: in the flexible format a varint that is one larger."""
        return max(0, self.varint() - 1 if flexible else self.take(layout)[0])

    def varint(self) -> int:
        value = shift = 0
        while True:
            (byte,) = self.take("B")
            value |= int(byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value
