"""
Finds the transactions that Kafka has ended everywhere but in a partition that had no leader at the time.

Kafka 4 skips the markers of a transaction in a partition without a leader, as if its topic were deleted
(TransactionMarkerChannelManager; `getPartitionLeaderEndpoint` answers "unknown"). There the transaction hangs, and the
next one with the same producer id decides for both. So the first record of a transaction in a partition says where its
source stood. If that is still the committed offset, the transaction was not committed, and must be aborted once more.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, Self

from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # not in its __all__

from app.kafka import settings
from app.model import Partition
from app.records import Header

HEADER = "winnow.transaction"
# How long the leader of a partition may take to say where it ends.
ENDS_SECONDS = 3.0
READ_SECONDS = 10.0
READ_AT_ONCE = 1_000


class Mark(NamedTuple):
    """
    What the header of a transaction's first record in each partition says.

    Args:
        transactional_id: whose transaction it is.
        committed: the committed offset of the source partition when it began.
    """

    transactional_id: str
    committed: int

    @property
    def header(self) -> Header:
        """The header's name and value."""
        return HEADER, f"{self.transactional_id}@{self.committed}".encode()

    @classmethod
    def of(cls, message: Message) -> Self | None:
        """Return the mark of a record; None if it has none."""
        value = dict(message.headers() or ()).get(HEADER)
        if not isinstance(value, bytes):
            return None
        transactional_id, _, offset = value.decode(errors="replace").rpartition("@")
        return cls(transactional_id, int(offset)) if offset.isdecimal() else None


class Ends(NamedTuple):
    """Where a partition ends: the last stable offset, and the high watermark; between them transactions are open."""

    last_stable: int
    high_watermark: int


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
        """Ask for offsets; where a leader does not answer, librdkafka 2.16 returns OFFSET_INVALID and no error."""
        admin = self._connected()
        asked = admin.list_offsets(
            {TopicPartition(*each): OffsetSpec.latest() for each in partitions},  # type: ignore[no-untyped-call]
            isolation_level=isolation,
            request_timeout=ENDS_SECONDS,
        )
        found: dict[Partition, int] = {}
        failure = KafkaException(KafkaError(KafkaError._TIMED_OUT))  # noqa: SLF001
        for at, future in asked.items():
            try:
                offset = future.result(2 * ENDS_SECONDS).offset
                if offset != OFFSET_INVALID:
                    found[Partition(at.topic, at.partition)] = offset
            except KafkaException as error:
                failure = error
            except TimeoutError:
                pass
        if not found:
            self._drop(admin)
            raise failure
        return found

    def _connected(self) -> AdminClient:
        with self._lock:
            if self._admin is None:
                configured: dict[str, Any] = {**settings.common(self._kafka)}
                self._admin = AdminClient(configured, logger=settings.SILENT)
            return self._admin

    def _drop(self, admin: AdminClient) -> None:
        """Connect again after an outage: a client whose only broker was killed may never answer again."""
        with self._lock:
            if self._admin is admin:
                self._admin = None

    def last_mark(self, transactional_id: str, partition: Partition, ends: Ends) -> Mark | None:
        """
        Read what is not stable, and return the last mark of a transactional id; None if it has left nothing there.

        Raises:
            KafkaException: it cannot be read, or not in time.
        """
        marks = map(Mark.of, self._read(partition, ends)) if ends.last_stable < ends.high_watermark else ()
        last = None
        for mark in marks:
            if mark is not None and mark.transactional_id == transactional_id:
                last = mark
        return last

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
