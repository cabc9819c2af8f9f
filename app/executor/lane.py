"""
One source partition on its way through a task: its position, what is open, what is committed.

        open ──▶ running ──commit──▶ running ──▶ done        it reached its end or the deadline
          ▲         │ Transient         │
          └─ back-off ◀─────────────────┤                    a new producer, from the committed offset; after
                    │                   │                    Refused with fewer records (`app.executor.search`)
                    │ Fenced, Blocked   ▼
                    └──────────────▶ fenced / failed / blocked     dropped; nothing that was open counts

`open`, `begin`, `commit`, `send_rest` and `discard` may wait for Kafka; only one of them runs at a time, in any thread.
Everything else belongs to the task's own thread. Where one of them does not return, a copy of the lane goes on.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace

from app.errors import Blocked, Fenced, OffsetMoved, PartitionError, Refused, Transient, Truncated
from app.executor.cleansed import Cleansed
from app.executor.clients import C, Clients, LaneWriter
from app.executor.progress import Progress
from app.executor.reading import Reading
from app.executor.search import Search, refused_cure
from app.executor.start import first_position, refuse_surprise
from app.executor.trouble import Trouble
from app.model import NOBODY, CommittedOffset, OffsetRange, Outcome, Owner, Partition, Receipt
from app.offsets.claim import yield_to_later
from app.offsets.contract import OffsetStore
from app.offsets.metadata import OffsetMetadata
from app.offsets.times import TaskReport

FIRST_BACKOFF, LAST_BACKOFF = 0.25, 2.0  # short, because readers wait for it too after an outage


class Lane:
    """Owns the writer of one source partition, and alone decides about its next offset."""

    def __init__(
        self, offset_range: OffsetRange, clients: Clients[C], consumer: C, offsets: OffsetStore, owner: Owner = NOBODY
    ) -> None:
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
        self.stored = False
        """Whether this task has moved the offset."""
        self._owner = owner
        self._metadata = OffsetMetadata(offset_range.topic_id, owner=owner)
        """What the committed offset stands for; its counts go on over tasks."""
        self.progress = Progress()
        self._search = Search()
        self._reach = offset_range.start
        """The offset after the last record that was handed to the writer, taken or refused."""
        self._start: int | None = None
        self.ready = False
        """Whether the writer takes records: it has fenced the others, and the start is decided."""
        self._spent: LaneWriter | None = None
        """A writer that is no longer used, and not discarded yet."""
        self._reading = Reading(offset_range, consumer)
        self._backoff = FIRST_BACKOFF
        self._reopened = 0
        self._error = self._cure = self._refused_because = ""
        self._trouble = Trouble(offset_range.partition)
        self._cut: int | None = None

    @property
    def partition(self) -> Partition:
        """The source partition."""
        return self.range.partition

    @property
    def running(self) -> bool:
        """Whether records of this partition are wanted now."""
        return self.ready and self._reading.active

    @property
    def dirty(self) -> bool:
        """Whether there is something to commit: records, or a position after control records."""
        return self.ready and self.position != self._committed

    @property
    def goes_on(self) -> bool:
        """Whether it takes records, and there are more to come."""
        return self.ready and self._reading.active and not self.at_end

    def reopens(self, now: float) -> bool:
        """Whether its back-off is over."""
        return self.retry_at is not None and self.retry_at <= now

    @property
    def opened(self) -> bool:
        """Whether earlier owners are fenced, but the start is not decided."""
        return self._writer is not None and not self.ready

    @property
    def full(self) -> bool:
        """Whether some of what it took found no room yet: `send_rest` waits for it."""
        return self._writer is not None and self._writer.full

    @property
    def waiting(self) -> int:
        """How many records it has sent that are not acknowledged."""
        writer = self._writer
        return 0 if writer is None else writer.waiting

    @property
    def spent(self) -> bool:
        """Whether a writer waits to be discarded."""
        return self._spent is not None

    @property
    def troubled(self) -> bool:
        """Whether something has failed since the last commit."""
        return self._backoff > FIRST_BACKOFF

    @property
    def at_end(self) -> bool:
        """Whether the agreed end is reached."""
        return self.range.end is not None and self.position >= self.range.end

    @property
    def stop(self) -> int | None:
        """The offset that no record is taken from before the next commit: the agreed end, or one that is nearer."""
        return min((stop for stop in (self.range.end, self._search.stop) if stop is not None), default=None)

    @property
    def at_stop(self) -> bool:
        """Whether the search for a refused record waits for a commit."""
        return self.ready and self._search.stop is not None and self.position >= self._search.stop

    @property
    def in_backlog(self) -> bool:
        """Whether its next record waited already when the group began with the partition."""
        return self.position < self._metadata.backlog

    @property
    def refusal(self) -> str | None:
        """Why Kafka refuses the next record, if that was found out: it must become a dead letter."""
        return None if self._search.found is None else self._refused_because

    def open(self) -> None:
        """Fence every earlier owner. Only then may the committed offset be read that `begin` takes."""
        self.discard()
        self._writer = self._clients.writer(self.partition, self._offsets)
        self._writer.open()

    def end_pending(self, committed: CommittedOffset | None) -> None:
        """End a transaction that keeps the committed offset from being read; raises what the writer does."""
        assert self._writer is not None  # open() came first
        self._writer.end_pending(None if committed is None else committed.offset)

    def refuse_if_taken(self, committed: CommittedOffset | None) -> None:
        """Raise Fenced if a later run has committed since we have: it must not be fenced back."""
        if self.stored:
            yield_to_later(self.partition, committed, self._owner)

    def begin(self, committed: CommittedOffset | None, now: float, *, claim: bool = False) -> None:
        """
        Decide where to start, from the offset that was read after fencing.

        Storing the start, or a `claim` in our name, is a commit: if it was suspiciously slow, the writer is replaced.

        Raises:
            OffsetMoved: somebody moved the offset back or deleted it after the driver planned.
            CorruptOffset: what is stored is not an offset any more.
            Fenced, Transient: from the writer.
        """
        assert self._writer is not None  # open() came first
        self.refuse_if_taken(committed)
        refuse_surprise(self.partition, self._committed, committed)
        self.position = first_position(self.range, committed, stored=self.stored)
        self.progress = self.progress.resolved(self.position)
        self._writer.settle(committed)
        self._metadata = OffsetMetadata.continuing(committed, self.position, self.range, self._owner)
        self._reading.last = self._metadata.read
        self._store_start(committed, claim=claim)
        self._start = self.position if self._start is None else self._start
        self._reach = self.position
        self._search.committed(self.position)
        self.retry_at, self.committed_at = None, now
        self.ready = True
        self._replace_suspect_writer(now)

    def _store_start(self, committed: CommittedOffset | None, *, claim: bool) -> None:
        """Store a start that no offset stands for yet, so that `latest` means the same after a crash."""
        assert self._writer is not None  # open() came first
        goes_back = committed is not None and self.position < committed.offset
        if committed is not None and not goes_back and (self.stored or not claim):
            self._committed = committed.offset
            return
        # Where out.of.range decided to go back, a store would refuse a commit.
        store = self._writer.reset if goes_back else self._writer.commit
        store(self.position, str(self._metadata))
        self._committed, self.stored = self.position, True

    def read(self) -> None:
        """
        Read from the position on while records are wanted, and not otherwise.

        Only the task's own thread may, and only between two chunks: the consumer's table of partitions is not locked,
        and what is left of an earlier chunk does not follow the position. Raises what the consumer does.
        """
        if self.ready and not self._reading.active and not self.at_stop:
            self._reading.start(self.position)
        elif not self.ready:
            self.hold()

    def hold(self) -> None:
        """Read no more for now; what was fetched ahead is dropped."""
        self._reading.stop()

    def take(self, cleansed: Cleansed) -> None:
        """
        Send what became of some records.

        Raises:
            Fenced, Transient: from the writer.
        """
        assert self._writer is not None  # only running lanes take
        self._reach = cleansed.position
        if len(cleansed.lines):
            self._writer.send(cleansed.lines)
        if cleansed.dead_letters:
            self._writer.send_dead_letters(cleansed.dead_letters)
        self.progress = self.progress.taken(cleansed.counts)
        self.position, self._reading.last = cleansed.position, cleansed.read
        self._hold_at_stop()

    def send_rest(self) -> None:
        """Send what found no room; raises what `take` does."""
        if self._writer is not None:
            self._writer.send_rest()

    def free(self) -> None:
        """Free the memory of what was delivered."""
        if self._writer is not None:
            self._writer.free()

    def pass_over(self, position: int) -> None:
        """Move past offsets that hold no record for us: control records, aborted and compacted ones."""
        stop = self.stop
        self.position = max(self.position, position if stop is None else min(position, stop))
        self._hold_at_stop()

    def _hold_at_stop(self) -> None:
        """Read again from the stop when the search knows the next one: what follows was dropped."""
        if self.at_stop:
            self.hold()

    def commit(self, now: float, report: TaskReport | None = None) -> None:
        """
        Make what was taken count, and replace the writer if its commit was suspiciously slow.

        A `report` of what the task spends its time on goes beside the offset.

        Raises:
            Fenced, Transient: from the writer.
        """
        assert self._writer is not None  # only running lanes commit
        self.progress = self.progress.committing(self.position)
        counts = self._metadata.counts + self.progress.open
        metadata = replace(self._metadata, counts=counts, read=self._reading.last, report=report)
        self._writer.commit(self.position, str(metadata))
        self.progress = self.progress.committed()
        self._metadata = metadata
        self._committed, self.stored = self.position, True
        self.committed_at = now
        self._backoff = FIRST_BACKOFF
        self._search.committed(self.position)
        self._trouble.over(self.position)
        self._replace_suspect_writer(now)

    def _replace_suspect_writer(self, now: float) -> None:
        """Open the lane again with a new writer if the last commit may have been sent twice."""
        if self._writer is not None and self._writer.suspect:
            self._retire_writer()
            self.discard()
            self._reopened += 1
            self.retry_at = now

    def give_up(self, error: PartitionError, now: float) -> None:
        """Drop what is open after an error: try again after a back-off, or leave the partition to others."""
        self._retire_writer()
        if self.outcome is not None:  # abandoned meanwhile
            return
        if isinstance(error, Fenced):
            self.outcome = Outcome.FENCED
            return
        self._trouble.happened(error, self.range.start if self._committed is None else self._committed, now)
        if isinstance(error, OffsetMoved):
            self.fail(str(error))
        elif isinstance(error, Truncated):
            self._was_cut(error, now)
        elif isinstance(error, Blocked):
            self.fail(error.cause, Outcome.BLOCKED, error.cure)
        elif isinstance(error, Refused) and self._search.found is not None:
            cure = refused_cure(self.partition, self._search.found)
            self.fail(f"Kafka rejects both the record and its dead letter: {error.cause}", Outcome.BLOCKED, cure)
        else:
            self._retry(error, now)

    def _was_cut(self, error: Truncated, now: float) -> None:
        """Wait for a person if what is committed was cut off; what was only read ahead is read again."""
        if self._reading.lost_its_start(error):
            self._cut = error.cut
            final = Truncated(self.partition, self.position, error.cut)
            self.fail(final.cause, Outcome.BLOCKED, final.cure)
        else:
            self._retry(error, now)

    def _retry(self, error: PartitionError, now: float) -> None:
        self._error = str(error)
        self._reopened += 1
        self.retry_at = now + self._backoff
        self._backoff = min(self._backoff * 2, LAST_BACKOFF)
        if isinstance(error, Refused):
            self._refused_because = error.cause
            if self._committed is not None:  # otherwise nothing was taken
                self._search.refused(self._committed, self._reach)
            if self._search.stop is not None:
                self.retry_at = now  # a search does not wait between its steps

    def fail(self, error: str, outcome: Outcome = Outcome.FAILED, cure: str = "") -> None:
        """Leave the partition alone: for the rest of the round, or blocked, until a person has acted."""
        self.outcome, self._error, self._cure, self.retry_at = outcome, error, cure, None

    def finish(self) -> None:
        """Stop: everything was committed or dropped."""
        self._retire_writer()
        self.hold()
        if self.outcome is None:
            self.outcome = Outcome.FAILED if self.retry_at is not None and self._error else Outcome.DONE

    def abandon(self) -> None:
        """Stop although a call of this lane hangs in another thread: nothing that it does counts any more."""
        if self.outcome is None:
            self.fail(self._error or f"{self.partition}: the last commit did not finish in time")
        self.hold()
        if (writer := self._writer) is not None:
            writer.abandon()

    def successor(self, call: str, now: float) -> Lane:
        """
        Return the lane that goes on in place of this one, a call of which does not return in its time.

        It opens with a new producer, which fences the old one and ends its transaction, so that readers need not wait
        for the call. A commit that happened all the same shows in the committed offset.
        """
        successor = copy(self)
        self.abandon()
        successor.take_over(call, now)
        return successor

    def take_over(self, call: str, now: float) -> None:
        """Go on as the copy of a lane: share nothing with it that the thread of its call may touch."""
        self._search, self._trouble = copy(self._search), copy(self._trouble)
        self._reading = Reading(self.range, self._consumer)
        self._writer = self._spent = None
        self.give_up(Transient(self.partition, f"{call} did not return; replacing the producer"), now)

    def _retire_writer(self) -> None:
        """Use the writer no more. What follows on what it dropped must not be taken: it would be lost."""
        self.ready = False
        self._reading.forget()
        if self._writer is not None:
            self._spent, self._writer = self._writer, None

    def discard(self) -> None:
        """Discard the writer that is no longer used, which aborts what it left open."""
        if self.outcome is not None:
            self._retire_writer()
        if self._spent is not None:
            writer, self._spent = self._spent, None
            writer.discard()

    def receipt(self) -> Receipt:
        """Return what is committed, and how it ended."""
        start = self.range.start if self._start is None else self._start
        return Receipt(
            partition=self.partition,
            start=start,
            end=start if self._committed is None else max(start, self._committed),
            records=self.progress.done.records,
            out=self.progress.done.out,
            dead=dict(self.progress.done.dead),
            outcome=self.outcome or Outcome.DONE,
            error=self._error,
            cure=self._cure,
            cut=self._cut,
            reopened=self._reopened,
            metadata=str(self._metadata) if self._start is not None else "",
        )
