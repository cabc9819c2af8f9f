"""The seam between a writer and what hands its records to librdkafka."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from app.model import Partition, TaskConfig
from app.records import DeadLetter, Lines


@dataclass(frozen=True, slots=True)
class Targets:
    """Where the output of one source partition goes: topic and partition of the sink and of the dead letters."""

    sink: str
    sink_partition: int
    dead_letters: str
    dead_letter_partition: int

    @classmethod
    def of(cls, config: TaskConfig, partition: Partition) -> Targets:
        """Return the targets of a source partition: its number mod their partitions, which keeps its order."""
        sink, dead_letters = config.sink, config.dead_letters
        return cls(
            sink.topic,
            partition.number % sink.partitions,
            dead_letters.topic,
            partition.number % dead_letters.partitions,
        )

    def __str__(self) -> str:
        """Return the names of both partitions."""
        return f"{self.sink}-{self.sink_partition} or {self.dead_letters}-{self.dead_letter_partition}"


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
