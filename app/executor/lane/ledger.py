"""What a lane keeps while its writers come and go."""

from __future__ import annotations

from copy import copy

from app.executor.clients import SourceConsumer
from app.executor.lane.progress import Progress
from app.executor.lane.search import Search
from app.executor.lane.trouble import Trouble
from app.model import NO_EPOCH, NOBODY, LastRead, OffsetRange, Owner
from app.offsets.metadata import OffsetMetadata

FIRST_BACKOFF, LAST_BACKOFF = 0.25, 2.0  # short, because after an outage readers wait for it too


class Ledger:
    """What the states of a lane share. While a call of the lane runs, the call's thread may change it."""

    def __init__(self, offset_range: OffsetRange, consumer: SourceConsumer, owner: Owner = NOBODY) -> None:
        self.range = offset_range
        self.partition = offset_range.partition
        self.owner = owner
        self._consumer = consumer
        self.reading = False
        """Whether the consumer reads the partition."""
        self.reads_from = offset_range.start
        """The offset where reading started."""
        self.position = offset_range.start
        self.last_read: LastRead | None = None
        """The last record read; None if its leader epoch is unknown."""
        self.reach = offset_range.start
        """The offset after the last record handed to the writer, whether it was accepted or refused."""
        self.start: int | None = None
        """Where the lane began; None if it has not."""
        self.committed = offset_range.committed
        self.began_with = offset_range.planned
        """
        The committed offset that the lane found when it began; before that, the one that the driver planned with.

        A later run that has ended may have committed it.
        """
        self.committed_at = 0.0
        self.stored = False
        """Whether this task has committed an offset."""
        self.metadata = OffsetMetadata(offset_range.topic_id, owner=owner)
        """The metadata of the committed offset, or to commit again with a cut. Its counts continue across tasks."""
        self.progress = Progress()
        self.search = Search()
        self.trouble = Trouble(offset_range.partition)
        self.backoff = FIRST_BACKOFF
        self.reopened = 0
        self.error = self.refused_because = ""
        self.abandoned = False
        """Whether another lane owns the partition by now, so that no call of this one may fence it."""

    def copy(self) -> Ledger:
        """Return a copy for the lane's successor, which shares nothing that the old thread may touch."""
        made = copy(self)
        made.abandoned = False
        made.search, made.trouble = copy(self.search), copy(self.trouble)
        return made

    def read(self) -> None:
        """
        Read from the position on, and make Kafka check that the last record read still exists (KIP-320).

        For that, reading starts right behind that record, or at the log start if retention has passed it, and skips
        again the control records before the position, which may have a later epoch. Only the task's own thread may
        start and stop reading: the consumer's partition table has no lock.

        Raises:
            Transient: from the consumer.
        """
        self.reads_from, epoch = self.position, NO_EPOCH
        if self.last_read is not None:
            behind, epoch = self.last_read
            self.reads_from = min(self.position, max(behind, self.range.log_start))
        self.hold()
        self.reading = True  # even if it fails: the consumer may have started
        self._consumer.start(self.partition, self.reads_from, epoch)

    def hold(self) -> None:
        """Stop reading for now and drop what was fetched ahead."""
        if self.reading:
            self._consumer.stop(self.partition)
            self.reading = False

    @property
    def troubled(self) -> bool:
        """Whether something has failed since the last commit."""
        return self.backoff > FIRST_BACKOFF

    @property
    def at_end(self) -> bool:
        return self.range.end is not None and self.position >= self.range.end

    @property
    def stop(self) -> int | None:
        """The offset to commit at before reading on: the agreed end, or a nearer one set by the search."""
        return min((stop for stop in (self.range.end, self.search.stop) if stop is not None), default=None)

    @property
    def at_stop(self) -> bool:
        """Whether the search for a refused record needs a commit before reading on."""
        return self.search.stop is not None and self.position >= self.search.stop

    @property
    def in_backlog(self) -> bool:
        """Whether its next record was already there when the group started on the partition."""
        return self.position < self.metadata.backlog

    @property
    def refusal(self) -> str | None:
        """Why Kafka refuses the next record, which must become a dead letter; None if it is not known to refuse it."""
        return None if self.search.found is None else self.refused_because
