"""What consumes for a task; here by confluent-kafka's message objects: the `plain` way, which works everywhere."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from numpy.typing import NDArray

from app.errors import PartitionError
from app.kafka import settings
from app.kafka.failures import of_partition
from app.model import CommittedOffset, Partition, TaskConfig
from app.records import Chunk, Headers

CHUNK_BYTES = 8 << 20
CONTROL_SECONDS = 10.0


class Reader(ABC):
    """
    What both kinds of consumer offset_range: all but `poll`. Reads the partitions of one task, committed records only.

    It joins no group; the group only stores offsets.
    """

    max_records: int
    """How many records a chunk has at most: larger ones fall out of the processor's cache, smaller cost more calls."""

    def __init__(self, task_config: TaskConfig) -> None:
        self._client = Consumer(settings.consumer(task_config), logger=settings.SILENT)
        self.partitions: list[Partition] = []
        """All that were ever started."""
        self.places: dict[Partition, int] = {}
        """Where each stands in `partitions`."""
        self.most = 1_000
        """How many records to ask for: about CHUNK_BYTES, once record sizes are known."""

    def close(self) -> None:
        """Close the client; commits nothing."""
        self._client.close()

    @property
    def client(self) -> Consumer:
        """The client itself, for what only it can do: group metadata and plain commits."""
        return self._client

    def committed(self, partitions: Iterable[Partition]) -> Mapping[Partition, CommittedOffset | None]:
        """
        Read the group's offsets as they stand after all finished transactions.

        librdkafka asks for stable offsets because the consumer reads committed records only (KIP-447), so an offset
        that a transaction is about to commit is waited for.

        Raises:
            Transient: if Kafka did not answer for a partition.
        """
        wanted = [TopicPartition(topic, number) for topic, number in partitions]
        try:
            for topic in {at.topic for at in wanted}:
                # Otherwise a topic's leaders are only looked up by a timer, up to a second after the first assignment.
                self._client.list_topics(topic, CONTROL_SECONDS)
            found = self._client.committed(wanted, timeout=CONTROL_SECONDS)
        except KafkaException as error:
            first = Partition(wanted[0].topic, wanted[0].partition)
            raise of_partition(error, first, "reading the committed offset") from error
        return {Partition(at.topic, at.partition): _committed(at) for at in found}

    def start(self, partition: Partition, offset: int) -> None:
        """Begin or resume reading a partition at an offset."""
        if partition not in self.places:
            self.places[partition] = len(self.partitions)
            self.partitions.append(partition)
        self._client.incremental_assign([TopicPartition(*partition, offset)])

    def stop(self, partition: Partition) -> None:
        """Stop reading a partition; what was fetched ahead is dropped."""
        self._client.incremental_unassign([TopicPartition(*partition)])

    @abstractmethod
    def poll(self, seconds: float) -> Chunk | None:
        """Take what has arrived, waiting at most so many seconds for a full chunk; None if nothing has."""

    def adapt(self, records: int, size: int) -> None:
        """Learn from a chunk's number of records and bytes of values how many records to ask for next."""
        if records:
            self.most = min(self.max_records, max(1, CHUNK_BYTES * records // (size + 1)))


class PlainConsumer(Reader):
    """Consumes confluent-kafka's message objects."""

    max_records = 5_000

    def poll(self, seconds: float) -> Chunk | None:
        """Take what has arrived, waiting at most so many seconds for a full chunk; None if nothing has."""
        messages = self._client.consume(self.most, seconds)
        if not messages:
            return None
        # map over C methods: no Python frame per record
        full = len(messages) == self.most
        ends, failures = self._events(messages) if any(map(Message.error, messages)) else ([], [])
        if ends or failures:
            messages = [message for message in messages if message.error() is None]
        chunk = self._chunk(messages, ends, failures, full=full)
        self.adapt(len(chunk), chunk.values.nbytes)
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

    def _chunk(
        self,
        messages: list[Message],
        ends: Sequence[tuple[Partition, int]],
        failures: Sequence[PartitionError],
        *,
        full: bool,
    ) -> Chunk:
        records = len(messages)
        return Chunk(
            partitions=self.partitions,
            sources=self._sources(messages),
            offsets=np.fromiter(map(Message.offset, messages), np.int64, records),
            # without a timestamp librdkafka says -1, which is NO_TIMESTAMP
            timestamps=np.fromiter((stamp for _, stamp in map(Message.timestamp, messages)), np.int64, records),
            keys=pa.array(list(map(Message.key, messages)), pa.binary()),
            values=pa.array(list(map(Message.value, messages)), pa.binary()),
            headers=lambda row: _headers(messages[row]),
            ends=ends,
            failures=failures,
            full=full,
        )

    def _sources(self, messages: list[Message]) -> NDArray[np.int32]:
        """Tell which of our partitions each record is from."""
        places = zip(map(Message.topic, messages), map(Message.partition, messages), strict=True)
        # mypy: a record has a topic and a partition; a plain tuple equals a Partition
        return np.fromiter(map(self.places.__getitem__, places), np.int32, len(messages))  # type: ignore[arg-type]


def _committed(at: TopicPartition) -> CommittedOffset | None:
    if at.error is not None:
        raise of_partition(at.error, Partition(at.topic, at.partition), "reading the committed offset")
    return CommittedOffset(at.offset, at.metadata or "") if at.offset >= 0 else None


def _headers(message: Message) -> Headers:
    return message.headers() or []  # type: ignore[return-value]  # consumed headers are bytes or None
