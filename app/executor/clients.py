"""The seam between a task and Kafka: protocols that the real clients and the tests' fakes implement."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from app.model import NO_EPOCH, CommittedOffset, Partition
from app.offsets.contract import OffsetStore
from app.records import Chunk, DeadLetter, Lines


class SourceConsumer(Protocol):
    """Reads the partitions of one task, committed records only; see `app.kafka.consumer` for the errors."""

    @property
    def refused(self) -> bool:
        """Whether Kafka does not let it in any more: only another one, with the secrets of now, can go on."""
        ...

    def connect(self, partitions: Iterable[Partition]) -> None:
        """Look up the leaders of these partitions, so that reading begins at once."""
        ...

    def start(self, partition: Partition, offset: int, epoch: int = NO_EPOCH) -> None:
        """Begin or resume reading at an offset; with the leader epoch of the record before it, a cut below it shows."""
        ...

    def stop(self, partition: Partition) -> None:
        """Stop reading a partition."""
        ...

    def poll(self, seconds: float, most: int | None = None) -> Chunk | None:
        """Return what has arrived, at most so many records; None if nothing has."""
        ...

    def close(self) -> None:
        """Close, committing nothing."""
        ...


class LaneWriter(Protocol):
    """
    Writes for one source partition; see `app.kafka.writers` for the errors.

    While one of its calls waits in a thread, only `abandon`, `full` and `waiting` may be asked.
    """

    suspect: bool

    @property
    def full(self) -> bool:
        """Whether something that was sent has found no room yet: `send_rest` waits for it."""
        ...

    @property
    def waiting(self) -> int:
        """How many records that were sent are not acknowledged."""
        ...

    def open(self) -> None:
        """Fence every earlier owner."""
        ...

    def settle(self, committed: CommittedOffset | None) -> None:
        """End what earlier owners have left open, given the offset that was committed when they were fenced."""
        ...

    def end_pending(self, committed: int | None) -> None:
        """End a transaction that keeps the offset from being read, given the offset before it; `open` came first."""
        ...

    def send(self, lines: Lines) -> None:
        """Queue lines for the sink."""
        ...

    def send_dead_letters(self, dead_letters: Sequence[DeadLetter]) -> None:
        """Queue rejects for the dead letters."""
        ...

    def send_rest(self) -> None:
        """Queue what found no room."""
        ...

    def abandon(self) -> None:
        """Make a call that waits in another thread give up."""
        ...

    def free(self) -> None:
        """Free the memory of what was delivered."""
        ...

    def commit(self, offset: int, metadata: str) -> None:
        """Make everything that was sent since the last commit count, together with the offset."""
        ...

    def reset(self, offset: int, metadata: str) -> None:
        """Commit an offset even if that goes back."""
        ...

    def discard(self) -> None:
        """Abort what is open and drop the client."""
        ...


C = TypeVar("C", bound=SourceConsumer)


class Clients(Protocol[C]):
    """Makes the clients of one task, on the machine where it runs."""

    def consumer(self) -> C:
        """Return the task's consumer."""
        ...

    def offsets(self, consumer: C) -> OffsetStore:
        """Return the store of the task's offsets."""
        ...

    def writer(self, partition: Partition, offsets: OffsetStore) -> LaneWriter:
        """Return the writer of one source partition."""
        ...
