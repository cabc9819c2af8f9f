"""
One source partition inside a task: its position, its open transaction and its committed offset.

        open ──▶ running ──commit──▶ running ──▶ done           it reached its end or the deadline
          ▲         │ Transient         │
          └─ back-off ◀─────────────────┤                       new producer, restarts at the committed offset;
                    │                   │                       after Refused with fewer records (`search`)
                    │ Fenced, Blocked   ▼
                    └──────────────▶ fenced / failed / blocked     uncommitted work is dropped

`open`, `begin`, `commit`, `send_rest` and `discard` may block on Kafka. They may run in any thread, one at a time.
Everything else runs in the task's own thread. If one of them does not return, a copy of the lane replaces it.
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
from app.executor.start import first_position, refuse_moved_offset
from app.executor.trouble import Trouble
from app.model import NOBODY, CommittedOffset, OffsetRange, Outcome, Owner, Partition, Receipt
from app.offsets.claim import yield_to_later
from app.offsets.contract import OffsetStore
from app.offsets.metadata import OffsetMetadata
from app.offsets.times import TaskReport

FIRST_BACKOFF, LAST_BACKOFF = 0.25, 2.0  # short, because after an outage readers wait for it too


class Lane:
    """Owns the writer of one source partition. Nothing else decides its next offset."""

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
        """Whether this task has committed an offset."""
        self._owner = owner
        self._metadata = OffsetMetadata(offset_range.topic_id, owner=owner)
        """The metadata of the committed offset. Its counts continue across tasks."""
        self.progress = Progress()
        self._search = Search()
        self._reach = offset_range.start
        """The offset after the last record handed to the writer, whether it was accepted or refused."""
        self._start: int | None = None
        self.ready = False
        """Whether the writer accepts records: earlier owners are fenced and the start is known."""
        self._spent: LaneWriter | None = None
        """A retired writer that still has to be discarded."""
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
        """Whether the consumer should deliver records now."""
        return self.ready and self._reading.active

    @property
    def dirty(self) -> bool:
        """Whether there is something to commit: records, or a position behind control records."""
        return self.ready and self.position != self._committed

    @property
    def goes_on(self) -> bool:
        """Whether it accepts records and has not reached its end."""
        return self.ready and self._reading.active and not self.at_end

    def reopens(self, now: float) -> bool:
        """Whether its back-off is over."""
        return self.retry_at is not None and self.retry_at <= now

    @property
    def opened(self) -> bool:
        """Whether earlier owners are fenced but the start is not known yet."""
        return self._writer is not None and not self.ready

    @property
    def full(self) -> bool:
        """Whether records are left that did not fit into the queue; `send_rest` sends them."""
        return self._writer is not None and self._writer.full

    @property
    def waiting(self) -> int:
        """The number of sent records that are not acknowledged."""
        writer = self._writer
        return 0 if writer is None else writer.waiting

    @property
    def spent(self) -> bool:
        """Whether a retired writer has to be discarded."""
        return self._spent is not None

    @property
    def troubled(self) -> bool:
        """Whether something has failed since the last commit."""
        return self._backoff > FIRST_BACKOFF

    @property
    def at_end(self) -> bool:
        """Whether it has reached the agreed end."""
        return self.range.end is not None and self.position >= self.range.end

    @property
    def stop(self) -> int | None:
        """The offset to commit at before reading on: the agreed end, or a nearer one set by the search."""
        return min((stop for stop in (self.range.end, self._search.stop) if stop is not None), default=None)

    @property
    def at_stop(self) -> bool:
        """Whether the search for a refused record needs a commit before reading on."""
        return self.ready and self._search.stop is not None and self.position >= self._search.stop

    @property
    def in_backlog(self) -> bool:
        """Whether its next record was already there when the group started on the partition."""
        return self.position < self._metadata.backlog

    @property
    def refusal(self) -> str | None:
        """Why Kafka refuses the next record, which must become a dead letter; None if it is not known to refuse it."""
        return None if self._search.found is None else self._refused_because

    def open(self) -> None:
        """Fence every earlier owner. Read the committed offset for `begin` only after this."""
        self.discard()
        self._writer = self._clients.writer(self.partition, self._offsets)
        self._writer.open()

    def end_pending(self, committed: CommittedOffset | None) -> None:
        """End a transaction that blocks reading the committed offset. Raises what the writer raises."""
        assert self._writer is not None  # open() came first
        self._writer.end_pending(None if committed is None else committed.offset)

    def refuse_if_taken(self, committed: CommittedOffset | None) -> None:
        """Raise Fenced if a later run has committed since this lane did. Opening would fence that run."""
        if self.stored:
            yield_to_later(self.partition, committed, self._owner)

    def begin(self, committed: CommittedOffset | None, now: float, *, claim: bool = False) -> None:
        """
        Decide where to start, from the offset that was read after fencing.

        Storing the start, or a `claim` in our name, is a commit. If it was suspiciously slow, the writer is replaced.

        Raises:
            OffsetMoved: the offset was moved back or deleted after the driver planned.
            CorruptOffset: the stored value is not an offset.
            Fenced, Transient: from the writer.
        """
        assert self._writer is not None  # open() came first
        self.refuse_if_taken(committed)
        refuse_moved_offset(self.partition, self._committed, committed)
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
        """Store a start that has no committed offset yet, so that `latest` means the same after a crash."""
        assert self._writer is not None  # open() came first
        goes_back = committed is not None and self.position < committed.offset
        if committed is not None and not goes_back and (self.stored or not claim):
            self._committed = committed.offset
            return
        # A store refuses a commit that goes back, as out.of.range may decide.
        store = self._writer.reset if goes_back else self._writer.commit
        store(self.position, str(self._metadata))
        self._committed, self.stored = self.position, True

    def read(self) -> None:
        """
        Start reading from the position if records are wanted, stop otherwise. Raises what the consumer raises.

        Call it only from the task's own thread and only between two chunks: the consumer's partition table has no lock,
        and the rest of an earlier chunk does not continue from the position.
        """
        if self.ready and not self._reading.active and not self.at_stop:
            self._reading.start(self.position)
        elif not self.ready:
            self.hold()

    def hold(self) -> None:
        """Stop reading for now and drop what was fetched ahead."""
        self._reading.stop()

    def take(self, cleansed: Cleansed) -> None:
        """Send the results for some records; raises Fenced or Transient, also for records that were already taken."""
        assert self._writer is not None  # only running lanes take
        last = self._reading.last  # offsets between it and the position, of control records, may be reused (KIP-320)
        cleansed.refuse_repeats(self.partition, self.position if last is None else last.after)
        self._reach = cleansed.position
        if len(cleansed.lines):
            self._writer.send(cleansed.lines)
        if cleansed.dead_letters:
            self._writer.send_dead_letters(cleansed.dead_letters)
        self.progress = self.progress.taken(cleansed.counts)
        self.position, self._reading.last = cleansed.position, cleansed.read
        self._hold_at_stop()

    def send_rest(self) -> None:
        """Send what did not fit into the queue. Raises what `take` raises."""
        if self._writer is not None:
            self._writer.send_rest()

    def free(self) -> None:
        """Free the memory of delivered records."""
        if self._writer is not None:
            self._writer.free()

    def pass_over(self, position: int) -> None:
        """Move past offsets without records: control, aborted and compacted records."""
        stop = self.stop
        self.position = max(self.position, position if stop is None else min(position, stop))
        self._hold_at_stop()

    def _hold_at_stop(self) -> None:
        """Drop what was fetched past the stop. Reading resumes there once the search has set the next stop."""
        if self.at_stop:
            self.hold()

    def commit(self, now: float, report: TaskReport | None = None) -> None:
        """
        Commit what was taken, with a `report` of the task's times in the offset's metadata.

        The writer is replaced if the commit was suspiciously slow.

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
        """Reopen the lane with a new writer if a request of the last commit may have been sent twice."""
        if self._writer is not None and self._writer.suspect:
            self._retire_writer()
            self.discard()
            self._reopened += 1
            self.retry_at = now

    def give_up(self, error: PartitionError, now: float) -> None:
        """Drop uncommitted work after an error, then either retry after a back-off or end the lane."""
        self._retire_writer()
        if self.outcome is not None:  # abandoned in the meantime
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
        """Block if the committed offset was cut off. If only the read-ahead was, read it again."""
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
            if self._committed is not None:  # otherwise nothing was sent
                self._search.refused(self._committed, self._reach)
            if self._search.stop is not None:
                self.retry_at = now  # a search retries at once

    def fail(self, error: str, outcome: Outcome = Outcome.FAILED, cure: str = "") -> None:
        """End the lane: failed for the rest of the round, or blocked until an operator acts."""
        self.outcome, self._error, self._cure, self.retry_at = outcome, error, cure, None

    def finish(self) -> None:
        """Stop, once everything is committed or dropped."""
        self._retire_writer()
        self.hold()
        if self.outcome is None:
            self.outcome = Outcome.FAILED if self.retry_at is not None and self._error else Outcome.DONE

    def abandon(self) -> None:
        """Stop although a call of this lane hangs in another thread. Its result no longer counts."""
        if self.outcome is None:
            self.fail(self._error or f"{self.partition}: the last commit did not finish in time")
        self.hold()
        if (writer := self._writer) is not None:
            writer.abandon()

    def successor(self, call: str, now: float) -> Lane:
        """
        Return a copy that replaces this lane, one of whose calls has not returned in time.

        Its new producer fences the old one and ends the old transaction, so readers need not wait for the call. If a
        commit succeeded anyway, the committed offset shows it.
        """
        successor = copy(self)
        self.abandon()
        successor.take_over(call, now)
        return successor

    def take_over(self, call: str, now: float) -> None:
        """Continue as the copy of a lane, sharing nothing that the thread of its call may touch."""
        self._search, self._trouble = copy(self._search), copy(self._trouble)
        self._reading = Reading(self.range, self._consumer)
        self._writer = self._spent = None
        self.give_up(Transient(self.partition, f"{call} did not return; replacing the producer"), now)

    def _retire_writer(self) -> None:
        """Retire the writer. Records behind those it dropped must not be taken, or the dropped ones would be lost."""
        self.ready = False
        self._reading.forget()
        if self._writer is not None:
            self._spent, self._writer = self._writer, None

    def discard(self) -> None:
        """Discard the retired writer, which aborts its open transaction."""
        if self.outcome is not None:
            self._retire_writer()
        if self._spent is not None:
            writer, self._spent = self._spent, None
            writer.discard()

    def receipt(self) -> Receipt:
        """Return what was committed and how the lane ended."""
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
