"""The consumer of a task, without the calls that see each record, which differ by backend."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from app.errors import PartitionError
from app.kafka import settings
from app.kafka.failures import is_end, is_refusal, of_partition
from app.model import NO_EPOCH, Partition, TaskConfig
from app.records import Chunk

Event = tuple[str | None, int | None, int | None, KafkaError]
"""What arrives in place of a record: topic, partition, offset and error."""
CHUNK_BYTES = 8 << 20
CONTROL_SECONDS = 10.0
SEEK_SECONDS, SEEK_PAUSE = 0.5, 0.001
# A restarting broker may deny access for a moment while others work.
REFUSED_SECONDS = 5.0


def look_up_leaders(client: AdminClient | Consumer, topics: Iterable[str], seconds: float = CONTROL_SECONDS) -> None:
    """
    Look up the leaders of these topics, at most `seconds` for each; raises KafkaException.

    Otherwise librdkafka looks them up by a timer, up to a second after a consumer's first assignment.
    """
    for topic in topics:
        client.list_topics(topic, seconds)


class TaskConsumer(ABC):
    """Reads committed records of a task's partitions. It never joins its group, which only stores offsets."""

    max_records: int
    """The most records in a chunk. Larger chunks fall out of the processor's cache; smaller ones cost more calls."""

    def __init__(self, config: TaskConfig) -> None:
        configured: dict[str, Any] = settings.consumer(config) | {"error_cb": self._heard}
        self.client = Consumer(configured, logger=settings.SILENT)
        self._refused_at: float | None = None
        """When Kafka denied access, if nothing has arrived since."""
        self.partitions: list[Partition] = []
        """All partitions ever started."""
        self.places: dict[Partition, int] = {}
        """The index of each partition in `partitions`."""
        self.batch_size = 1_000
        """The number of records to ask for next: about CHUNK_BYTES, once the record size is known."""

    def _heard(self, error: KafkaError) -> None:
        """Note when an error denies access."""
        if self._refused_at is None and is_refusal(error):
            self._refused_at = time.monotonic()

    @property
    def refused(self) -> bool:
        """Whether access is denied and nothing has arrived for REFUSED_SECONDS: librdkafka never rereads secrets."""
        return self._refused_at is not None and time.monotonic() - self._refused_at > REFUSED_SECONDS

    def close(self) -> None:
        self.client.close()

    def connect(self, partitions: Iterable[Partition]) -> None:
        for topic, number in {partition.topic: partition for partition in partitions}.values():
            try:
                look_up_leaders(self.client, [topic])
            except KafkaException as error:
                raise of_partition(error, Partition(topic, number), "looking up the leaders") from error

    def start(self, partition: Partition, offset: int, epoch: int = NO_EPOCH) -> None:
        if partition not in self.places:
            self.places[partition] = len(self.partitions)
            self.partitions.append(partition)
        at = TopicPartition(*partition, offset, leader_epoch=epoch)
        self.client.incremental_assign([at])
        if epoch != NO_EPOCH:
            # After an assignment, librdkafka 2.16 checks the epoch only when the leader changes; a seek checks it now.
            try:
                seek(self.client, at)
            except KafkaException as error:
                raise of_partition(error, partition, "beginning to read") from error

    def stop(self, partition: Partition) -> None:
        self.client.incremental_unassign([TopicPartition(*partition)])

    @abstractmethod
    def poll(self, seconds: float, most: int | None = None) -> Chunk | None: ...

    def wanted(self, most: int | None) -> int:
        """Return how many records to ask for."""
        return self.batch_size if most is None else min(most, self.batch_size)

    def adapt(self, records: int, size: int) -> None:
        """Adapt the batch size to the last chunk's records, whose values have `size` bytes in total."""
        self._refused_at = None
        if records:
            self.batch_size = min(self.max_records, max(1, CHUNK_BYTES * records // (size + 1)))


def ends_and_failures(events: Iterable[Event]) -> tuple[list[tuple[Partition, int]], list[PartitionError]]:
    """Return the ends of partitions, as in a chunk, and the errors of the others."""
    ends, failures = list[tuple[Partition, int]](), list[PartitionError]()
    for topic, number, offset, error in events:
        if topic is None or number is None or number < 0:
            continue  # an error without a partition is a broker's: librdkafka reconnects by itself
        if is_end(error):
            ends.append((Partition(topic, number), offset or 0))
        else:
            failures.append(of_partition(error, Partition(topic, number), "reading", offset))
    return ends, failures


def seek(consumer: Consumer, at: TopicPartition) -> None:
    """Seek once the partition is active, some microseconds after its last stop (_STATE); raises KafkaException."""
    deadline = time.monotonic() + SEEK_SECONDS
    while True:
        try:
            return consumer.seek(at)
        except KafkaException:
            if time.monotonic() > deadline:
                raise
        time.sleep(SEEK_PAUSE)
