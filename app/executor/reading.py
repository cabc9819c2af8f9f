"""Where a lane reads its partition, and how it notices that the log was truncated below that offset (KIP-320)."""

from __future__ import annotations

from app.errors import Truncated
from app.executor.clients import SourceConsumer
from app.model import NO_EPOCH, LastRead, OffsetRange


class Reading:
    """
    The part of a task's consumer that reads one partition.

    Start and stop it only from the task's own thread: the consumer's partition table has no lock.
    """

    def __init__(self, offset_range: OffsetRange, consumer: SourceConsumer) -> None:
        self._range = offset_range
        self._consumer = consumer
        self._from = offset_range.start
        self.last: LastRead | None = None
        """The last record read; None if its leader epoch is unknown."""
        self._started = self._wanted = False

    @property
    def active(self) -> bool:
        """Whether the consumer delivers what the lane wants next."""
        return self._started and self._wanted

    def start(self, position: int) -> None:
        """
        Read from a position on, and make Kafka check that the last record read still exists.

        For that, reading starts right behind that record, or at the log start if retention has passed it, and skips
        again the control records before the position, which may have a later epoch.

        Raises:
            Transient: from the consumer.
        """
        self._from, epoch = position, NO_EPOCH
        if self.last is not None:
            self._from, epoch = min(position, max(self.last.after, self._range.log_start)), self.last.epoch
        self.stop()
        self._started = True  # even if it fails: the consumer may have started
        self._consumer.start(self._range.partition, self._from, epoch)
        self._wanted = True

    def stop(self) -> None:
        """Stop reading and drop what was fetched ahead."""
        if self._started:
            self._consumer.stop(self._range.partition)
            self._started = False

    def forget(self) -> None:
        """Ignore everything until the next start: the lane has dropped the records before it."""
        self._wanted = False

    def lost_its_start(self, error: Truncated) -> bool:
        """Return whether the log was truncated below the offset where reading started, not just in the read-ahead."""
        return error.offset == self._from
