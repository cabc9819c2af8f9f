"""The seam between a writer and what hands its records to librdkafka."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from confluent_kafka import Producer

from app.model import Partition, TaskConfig
from app.records import DeadLetter, Header, Lines


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

    @property
    def line(self) -> Partition:
        """The partition of the sink."""
        return Partition(self.sink, self.sink_partition)

    @property
    def dead_letter(self) -> Partition:
        """The partition of the dead letters."""
        return Partition(self.dead_letters, self.dead_letter_partition)

    def __str__(self) -> str:
        """Return the names of both partitions."""
        return f"{self.line} or {self.dead_letter}"


class Sender(ABC):
    """
    Queues the records of one source partition in librdkafka.

    Two methods return the first row that found the queue full, or the number of rows; they raise KafkaException where
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
            if not self.offer_one(self.targets.line, _line(lines, begin, self._mark)):
                return begin
            self._mark, begin = None, begin + 1
        return self._offer(lines, begin)

    @abstractmethod
    def offer_dead_letters(self, dead_letters: Sequence[DeadLetter], begin: int) -> int:
        """Queue rejects for the dead-letter topic, from row `begin` on."""

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
    return DeadLetter(lines.keys[source].as_py(), lines.values[row].as_py(), [header], int(lines.timestamps[source]))
