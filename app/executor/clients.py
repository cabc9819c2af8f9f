"""The seam between a task and Kafka: what the real clients and the tests' fakes both are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from app.model import CommittedOffset, Partition
from app.records import Chunk, DeadLetter, Lines


class SourceConsumer(Protocol):
    """Reads the partitions of one task, committed records only; see `app.kafka.plain.consumer` for the errors."""

    def committed(self, partitions: Iterable[Partition]) -> Mapping[Partition, CommittedOffset | None]:
        """Read the group's offsets, after all finished transactions."""
        ...

    def start(self, partition: Partition, offset: int) -> None:
        """Begin or resume reading at an offset."""
        ...

    def stop(self, partition: Partition) -> None:
        """Stop reading a partition."""
        ...

    def poll(self, seconds: float) -> Chunk | None:
        """Take what has arrived; None if nothing has."""
        ...

    def close(self) -> None:
        """Close, committing nothing."""
        ...


class LaneWriter(Protocol):
    """Writes for one source partition; see `app.kafka.writers` for the errors."""

    suspect: bool

    def open(self) -> None:
        """Fence every earlier owner."""
        ...

    def send(self, lines: Lines) -> None:
        """Queue lines for the sink."""
        ...

    def send_dead_letters(self, dead_letters: Sequence[DeadLetter]) -> None:
        """Queue rejects for the dead letters."""
        ...

    def free(self) -> None:
        """Let go of what was delivered."""
        ...

    def commit(self, offset: int, metadata: str) -> None:
        """Make everything sent since the last commit, and the offset, count."""
        ...

    def discard(self) -> None:
        """Abort what is open and drop the client."""
        ...


C = TypeVar("C", bound=SourceConsumer)


class Clients(Protocol[C]):
    """Makes the clients of one task, on the machine where it runs."""

    def consumer(self) -> C:
        """Make the task's consumer."""
        ...

    def writer(self, partition: Partition, consumer: C) -> LaneWriter:
        """Make the writer of one source partition."""
        ...
