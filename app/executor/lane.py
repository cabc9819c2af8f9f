"""
One source partition's way through a task: where it stands, what is open, what is committed.

        open ──▶ running ──commit──▶ running ──▶ done        its end or the deadline was reached
          ▲         │ Transient         │
          └─ back-off ◀─────────────────┤                    a new producer, from the committed offset
                    │ Fenced            ▼
                    └──────────────▶ fenced / failed         dropped; nothing open is kept
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from app.errors import Fenced, OffsetMoved, PartitionError
from app.executor.clients import C, Clients, LaneWriter
from app.model import CommittedOffset, OffsetMetadata, OffsetRange, Outcome, Partition, Receipt
from app.records import DeadLetter, Lines

FIRST_BACKOFF = 0.25
# Short: after an outage readers wait for this, too.
LAST_BACKOFF = 2.0


@dataclass(slots=True)
class Tally:
    """What came in and where it went."""

    records: int = 0
    out: int = 0
    dead: Counter[str] = field(default_factory=Counter)

    def add(self, other: Tally) -> None:
        """Count what `other` counted."""
        self.records += other.records
        self.out += other.out
        self.dead.update(other.dead)


class Lane:
    """Owns the writer of one source partition, and the only decision about its next offset."""

    def __init__(self, offset_range: OffsetRange, clients: Clients[C], consumer: C) -> None:
        self.offset_range = offset_range
        self.outcome: Outcome | None = None
        self.retry_at: float | None = None
        self.committed_at = 0.0
        self._clients = clients
        self._consumer = consumer
        self._writer: LaneWriter | None = None
        self._tally = Tally()
        self._open = Tally()
        self._committed = offset_range.committed
        self._uncertain: int | None = None
        self._start: int | None = None
        self._reading = False
        self.position = offset_range.start
        self._backoff = FIRST_BACKOFF
        self._reopened = 0
        self._error = ""

    @property
    def partition(self) -> Partition:
        """Which source partition this is."""
        return self.offset_range.partition

    @property
    def running(self) -> bool:
        """Whether records of this partition are wanted now."""
        return self.outcome is None and self._reading

    @property
    def dirty(self) -> bool:
        """Whether there is something to commit: records, or a position beyond control records."""
        return self.running and self.position != self._committed

    @property
    def at_end(self) -> bool:
        """Whether the agreed end is reached."""
        return self.offset_range.end is not None and self.position >= self.offset_range.end

    def open(self) -> None:
        """Fence every earlier owner. Must come before the committed offset is read: see `begin`."""
        self._writer = self._clients.writer(self.partition, self._consumer)
        self._writer.open()

    def begin(self, committed: CommittedOffset | None, now: float) -> None:
        """
        Decide where to start, from the offset that was read after fencing.

        Raises:
            OffsetMoved: somebody moved the offset back or deleted it since the driver planned.
        """
        assert self._writer is not None  # open() came first
        if committed is None:
            if self._committed is not None:
                raise OffsetMoved(self.partition, "the committed offset vanished", self._committed)
            self.position = self.offset_range.start
            # now, so that `latest` means the same after a crash
            self._writer.commit(self.position, str(OffsetMetadata(self.offset_range.topic_id, self.position)))
        elif self._committed is not None and committed.offset < self._committed:
            what = f"the committed offset went back to {committed.offset}"
            raise OffsetMoved(self.partition, what, self._committed)
        else:
            planned = committed.offset == self.offset_range.committed
            self.position = self.offset_range.start if planned else committed.offset
        self._settle()
        self._committed = committed.offset if committed else self.position
        self._start = self.position if self._start is None else self._start
        self.retry_at, self.committed_at = None, now

    def read(self) -> None:
        """Begin to read. For the task's own thread only: what the consumer knows of its partitions is not locked."""
        self._consumer.start(self.partition, self.position)
        self._reading = True

    def _settle(self) -> None:
        """Count a commit whose outcome was unknown, if the offset shows that it happened."""
        if self._uncertain is not None and self.position >= self._uncertain:
            self._tally.add(self._open)
        self._open, self._uncertain = Tally(), None

    def take(
        self, records: int, lines: Lines, dead_letters: Sequence[DeadLetter], reasons: Sequence[str], position: int
    ) -> None:
        """
        Send what became of some records; `position` is the offset behind the last of them.

        Raises:
            Fenced, Transient: from the writer.
        """
        assert self._writer is not None  # only running lanes take
        if len(lines):
            self._writer.send(lines)
        if dead_letters:
            self._writer.send_dead_letters(dead_letters)
        self._open.add(Tally(records, len(lines), Counter(reasons)))
        self.position = position

    def free(self) -> None:
        """Let go of the memory of what was delivered."""
        if self._writer is not None:
            self._writer.free()

    def pass_over(self, position: int) -> None:
        """Move beyond offsets that hold no record for us: control records, aborted and compacted ones."""
        self.position = max(
            self.position, position if self.offset_range.end is None else min(position, self.offset_range.end)
        )

    def commit(self, now: float) -> None:
        """
        Make what was taken count, and replace the writer if its commit was suspiciously slow.

        Raises:
            Fenced, Transient: from the writer.
        """
        assert self._writer is not None  # only running lanes commit
        self._uncertain = self.position
        self._writer.commit(self.position, self._metadata())
        self._uncertain = None
        self._tally.add(self._open)
        self._open = Tally()
        self._committed = self.position
        self.committed_at = now
        self._backoff = FIRST_BACKOFF
        if self._writer.suspect:
            self._drop_writer()
            self._reopened += 1
            self.retry_at = now

    def _metadata(self) -> str:
        since = self.position if self._start is None else self._start
        dead = self._tally.dead.total() + self._open.dead.total()
        return str(OffsetMetadata(self.offset_range.topic_id, since, self._tally.records + self._open.records, dead))

    def give_up(self, error: PartitionError, now: float) -> None:
        """Drop what is open after an error: try again after a back-off, or leave the partition to its new owner."""
        self._drop_writer()
        if isinstance(error, Fenced):
            self.outcome = Outcome.FENCED
        elif isinstance(error, OffsetMoved):
            self.fail(str(error))
        else:
            self._error = str(error)
            self._reopened += 1
            self.retry_at = now + self._backoff
            self._backoff = min(self._backoff * 2, LAST_BACKOFF)

    def fail(self, error: str) -> None:
        """Leave the partition alone for the rest of the round; the driver decides what then."""
        self._drop_writer()
        self.outcome, self._error, self.retry_at = Outcome.FAILED, error, None

    def finish(self) -> None:
        """Stop: everything is committed, or was dropped."""
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
        """Say what is committed, and how it ended."""
        start = self.offset_range.start if self._start is None else self._start
        return Receipt(
            partition=self.partition,
            start=start,
            end=start if self._committed is None else max(start, self._committed),
            records=self._tally.records,
            out=self._tally.out,
            dead=dict(self._tally.dead),
            outcome=self.outcome or Outcome.DONE,
            error=self._error,
            reopened=self._reopened,
        )
