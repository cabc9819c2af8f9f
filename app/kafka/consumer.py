"""Consumes with confluent-kafka's message objects and hands on Arrow arrays: the `plain` way, which works everywhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, KafkaException, Message, TopicPartition

from app.errors import PartitionError
from app.kafka import settings
from app.kafka.failures import of_partition
from app.model import Committed, Job, Partition
from app.records import NO_TIMESTAMP, Chunk, Headers

MOST_RECORDS = 10_000
CHUNK_BYTES = 8 << 20
CONTROL_SECONDS = 30.0


class PlainConsumer:
    """
    Reads the partitions of one task, committed records only.

    A context manager: leaving it closes the client. It joins no group; the group only stores offsets.
    """

    def __init__(self, job: Job) -> None:
        self._client = Consumer(settings.consumer(job), logger=settings.SILENT)
        self._partitions: list[Partition] = []
        self._index: dict[tuple[str, int], int] = {}
        self._most = 1_000  # grows or shrinks to about CHUNK_BYTES a chunk once record sizes are known

    def close(self) -> None:
        """Close the client; commits nothing."""
        self._client.close()

    @property
    def client(self) -> Consumer:
        """The client itself, for what only it can do: group metadata and plain commits."""
        return self._client

    def committed(self, partitions: Iterable[Partition]) -> Mapping[Partition, Committed | None]:
        """
        Read the group's offsets as they stand after all finished transactions.

        librdkafka asks for stable offsets because the consumer reads committed records only (KIP-447), so an offset
        that a transaction is about to commit is waited for.

        Raises:
            Transient: if Kafka did not answer for a partition.
        """
        wanted = [TopicPartition(topic, number) for topic, number in partitions]
        try:
            found = self._client.committed(wanted, timeout=CONTROL_SECONDS)
        except KafkaException as error:
            first = Partition(wanted[0].topic, wanted[0].partition)
            raise of_partition(error, first, "reading the committed offset") from error
        return {Partition(at.topic, at.partition): _committed(at) for at in found}

    def start(self, partition: Partition, offset: int) -> None:
        """Begin or resume reading a partition at an offset."""
        if partition not in self._index:
            self._index[partition] = len(self._partitions)
            self._partitions.append(partition)
        self._client.incremental_assign([TopicPartition(*partition, offset)])

    def stop(self, partition: Partition) -> None:
        """Stop reading a partition; what was fetched ahead is dropped."""
        self._client.incremental_unassign([TopicPartition(*partition)])

    def poll(self, seconds: float) -> Chunk | None:
        """Take what has arrived, waiting at most so many seconds for a full chunk; None if nothing has."""
        messages = self._client.consume(self._most, seconds)
        if not messages:
            return None
        ends, failures = self._events(messages) if any([m.error() for m in messages]) else ([], [])
        if ends or failures:
            messages = [message for message in messages if message.error() is None]
        chunk = self._chunk(messages, ends, failures)
        self._adapt(chunk)
        return chunk

    def _events(self, messages: Sequence[Message]) -> tuple[list[tuple[Partition, int]], list[PartitionError]]:
        ends: list[tuple[Partition, int]] = []
        failures: list[PartitionError] = []
        for message in messages:
            error, topic, number = message.error(), message.topic(), message.partition()
            if error is None or topic is None or number is None:
                continue  # trouble with no partition is a broker's: librdkafka reconnects by itself
            if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
                ends.append((Partition(topic, number), message.offset() or 0))
            else:
                failures.append(of_partition(error, Partition(topic, number), "reading", message.offset()))
        return ends, failures

    def _chunk(self, messages: list[Message], ends: Sequence[tuple[Partition, int]], failures: Sequence[PartitionError]) -> Chunk:
        index = self._index
        return Chunk(
            partitions=self._partitions,
            sources=np.array([index[m.topic(), m.partition()] for m in messages], np.int32),  # type: ignore[index]  # records have both
            offsets=np.array([m.offset() for m in messages], np.int64),
            timestamps=np.array([_timestamp(m.timestamp()) for m in messages], np.int64),
            keys=pa.array([m.key() for m in messages], pa.binary()),
            values=pa.array([m.value() for m in messages], pa.binary()),
            headers=lambda row: _headers(messages[row]),
            ends=ends,
            failures=failures,
        )

    def _adapt(self, chunk: Chunk) -> None:
        if len(chunk):
            self._most = min(MOST_RECORDS, max(1, CHUNK_BYTES * len(chunk) // (chunk.values.nbytes + 1)))


def _committed(at: TopicPartition) -> Committed | None:
    if at.error is not None:
        raise of_partition(at.error, Partition(at.topic, at.partition), "reading the committed offset")
    return Committed(at.offset, at.metadata or "") if at.offset >= 0 else None


def _timestamp(stamp: tuple[int, int]) -> int:
    kind, milliseconds = stamp
    return NO_TIMESTAMP if kind == TIMESTAMP_NOT_AVAILABLE else milliseconds


def _headers(message: Message) -> Headers:
    return message.headers() or []  # type: ignore[return-value]  # consumed headers are bytes or None


