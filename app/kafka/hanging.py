"""
Finds the transactions that Kafka has ended everywhere but in a partition that had no leader at the time.

Kafka 4 skips the markers of a transaction in a partition without a leader, as if its topic were deleted
(TransactionMarkerChannelManager; `getPartitionLeaderEndpoint` answers "unknown"). There the transaction hangs, and the
next one with the same producer id decides for both. So the first line of a transaction says where its source stood. If
that is still the committed offset, the transaction was not committed, and must be aborted once more.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # not in its __all__

from app.kafka import settings
from app.kafka.admin import known_offset
from app.model import Partition, transactional_id
from app.records import Header

HEADER = "winnow.transaction"
ORIGIN = ("topic", "partition", "offset")
"""The headers of a dead letter that say where it came from, behind `__connect.errors.`."""
# How long the leader of a partition may take to say where it ends.
ENDS_SECONDS = 3.0
READ_SECONDS = 10.0
READ_AT_ONCE = 1_000


def mark(source: Partition, group: str, committed: int) -> Header:
    """Return the header of a transaction's first line: whose it is, and the committed offset at which it began."""
    return HEADER, f"{transactional_id(group, source)}@{committed}".encode()


class Ends(NamedTuple):
    """Where a partition ends: the last stable offset, and the high watermark; between them transactions are open."""

    last_stable: int
    high_watermark: int

    @property
    def open(self) -> bool:
        """Whether any transaction is open."""
        return self.last_stable < self.high_watermark


class HangingTransactions:
    """
    Looks for our own hanging transactions in partitions of the destinations.

    Args:
        kafka: the user's librdkafka properties.
        group: the consumer group of the service.
    """

    def __init__(self, kafka: Mapping[str, str], group: str) -> None:
        self._kafka = kafka
        self.group = group
        self._lock = threading.Lock()
        self._admin: AdminClient | None = None

    def ends(self, partitions: Collection[Partition]) -> dict[Partition, Ends]:
        """
        Return the ends of the partitions whose leader answers.

        Raises:
            KafkaException: none does.
        """
        stable = self._offsets(partitions, IsolationLevel.READ_COMMITTED)
        high = self._offsets(stable, IsolationLevel.READ_UNCOMMITTED)
        return {partition: Ends(stable[partition], high[partition]) for partition in high}

    def _offsets(self, partitions: Collection[Partition], isolation: IsolationLevel) -> dict[Partition, int]:
        admin = self._connected({each.topic for each in partitions})
        asked = admin.list_offsets(
            {TopicPartition(*each): OffsetSpec.latest() for each in partitions},  # type: ignore[no-untyped-call]
            isolation_level=isolation,
            request_timeout=ENDS_SECONDS,
        )
        found: dict[Partition, int] = {}
        failure = KafkaException(KafkaError(KafkaError._TIMED_OUT))  # noqa: SLF001
        for at, future in asked.items():
            try:
                found[Partition(at.topic, at.partition)] = known_offset(future.result(2 * ENDS_SECONDS).offset)
            except KafkaException as error:
                failure = error
            except TimeoutError:
                pass
        if not found:
            self._drop(admin)
            raise failure
        return found

    def _connected(self, topics: Collection[str]) -> AdminClient:
        """
        Return a client that knows the leaders of these topics.

        Two first questions at once may lose an answer: then it finds no leaders until its timeout (librdkafka 2.16).
        """
        with self._lock:
            if self._admin is None:
                configured: dict[str, Any] = {**settings.common(self._kafka)}
                admin = AdminClient(configured, logger=settings.SILENT)
                for topic in topics:
                    admin.list_topics(topic, ENDS_SECONDS)
                self._admin = admin
            return self._admin

    def _drop(self, admin: AdminClient) -> None:
        """Connect again after an outage: a client whose only broker was killed may never answer again."""
        with self._lock:
            if self._admin is admin:
                self._admin = None

    def last_offset(self, source: Partition, target: Partition, ends: Ends) -> int | None:
        """
        Read what is not stable, and return where the last transaction of a source partition began, or went on.

        None if it has left nothing there. A dead letter says where it came from without our header.

        Raises:
            KafkaException: it cannot be read, or not in time.
        """
        last = None
        if ends.open:
            for message in self._read(target, ends):
                offset = self._offset_in(message, source)
                last = last if offset is None else offset
        return last

    def _offset_in(self, message: Message, source: Partition) -> int | None:
        headers = dict(message.headers() or ())
        owner, _, offset = _text(headers.get(HEADER)).rpartition("@")
        if owner == transactional_id(self.group, source):
            return int(offset)
        topic, number, offset = (
            _text(headers.get(f"__connect.errors.{name}")) for name in ("topic", "partition", "offset")
        )
        return int(offset) if (topic, number) == (source.topic, str(source.number)) else None

    def _read(self, partition: Partition, ends: Ends) -> Iterator[Message]:
        deadline = time.monotonic() + READ_SECONDS
        with self._reader(partition, ends.last_stable) as consumer:
            while time.monotonic() < deadline:
                for message in consumer.consume(READ_AT_ONCE, 0.1):
                    error = message.error()
                    if error is not None and error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
                        return
                    if error is not None:
                        raise KafkaException(error)
                    if (message.offset() or 0) >= ends.high_watermark:
                        return
                    yield message
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))  # noqa: SLF001

    @contextmanager
    def _reader(self, partition: Partition, offset: int) -> Iterator[Consumer]:
        own = {"group.id": self.group, "isolation.level": "read_uncommitted", "enable.partition.eof": True}
        own |= {"enable.auto.commit": False, "auto.offset.reset": "earliest"}
        consumer = Consumer(settings.common(self._kafka) | own, logger=settings.SILENT)
        try:
            consumer.assign([TopicPartition(*partition, offset)])
            yield consumer
        finally:
            with suppress(KafkaException):
                consumer.close()


def _text(header: bytes | str | None) -> str:
    return header.decode(errors="replace") if isinstance(header, bytes) else header or ""
