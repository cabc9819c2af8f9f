"""The interface between a task and Kafka, as protocols that the real clients and the tests' fakes implement."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from app.model import NO_EPOCH, CommittedOffset, Partition
from app.offsets.contract import OffsetStore
from app.records import Chunk, Lines, OutgoingRecord


class SourceConsumer(Protocol):
    """Reads committed records of a task's partitions; its methods raise Transient if Kafka does not respond."""

    @property
    def refused(self) -> bool:
        """Whether Kafka denies it access. Only a new consumer, which reads the secrets again, can continue."""

    def connect(self, partitions: Iterable[Partition]) -> None:
        """Look up the leaders of these partitions, so that reading starts without delay."""

    def start(self, partition: Partition, offset: int, epoch: int = NO_EPOCH) -> None:
        """
        Start reading at an offset.

        Given the leader epoch of the record before it, a chunk reports Truncated if the log was truncated below the
        offset, even if it has grown past it since.
        """

    def stop(self, partition: Partition) -> None:
        """Stop reading a partition."""

    def poll(self, seconds: float, most: int | None = None) -> Chunk | None:
        """Wait up to `seconds` for a full chunk; return what has arrived, at most `most` records; None if nothing."""

    def close(self) -> None:
        """Close without committing."""


class LaneWriter(Protocol):
    """
    Writes for one source partition.

    Whatever waits for Kafka raises Fenced if another owner has taken the partition over, and Transient if it is unknown
    what was done. While one of its calls runs in a thread, only `abandon`, `full` and `waiting` may be used.
    """

    suspect: bool

    @property
    def full(self) -> bool:
        """Whether records are left that did not fit into the queue; `send_rest` sends them."""

    @property
    def waiting(self) -> int:
        """The number of sent records that are not acknowledged."""

    def open(self) -> None:
        """Fence every earlier owner."""

    def settle(self, committed: CommittedOffset | None) -> None:
        """
        End the transactions that earlier owners left open, given the committed offset, read after `open`.

        A writer without transactions also saves that offset again.
        """

    def end_pending(self, committed: int | None) -> None:
        """End a transaction that blocks reading the offset, given the offset before it. Call `open` first."""

    def send(self, lines: Lines) -> None:
        """Queue lines for the sink, in order."""

    def send_dead_letters(self, dead_letters: Sequence[OutgoingRecord]) -> None:
        """Queue dead letters, in order."""

    def send_rest(self) -> None:
        """Queue what did not fit before."""

    def abandon(self) -> None:
        """Make a call that runs in another thread give up."""

    def free(self) -> None:
        """Free the memory of delivered records."""

    def commit(self, offset: int, metadata: str) -> None:
        """
        Commit everything sent since the last commit together with the offset.

        After Transient, the committed offset shows what was done, once the partition is opened again.
        """

    def reset(self, offset: int, metadata: str) -> None:
        """Commit an offset even if it moves back."""

    def discard(self) -> None:
        """Abort the open transaction and drop the client."""


class ClientFactory(Protocol):
    """Makes the clients of one task, in the process that runs it."""

    def consumer(self) -> SourceConsumer:
        """Return the task's consumer."""

    def offsets(self) -> OffsetStore:
        """Return the store of the task's offsets."""

    def writer(self, partition: Partition, offsets: OffsetStore) -> LaneWriter:
        """Return the writer of one source partition."""
