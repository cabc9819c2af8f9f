"""Where a lane reads its partition, and how it notices that the log was truncated below that offset (KIP-320)."""

from __future__ import annotations

from app.executor.clients import SourceConsumer
from app.model import NO_EPOCH, LastRead, OffsetRange


class Reading:
    """
    The part of a task's consumer that reads one partition.

    Use it only in the task's own thread: the consumer's partition table has no lock.
    """

    def __init__(self, offset_range: OffsetRange, consumer: SourceConsumer) -> None:
        self._range = offset_range
        self._consumer = consumer
        self.begins = offset_range.start
        """The offset where reading started."""
        self.started = False

    def start(self, position: int, last: LastRead | None) -> None:
        """
        Read from a position on, and make Kafka check that the last record read still exists.

        For that, reading starts right behind that record, or at the log start if retention has passed it, and skips
        again the control records before the position, which may have a later epoch.

        Raises:
            Transient: from the consumer.
        """
        self.begins, epoch = position, NO_EPOCH
        if last is not None:
            self.begins, epoch = min(position, max(last.after, self._range.log_start)), last.epoch
        self.stop()
        self.started = True  # even if it fails: the consumer may have started
        self._consumer.start(self._range.partition, self.begins, epoch)

    def stop(self) -> None:
        """Stop reading and drop what was fetched ahead."""
        if self.started:
            self._consumer.stop(self._range.partition)
            self.started = False

    def anew(self) -> Reading:
        """Return one for the lane's successor, which has not started."""
        return Reading(self._range, self._consumer)
