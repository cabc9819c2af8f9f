"""Where a lane reads its partition, and how it notices that the log was cut below that (KIP-320)."""

from __future__ import annotations

from app.errors import Truncated
from app.executor.clients import SourceConsumer
from app.model import NO_EPOCH, LastRead, OffsetRange


class Reading:
    """
    The part of a task's consumer that reads one partition.

    Only the task's own thread may start and stop it: the consumer's table of partitions is not locked.
    """

    def __init__(self, offset_range: OffsetRange, consumer: SourceConsumer) -> None:
        self._range = offset_range
        self._consumer = consumer
        self._from = offset_range.start
        self.last: LastRead | None = None
        """The last record that was read; None where its leader epoch is not known."""
        self._started = self._wanted = False

    @property
    def active(self) -> bool:
        """Whether what the consumer brings is what the lane wants next."""
        return self._started and self._wanted

    def start(self, position: int) -> None:
        """
        Read from a position on, and ask Kafka whether the last record that was read is still there.

        So reading begins behind that record: control records up to the position, which may be of a later epoch, are
        passed over once more. What retention has deleted since cannot be read.

        Raises:
            Transient: from the consumer.
        """
        self._from, epoch = position, NO_EPOCH
        if self.last is not None:
            self._from, epoch = min(position, max(self.last.after, self._range.log_start)), self.last.epoch
        self.stop()
        self._started = True  # also where it fails: the consumer may have begun
        self._consumer.start(self._range.partition, self._from, epoch)
        self._wanted = True

    def stop(self) -> None:
        """Read no more for now; what was fetched ahead is dropped."""
        if self._started:
            self._consumer.stop(self._range.partition)
            self._started = False

    def forget(self) -> None:
        """Want nothing of what it brings before the next start: the lane has dropped what came before that."""
        self._wanted = False

    def lost_its_start(self, error: Truncated) -> bool:
        """Return whether the log was cut below where reading began, and not only below what was read ahead."""
        return error.offset == self._from
