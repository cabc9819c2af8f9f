"""The seam between a writer and what hands its records to librdkafka."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from confluent_kafka import Producer

from app.headers import Header
from app.model import Partition, Partitioner, TaskConfig
from app.records import DeadLetter, Lines

BY_KEY = -1
"""The partition of a record that librdkafka chooses by its key (RD_KAFKA_PARTITION_UA)."""


@dataclass(frozen=True, slots=True)
class Targets:
    """Where the output of one source partition goes: topic and partitions of the sink and of the dead letters."""

    sink: str
    sink_partitions: range
    """The partitions that its lines may go to."""
    dead_letters: str
    dead_letter_partition: int

    @classmethod
    def of(cls, config: TaskConfig, partition: Partition) -> Targets:
        """Return the targets of a source partition: its number mod their partitions, which keeps its order."""
        sink, dead_letters = config.sink, config.dead_letters
        number = partition.number % sink.partitions
        by_key = config.sink_partitioner is Partitioner.KEY
        return cls(
            sink.topic,
            range(sink.partitions) if by_key else range(number, number + 1),
            dead_letters.topic,
            partition.number % dead_letters.partitions,
        )

    @property
    def sink_partition(self) -> int:
        """The partition that its lines go to, or `BY_KEY`."""
        return self.sink_partitions[0] if len(self.sink_partitions) == 1 else BY_KEY

    @property
    def by_key(self) -> bool:
        """Whether the key of a line chooses its partition."""
        return self.sink_partition == BY_KEY

    @property
    def lines(self) -> Sequence[Partition]:
        """The partitions of the sink."""
        return [Partition(self.sink, number) for number in self.sink_partitions]

    @property
    def dead_letter(self) -> Partition:
        """The partition of the dead letters."""
        return Partition(self.dead_letters, self.dead_letter_partition)

    def __str__(self) -> str:
        """Return the names of all partitions."""
        first, last = self.sink_partitions[0], self.sink_partitions[-1]
        sink = f"{self.sink}-{first}" if first == last else f"{self.sink}-{first} to {self.sink}-{last}"
        return f"{sink} or {self.dead_letter}"


class Sender(ABC):
    """
    Queues the records of one source partition in librdkafka.

    Three methods return the first row that found the queue full, or the number of rows; they raise KafkaException where
    librdkafka refuses a row for any other reason.

    Args:
        client: the producer.
        targets: where the records go.
    """

    def __init__(self, client: Producer, targets: Targets) -> None:
        self.targets = targets
        self._client = client
        self._mark: Header | None = None

    def mark(self, header: Header) -> None:
        """Give this header to the next line."""
        self._mark = header

    def offer(self, lines: Lines, begin: int) -> int:
        """Queue lines for the sink, from row `begin` on."""
        if self._mark is not None and begin < len(lines):
            where = Partition(self.targets.sink, self.targets.sink_partition)
            if not self.offer_one(where, _line(lines, begin, self._mark)):
                return begin
            self._mark, begin = None, begin + 1
        return self._offer(lines, begin)

    @abstractmethod
    def offer_dead_letters(self, dead_letters: Sequence[DeadLetter], begin: int) -> int:
        """Queue rejects for the dead-letter topic, from row `begin` on."""

    def offer_each(self, records: Sequence[tuple[Partition, DeadLetter]], begin: int) -> int:
        """Queue records for the partition that stands beside each, from row `begin` on."""
        for row in range(begin, len(records)):
            if not self.offer_one(*records[row]):
                return row
        return len(records)

    def offer_one(self, target: Partition, record: DeadLetter) -> bool:
        """
        Queue one record; return whether there was room for it.

        Raises:
            KafkaException: librdkafka refuses the record for any other reason.
        """
        key, value, headers, timestamp = record
        try:
            # librdkafka reads the timestamp 0 as "now", which is what a record without one gets.
            stamp = max(timestamp, 0)
            self._client.produce(target.topic, value, key, target.number, timestamp=stamp, headers=list(headers))
        except BufferError:
            return False
        return True

    @abstractmethod
    def _offer(self, lines: Lines, begin: int) -> int: ...

    @abstractmethod
    def close(self) -> None:
        """Release what belongs to librdkafka; afterwards the producer may end."""


def _line(lines: Lines, row: int, header: Header) -> DeadLetter:
    source = int(lines.rows[row])
    named = ((name, column[source].as_py()) for name, column in lines.headers)
    headers = [header, *((name, value) for name, value in named if value is not None)]
    return DeadLetter(lines.keys[source].as_py(), lines.values[row].as_py(), headers, int(lines.timestamps[source]))
