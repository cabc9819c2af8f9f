"""The consumer of a task: everything but the calls that see each record, which differ by backend."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

from confluent_kafka import Consumer, KafkaException, TopicPartition

from app.kafka import settings
from app.kafka.failures import of_partition
from app.model import NO_EPOCH, Partition, TaskConfig
from app.records import Chunk

CHUNK_BYTES = 8 << 20
CONTROL_SECONDS = 10.0


class TaskConsumer(ABC):
    """
    Reads the partitions of one task, committed records only.

    It never joins its group: the group only stores offsets.
    """

    max_records: int
    """The most records in a chunk. Larger chunks fall out of the processor's cache; smaller ones cost more calls."""

    def __init__(self, config: TaskConfig) -> None:
        self._client = Consumer(settings.consumer(config), logger=settings.SILENT)
        self.partitions: list[Partition] = []
        """All partitions that were ever started."""
        self.places: dict[Partition, int] = {}
        """The index of each partition in `partitions`."""
        self.batch_size = 1_000
        """The number of records to ask for next: about CHUNK_BYTES of them, once record sizes are known."""

    def close(self) -> None:
        """Close the client; commits nothing."""
        self._client.close()

    @property
    def client(self) -> Consumer:
        """The client itself, whose group metadata an offset store in Kafka needs."""
        return self._client

    def connect(self, partitions: Iterable[Partition]) -> None:
        """
        Look up the leaders of these partitions' topics, so that reading begins at once.

        Without this, librdkafka looks them up by a timer, up to a second after the first assignment.

        Raises:
            Transient: Kafka does not answer.
        """
        for topic, number in {partition.topic: partition for partition in partitions}.values():
            try:
                self._client.list_topics(topic, CONTROL_SECONDS)
            except KafkaException as error:
                raise of_partition(error, Partition(topic, number), "looking up the leaders") from error

    def start(self, partition: Partition, offset: int, epoch: int = NO_EPOCH) -> None:
        """
        Begin or resume reading a partition at an offset.

        With the leader epoch of the record before it, a chunk brings Truncated if the log was cut below the offset,
        even where it has grown past it again.
        """
        if partition not in self.places:
            self.places[partition] = len(self.partitions)
            self.partitions.append(partition)
        at = TopicPartition(*partition, offset, leader_epoch=epoch)
        self._client.incremental_assign([at])
        if epoch != NO_EPOCH:
            # An assignment only asks where an epoch ended when the leader changes; a seek asks now (librdkafka 2.16).
            self._client.seek(at)

    def stop(self, partition: Partition) -> None:
        """Stop reading a partition; what was fetched ahead is dropped."""
        self._client.incremental_unassign([TopicPartition(*partition)])

    @abstractmethod
    def poll(self, seconds: float) -> Chunk | None:
        """Return what has arrived; None if nothing has. Wait at most so many seconds for a full chunk."""

    def adapt(self, records: int, size: int) -> None:
        """Adapt the batch size to the record size of the last chunk, whose values have `size` bytes."""
        if records:
            self.batch_size = min(self.max_records, max(1, CHUNK_BYTES * records // (size + 1)))
