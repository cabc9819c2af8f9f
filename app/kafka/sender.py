"""The interface between a writer and the backend that passes its records to librdkafka."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from confluent_kafka import Producer

from app.headers import Header
from app.model import Destination, Partition, Partitioner, TaskConfig
from app.records import Lines, OutgoingRecord

BY_KEY = -1
"""The partition number that makes librdkafka choose one by the record's key (RD_KAFKA_PARTITION_UA)."""


@dataclass(frozen=True, slots=True)
class Targets:
    """
    Where the output of one source partition goes.

    Args:
        number: the number of the source partition.
        by_key: whether the key of a line chooses its partition.
        others: partitions of other topics that its records may go to.
    """

    number: int
    sink: Destination
    dead_letters: Destination
    by_key: bool
    others: Sequence[Partition] = ()

    @classmethod
    def of(cls, config: TaskConfig, partition: Partition) -> Targets:
        by_key = config.sink_partitioner is Partitioner.KEY and config.sink.partitions > 1
        return cls(partition.number, config.sink, config.dead_letters, by_key)

    @property
    def sink_partitions(self) -> range:
        """The partitions of the sink that its lines may go to: its number modulo theirs keeps the order."""
        number = self.number % self.sink.partitions
        return range(self.sink.partitions) if self.by_key else range(number, number + 1)

    @property
    def line(self) -> Partition:
        """The partition of a line; its number may be `BY_KEY`."""
        return Partition(self.sink.topic, BY_KEY if self.by_key else self.sink_partitions[0])

    @property
    def lines(self) -> Sequence[Partition]:
        """All partitions that its lines may go to."""
        return [*(Partition(self.sink.topic, number) for number in self.sink_partitions), *self.others]

    @property
    def dead_letter(self) -> Partition:
        return Partition(self.dead_letters.topic, self.number % self.dead_letters.partitions)

    @property
    def before(self) -> list[Partition]:
        """The other partitions that its output went to while a topic had fewer."""
        topics = (self.sink, self.dead_letters)
        fewer = {Partition(each.topic, self.number % count) for each in topics for count in range(1, each.partitions)}
        return sorted(fewer.difference(self.lines, [self.dead_letter]))

    @property
    def rest(self) -> list[Partition]:
        """The rest of the sink's partitions, which its lines went to while keys chose them."""
        numbers = range(self.sink.partitions)
        return [Partition(self.sink.topic, each) for each in numbers if each not in self.sink_partitions]

    def __str__(self) -> str:
        first, last = (Partition(self.sink.topic, self.sink_partitions[each]) for each in (0, -1))
        sink = f"{first}" if first == last else f"{first} to {last}"
        return f"{sink} or {self.dead_letter}"


class Sender(ABC):
    """
    Queues the records of one source partition in librdkafka.

    The methods with a row `begin` return the first row that found the queue full, or the number of rows. They raise
    KafkaException if librdkafka refuses a row for another reason.
    """

    def __init__(self, client: Producer, targets: Targets) -> None:
        self.targets = targets
        self._client = client
        self._mark: Header | None = None

    def mark(self, header: Header) -> None:
        """Add this header to the next line."""
        self._mark = header

    def offer(self, lines: Lines, begin: int) -> int:
        """Queue lines for the sink, from row `begin` on."""
        if self._mark is not None and begin < len(lines):
            if not self.offer_one(self.targets.line, _line(lines, begin, self._mark)):
                return begin
            self._mark, begin = None, begin + 1
        return self._offer(lines, begin)

    def offer_dead_letters(self, dead_letters: Sequence[OutgoingRecord], begin: int) -> int:
        target = self.targets.dead_letter
        return self.offer_each([(target, each) for each in dead_letters], begin)

    def offer_each(self, records: Sequence[tuple[Partition, OutgoingRecord]], begin: int) -> int:
        """Queue each record for its own partition, from row `begin` on."""
        for row in range(begin, len(records)):
            if not self.offer_one(*records[row]):
                return row
        return len(records)

    def offer_one(self, target: Partition, record: OutgoingRecord) -> bool:
        """Queue one record; return whether there was room for it. Raises as the others."""
        key, value, headers, timestamp = record
        try:
            # librdkafka reads the timestamp 0 as "now", which suits a record without one.
            stamp = max(timestamp, 0)
            self._client.produce(target.topic, value, key, target.number, timestamp=stamp, headers=list(headers))
        except BufferError:
            return False
        return True

    @abstractmethod
    def _offer(self, lines: Lines, begin: int) -> int: ...

    def close(self) -> None:  # noqa: B027  # most backends have nothing to release
        """Release librdkafka's objects, so that the producer can be destroyed."""


def _line(lines: Lines, row: int, header: Header) -> OutgoingRecord:
    source = int(lines.rows[row])
    named = ((name, column[source].as_py()) for name, column in lines.headers)
    headers = [header, *((name, value) for name, value in named if value is not None)]
    return OutgoingRecord(lines.keys[source].as_py(), lines.values[row].as_py(), headers, int(lines.timestamps[source]))
