"""
One source partition on its way through a task: its position, what is open, what is committed.

        open ──▶ running ──commit──▶ running ──▶ done        it reached its end or the deadline
          ▲         │ Transient         │
          └─ back-off ◀─────────────────┤                    a new producer, from the committed offset
                    │ Fenced, Blocked   ▼
                    └──────────────▶ fenced / failed / blocked     dropped; nothing that was open counts
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from app.errors import Blocked, CorruptOffset, Fenced, OffsetMoved, PartitionError
from app.executor.clients import C, Clients, LaneWriter
from app.model import CommittedOffset, OffsetRange, Outcome, Partition, Receipt
from app.offsets.contract import OffsetStore
from app.offsets.metadata import Counts, OffsetMetadata
from app.records import DeadLetter, Lines

FIRST_BACKOFF = 0.25
# Short, because readers wait for it too after an outage.
LAST_BACKOFF = 2.0


@dataclass(frozen=True, slots=True)
class Cleansed:
    """
    What became of some consecutive records of one partition.

    Args:
        records: how many there were.
        bytes_in: the size of their values.
        lines: the cleansed lines.
        bytes_out: the size of these lines.
        dead_letters: the rejects.
        reasons: the reason of each reject.
        position: the offset after the last of the records.
    """

    records: int
    bytes_in: int
    lines: Lines
    bytes_out: int
    dead_letters: Sequence[DeadLetter]
    reasons: Sequence[str]
    position: int

    @property
    def counts(self) -> Counts:
        """How many records and bytes this is."""
        return Counts(self.records, len(self.lines), Counter(self.reasons), self.bytes_in, self.bytes_out)


class Lane:
    """Owns the writer of one source partition, and alone decides about its next offset."""

    def __init__(self, offset_range: OffsetRange, clients: Clients[C], consumer: C, offsets: OffsetStore) -> None:
        self.range = offset_range
        self.position = offset_range.start
        self.outcome: Outcome | None = None
        self.retry_at: float | None = None
        self.committed_at = 0.0
        self._clients = clients
        self._consumer = consumer
        self._offsets = offsets
        self._writer: LaneWriter | None = None
        self._committed = offset_range.committed
        self._stored = False
        """Whether this task has moved the offset."""
        self._metadata = OffsetMetadata(offset_range.topic_id)
        """What the committed offset stands for; its counts go on over tasks."""
        self._done = Counts()
        """What this task has committed."""
        self._open = Counts()
        """What waits for the next commit."""
        self._uncertain: int | None = None
        self._start: int | None = None
        self._reading = False
        self._backoff = FIRST_BACKOFF
        self._reopened = 0
        self._error = self._cure = ""

    @property
    def partition(self) -> Partition:
        """The source partition."""
        return self.range.partition

    @property
    def running(self) -> bool:
        """Whether records of this partition are wanted now."""
        return self.outcome is None and self._reading

    @property
    def dirty(self) -> bool:
        """Whether there is something to commit: records, or a position after control records."""
        return self.running and self.position != self._committed

    @property
    def at_end(self) -> bool:
        """Whether the agreed end is reached."""
        return self.range.end is not None and self.position >= self.range.end

    def open(self) -> None:
        """Fence every earlier owner. Only then may the committed offset be read that `begin` takes."""
        self._writer = self._clients.writer(self.partition, self._offsets)
        self._writer.open()

    def begin(self, committed: CommittedOffset | None, now: float) -> None:
        """
        Decide where to start, from the offset that was read after fencing.

        Storing the start is a commit. If it was suspiciously slow, the writer is replaced, as after any other commit.

        Raises:
            OffsetMoved: somebody moved the offset back or deleted it after the driver planned.
            CorruptOffset: what is stored is not an offset any more.
            Fenced, Transient: from the writer.
        """
        if committed is None and self._committed is not None:
            raise OffsetMoved(self.partition, "the committed offset vanished", self._committed)
        if committed is not None and committed.corrupt:
            raise CorruptOffset(self.partition, committed.corrupt, self._committed)
        if committed is not None and self._committed is not None and committed.offset < self._committed:
            what = f"the committed offset went back to {committed.offset}"
            raise OffsetMoved(self.partition, what, self._committed)
        self.position = self._first_position(committed)
        self._resolve_uncertain_commit()
        self._metadata = self._continued(committed)
        self._store_start(committed)
        self._start = self.position if self._start is None else self._start
        self.retry_at, self.committed_at = None, now
        self._replace_suspect_writer(now)

    def _first_position(self, committed: CommittedOffset | None) -> int:
        """Return the planned start while the offset is the one that the driver planned with, otherwise the offset."""
        if committed is None or (committed.offset == self.range.committed and not self._stored):
            return self.range.start
        return committed.offset

    def _continued(self, committed: CommittedOffset | None) -> OffsetMetadata:
        """Go on with the counts beside the committed offset; those of another topic, or of nobody, begin here."""
        found = OffsetMetadata.parse(committed.metadata if committed else "")
        topic_id = self.range.topic_id
        if found.is_ours and found.topic_id in ("", topic_id):
            return OffsetMetadata(topic_id, found.since, found.counts)
        return OffsetMetadata(topic_id, self.position)

    def _store_start(self, committed: CommittedOffset | None) -> None:
        """Store a start that no offset stands for yet, so that `latest` means the same after a crash."""
        assert self._writer is not None  # open() came first
        if committed is not None and self.position >= committed.offset:
            self._committed = committed.offset
            return
        # Where out.of.range decided to go back, a store would refuse a commit.
        store = self._writer.commit if committed is None else self._writer.reset
        store(self.position, str(self._metadata))
        self._committed, self._stored = self.position, True

    def read(self) -> None:
        """
        Begin to read, unless the writer must be replaced first.

        Only the task's own thread may: the consumer's table of partitions is not locked.
        """
        if self._writer is not None:
            self._consumer.start(self.partition, self.position)
            self._reading = True

    def _resolve_uncertain_commit(self) -> None:
        """Count a commit whose outcome was unknown, if the committed offset shows that it happened."""
        if self._uncertain is not None and self.position >= self._uncertain:
            self._done += self._open
        self._open, self._uncertain = Counts(), None

    def take(self, cleansed: Cleansed) -> None:
        """
        Send what became of some records.

        Raises:
            Fenced, Transient: from the writer.
        """
        assert self._writer is not None  # only running lanes take
        if len(cleansed.lines):
            self._writer.send(cleansed.lines)
        if cleansed.dead_letters:
            self._writer.send_dead_letters(cleansed.dead_letters)
        self._open += cleansed.counts
        self.position = cleansed.position

    def free(self) -> None:
        """Free the memory of what was delivered."""
        if self._writer is not None:
            self._writer.free()

    def pass_over(self, position: int) -> None:
        """Move past offsets that hold no record for us: control records, aborted and compacted ones."""
        end = self.range.end
        self.position = max(self.position, position if end is None else min(position, end))

    def commit(self, now: float) -> None:
        """
        Make what was taken count, and replace the writer if its commit was suspiciously slow.

        Raises:
            Fenced, Transient: from the writer.
        """
        assert self._writer is not None  # only running lanes commit
        self._uncertain = self.position
        metadata = OffsetMetadata(self._metadata.topic_id, self._metadata.since, self._metadata.counts + self._open)
        self._writer.commit(self.position, str(metadata))
        self._uncertain = None
        self._metadata = metadata
        self._done += self._open
        self._open = Counts()
        self._committed, self._stored = self.position, True
        self.committed_at = now
        self._backoff = FIRST_BACKOFF
        self._replace_suspect_writer(now)

    def _replace_suspect_writer(self, now: float) -> None:
        """Open the lane again with a new writer if the last commit may have been sent twice."""
        if self._writer is not None and self._writer.suspect:
            self._drop_writer()
            self._reopened += 1
            self.retry_at = now

    def give_up(self, error: PartitionError, now: float) -> None:
        """Drop what is open after an error: try again after a back-off, or leave the partition to others."""
        self._drop_writer()
        if isinstance(error, Fenced):
            self.outcome = Outcome.FENCED
        elif isinstance(error, OffsetMoved):
            self.fail(str(error))
        elif isinstance(error, Blocked):
            self.outcome, self._error, self._cure, self.retry_at = Outcome.BLOCKED, error.cause, error.cure, None
        else:
            self._error = str(error)
            self._reopened += 1
            self.retry_at = now + self._backoff
            self._backoff = min(self._backoff * 2, LAST_BACKOFF)

    def fail(self, error: str) -> None:
        """Leave the partition alone for the rest of the round; the driver decides what to do then."""
        self._drop_writer()
        self.outcome, self._error, self.retry_at = Outcome.FAILED, error, None

    def finish(self) -> None:
        """Stop: everything was committed or dropped."""
        waiting = self.retry_at is not None and self._error
        self._drop_writer()
        if self.outcome is None:
            self.outcome = Outcome.FAILED if waiting else Outcome.DONE

    def _drop_writer(self) -> None:
        if self._reading:
            self._consumer.stop(self.partition)
            self._reading = False
        if self._writer is not None:
            self._writer.discard()
            self._writer = None

    def receipt(self) -> Receipt:
        """Return what is committed, and how it ended."""
        start = self.range.start if self._start is None else self._start
        return Receipt(
            partition=self.partition,
            start=start,
            end=start if self._committed is None else max(start, self._committed),
            records=self._done.records,
            out=self._done.out,
            dead=dict(self._done.dead),
            outcome=self.outcome or Outcome.DONE,
            error=self._error,
            cure=self._cure,
            reopened=self._reopened,
            metadata=str(self._metadata) if self._start is not None else "",
        )
