"""What a lane keeps while its writers come and go: its place, its counts and its errors."""

from __future__ import annotations

import re
from copy import copy
from dataclasses import dataclass, replace

from app.errors import PartitionError
from app.events import REMIND_SECONDS, Event
from app.executor.clients import SourceConsumer
from app.executor.lane.search import Search
from app.model import NO_EPOCH, NOBODY, LastRead, OffsetRange, Owner, Partition
from app.offsets.metadata import NOTHING, Counts, OffsetMetadata

FIRST_BACKOFF, LAST_BACKOFF = 0.25, 2.0  # short, because after an outage readers wait for it too


@dataclass(frozen=True, slots=True)
class Progress:
    """
    The counts of one lane in one task.

    Frozen, so that a lane's successor, which does not wait for the old thread, sees a commit completely or not at all.

    Args:
        done: what is committed.
        open: what the next commit will add.
        uncertain: the offset of a commit whose outcome is unknown.
    """

    done: Counts = NOTHING
    open: Counts = NOTHING
    uncertain: int | None = None

    def taken(self, counts: Counts) -> Progress:
        return replace(self, open=self.open + counts)

    def committing(self, offset: int) -> Progress:
        """Return the counts while a commit runs, which counts as one itself."""
        return replace(self, open=self.open + Counts(committed=1), uncertain=offset)

    def committed(self) -> Progress:
        return Progress(self.done + self.open)

    def resolved(self, committed: int) -> Progress:
        """
        Return the counts that the committed offset implies: an uncertain commit counts if it happened.

        Otherwise what was open is dropped, except the count of aborted transactions.
        """
        if self.uncertain is not None and committed >= self.uncertain:
            return self.committed()
        lost = self.open.records > 0 or self.uncertain is not None
        return Progress(self.done, Counts(aborted=self.open.aborted + lost))


class Trouble:
    """
    The errors of one lane, logged as they happen: receipts come late, or never if the round is killed.

    Each kind is logged when it is new, and then at most once a minute. The worker's stderr ends up in the log of its
    executor, or of the driver with a local master.
    """

    def __init__(self, partition: Partition) -> None:
        self._where = partition.as_json()
        self._quiet_until: dict[str, float] = {}
        """When each kind of error may be logged again. Texts that differ only in numbers are the same kind."""
        self._lasts = False

    def happened(self, error: PartitionError, offset: int, now: float) -> None:
        """Log an error, and the offset at which the lane will resume."""
        kind = re.sub(r"\d+", "", error.cause)
        if now < self._quiet_until.get(kind, now):
            return
        self._quiet_until[kind] = now + REMIND_SECONDS
        self._lasts = True
        Event.PARTITION_TROUBLE.log(error=str(error), offset=offset, **self._where)

    def over(self, offset: int) -> None:
        """Log that the lane has committed again, if its trouble was logged."""
        if self._lasts:
            self._lasts = False
            Event.PARTITION_TROUBLE_OVER.log(offset=offset, **self._where)


class Ledger:
    """What the states of a lane share. While a call of the lane runs, the call's thread may change it."""

    def __init__(self, offset_range: OffsetRange, consumer: SourceConsumer, owner: Owner = NOBODY) -> None:
        self.range = offset_range
        self.partition = offset_range.partition
        self.owner = owner
        self._consumer = consumer
        self.reading = False
        self.reads_from = offset_range.start
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
        start and stop reading: the consumer's partition table has no lock. Raises Transient, from the consumer.
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
