"""The seam between a writer and what hands its records to librdkafka."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

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

    def __str__(self) -> str:
        """Return the names of all partitions."""
        first, last = self.sink_partitions[0], self.sink_partitions[-1]
        sink = f"{self.sink}-{first}" if first == last else f"{self.sink}-{first} to {self.sink}-{last}"
        return f"{sink} or {self.dead_letters}-{self.dead_letter_partition}"


class Sender(Protocol):
    """
    Queues the records of one source partition in librdkafka.

    Both methods return the first row that found the queue full, or the number of rows; they raise KafkaException where
    librdkafka refuses a row for any other reason.
    """

    targets: Targets

    def offer(self, lines: Lines, begin: int) -> int:
        """Queue lines for the sink, from row `begin` on."""
        ...

    def offer_dead_letters(self, dead_letters: Sequence[DeadLetter], begin: int) -> int:
        """Queue rejects for the dead-letter topic, from row `begin` on."""
        ...

    def close(self) -> None:
        """Release what belongs to librdkafka; afterwards the producer may end."""
        ...
