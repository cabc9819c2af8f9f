"""
The states of a lane. What may be called in a state is a method of its type.

        Closed ──open──▶ Opened ──begin──▶ Ready ──commit──▶ Ready ──▶ Ended    it reached its end or the deadline
           ▲               │ Transient       │ Transient
           └── back-off ◀──┴─────────────────┤          new writer, restarts at the committed offset;
                                             │          after Refused with fewer records (`search`)
                                             └──▶ Ended    Fenced, Blocked: uncommitted work is dropped

A method that returns a state is a `Blocking` call: it may wait for Kafka. `app.executor.calls` runs it in a thread, one
at a time for each lane, and the lane enters the state that it returns. Everything else runs in the task's own thread.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

from app.errors import CorruptOffset, OffsetMoved, TooManyDeadLetters, Transient, WinnowError
from app.executor.cleanse import Cleansed
from app.executor.clients import ClientFactory, LaneWriter
from app.executor.lane.ledger import FIRST_BACKOFF, Ledger
from app.model import NOBODY, CommittedOffset, OffsetRange, Outcome, Partition, Receipt
from app.offsets.claim import yield_to_later
from app.offsets.contract import OffsetStore
from app.offsets.metadata import OffsetMetadata
from app.offsets.times import TaskReport


@dataclass(eq=False)
class WithoutWriter:
    """A state in which at most a retired writer is left, which must be discarded."""

    ledger: Ledger
    writer: LaneWriter | None = None

    def new_writer(self, clients: ClientFactory, offsets: OffsetStore) -> LaneWriter:
        """
        Make a writer in place of the retired one, whose producer has the same transactional id.

        Raises Transient if the lane was abandoned: the writer would fence the next owner.
        """
        self.discard()
        self.writer = writer = clients.writer(self.ledger.partition, offsets)
        if self.ledger.abandoned:
            raise Transient(self.ledger.partition, "the call was abandoned")
        return writer

    def discard(self) -> Self:
        """Discard the retired writer, which aborts its open transaction."""
        if self.writer is not None:
            writer, self.writer = self.writer, None
            writer.discard()
        return self


@dataclass(eq=False)
class Closed(WithoutWriter):
    """Waits to open. `retry_at` is the end of the back-off; None before the first attempt."""

    retry_at: float | None = None

    def reopens(self, now: float) -> bool:
        return self.retry_at is not None and self.retry_at <= now

    def open(self, clients: ClientFactory, offsets: OffsetStore) -> Opened:
        """Fence every earlier owner. Read the committed offset for `begin` only after this."""
        writer = self.new_writer(clients, offsets)
        writer.open()
        return Opened(self.ledger, writer)


@dataclass(eq=False)
class Opened:
    """Has fenced every earlier owner, but does not know yet where to start."""

    ledger: Ledger
    writer: LaneWriter

    def end_pending(self, committed: CommittedOffset | None) -> None:
        """
        End a transaction that blocks reading the committed offset. Raises what the writer raises.

        Without an offset in Kafka, the one that the driver knows shows where that transaction began.
        """
        self.writer.end_pending(self.ledger.committed if committed is None else committed.offset)

    def begin(self, committed: CommittedOffset | None, now: float, *, claim: bool = False) -> Ready | Closed:
        """
        Decide where to start, from the offset that was read after fencing.

        Storing the start, or a `claim` in our name, is a commit. If it was suspiciously slow, the writer is replaced.

        Raises:
            OffsetMoved: the offset was moved back or deleted after the driver planned.
            CorruptOffset: the stored value is not an offset.
            TooManyDeadLetters: the breaker of this run has stopped the partition here.
            Fenced, Transient: from the writer.
        """
        ledger = self.ledger
        refuse_if_taken(ledger, committed)
        if committed is not None or ledger.stored or not ledger.range.never_read:
            _refuse_moved_offset(ledger.partition, ledger.committed, committed)
        ledger.began_with = committed
        ledger.position = _first_position(ledger.range, committed, stored=ledger.stored)
        ledger.progress = ledger.progress.resolved(ledger.position)
        self.writer.settle(committed)
        _refuse_tripped(ledger, committed)
        ledger.metadata = OffsetMetadata.continuing(committed, ledger.position, ledger.range, ledger.owner)
        ledger.last_read = ledger.metadata.read
        self._store_start(committed, claim=claim)
        ledger.start = ledger.position if ledger.start is None else ledger.start
        ledger.reach = ledger.position
        ledger.search.committed(ledger.position)
        ledger.committed_at = now
        return Ready(ledger, self.writer).unless_suspect(now)

    def _store_start(self, committed: CommittedOffset | None, *, claim: bool) -> None:
        """Store a start that has no committed offset yet, so that `latest` means the same after a crash."""
        ledger = self.ledger
        goes_back = committed is not None and ledger.position < committed.offset
        if committed is not None and not goes_back and (ledger.stored or not claim):
            ledger.committed = committed.offset
            return
        # A store refuses a commit that goes back, as out.of.range may decide.
        store = self.writer.reset if goes_back else self.writer.commit
        store(ledger.position, str(ledger.metadata))
        ledger.committed, ledger.stored = ledger.position, True


def refuse_if_taken(ledger: Ledger, committed: CommittedOffset | None) -> None:
    """Raise Fenced if a later run has committed since this lane did, or since the plan. Opening would fence it."""
    if ledger.stored or committed != ledger.began_with:
        yield_to_later(ledger.partition, committed, ledger.owner)


def _refuse_moved_offset(partition: Partition, known: int | None, committed: CommittedOffset | None) -> None:
    """Require that the committed offset still exists and is not below the one that the driver saw."""
    if committed is None:
        if known is not None:
            raise OffsetMoved(partition, "the committed offset vanished", known)
        return
    if committed.corrupt:
        raise CorruptOffset(partition, committed.corrupt, known)
    if known is not None and committed.offset < known:
        raise OffsetMoved(partition, f"the committed offset went back to {committed.offset}", known)


def _refuse_tripped(ledger: Ledger, committed: CommittedOffset | None) -> None:
    """
    Require that the breaker has not stopped the partition at this offset in this run of the service.

    The driver does not know it if the task's receipts were lost.
    """
    found = OffsetMetadata.of(committed)
    ours = found.owner == ledger.owner != NOBODY
    if found.tripped and ours and committed is not None and committed.offset == ledger.position:
        cure = TooManyDeadLetters(ledger.partition, "").cure  # the stored reason ends with it
        raise TooManyDeadLetters(ledger.partition, found.blocked.removesuffix(f": {cure}"))


def _first_position(offset_range: OffsetRange, committed: CommittedOffset | None, *, stored: bool) -> int:
    """
    Return the planned start if the offset is still the planned one and not `stored` since; otherwise the offset.

    If the planned start is below the offset, an earlier attempt may have come to the same offset again.
    """
    if committed is None:
        return offset_range.start
    records = OffsetMetadata.of(committed).counts.records
    again = offset_range.counted is not None and offset_range.counted != records
    return committed.offset if stored or again or committed.offset != offset_range.committed else offset_range.start


@dataclass(eq=False)
class Ready:
    """Accepts records: earlier owners are fenced and the start is known."""

    ledger: Ledger
    writer: LaneWriter
    _reads: bool = False

    @property
    def reads(self) -> bool:
        """Whether the consumer delivers what comes next."""
        return self._reads and self.ledger.reading

    @property
    def dirty(self) -> bool:
        """
        Whether there is something to commit: records, or a position behind control records.

        The position alone does not tell: a record may have taken the offset of a control record that was lost.
        """
        return self.ledger.position != self.ledger.committed or self.ledger.progress.open.records > 0

    def read(self) -> None:
        """
        Start reading from the position if records are wanted. Raises what the consumer raises.

        Call it only between two chunks: the rest of an earlier chunk does not continue from the position.
        """
        if not self.reads and not self.ledger.at_stop:
            self.ledger.read()
            self._reads = True

    def take(self, cleansed: Cleansed) -> None:
        """Send the results for some records; raises Fenced or Transient, also for records that were already taken."""
        ledger, last = self.ledger, self.ledger.last_read
        # Offsets between the last record and the position, of control records, may be reused (KIP-320).
        behind = ledger.position if last is None else last.after
        # librdkafka has delivered records twice (#4261, #4637). The lane then reads again from its committed offset.
        if cleansed.records and cleansed.start < behind:
            cause = f"the consumer delivered records from offset {cleansed.start} on again"
            raise Transient(ledger.partition, cause, behind)
        ledger.reach = cleansed.position
        if len(cleansed.lines):
            self.writer.send(cleansed.lines)
        if cleansed.dead_letters:
            self.writer.send_dead_letters(cleansed.dead_letters)
        ledger.progress = ledger.progress.taken(cleansed.counts)
        ledger.position, ledger.last_read = cleansed.position, cleansed.read
        self._hold_at_stop()

    def pass_over(self, position: int) -> None:
        """Move past offsets without records: control, aborted and compacted records."""
        stop = self.ledger.stop
        self.ledger.position = max(self.ledger.position, position if stop is None else min(position, stop))
        self._hold_at_stop()

    def _hold_at_stop(self) -> None:
        """Drop what was fetched past the stop. Reading resumes there once the search has set the next stop."""
        if self.ledger.at_stop:
            self.ledger.hold()

    def send_rest(self) -> Self:
        """Send what did not fit into the queue. Raises what `take` raises."""
        self.writer.send_rest()
        return self

    def commit(self, now: float, report: TaskReport | None = None) -> Ready | Closed:
        """
        Commit what was taken, with a `report` of the task's times in the offset's metadata.

        The writer is replaced if the commit was suspiciously slow. Raises Fenced or Transient, from the writer.
        """
        ledger = self.ledger
        ledger.progress = ledger.progress.committing(ledger.position)
        counts = ledger.metadata.counts + ledger.progress.open
        metadata = replace(ledger.metadata, counts=counts, read=ledger.last_read, report=report)
        self.writer.commit(ledger.position, str(metadata))
        ledger.progress = ledger.progress.committed()
        ledger.metadata = metadata
        ledger.committed, ledger.stored = ledger.position, True
        ledger.committed_at = now
        ledger.backoff = FIRST_BACKOFF
        ledger.search.committed(ledger.position)
        ledger.trouble.over(ledger.position)
        return self.unless_suspect(now)

    def unless_suspect(self, now: float) -> Ready | Closed:
        """Let the lane reopen with a new writer if a request of the last commit may have been sent twice."""
        if not self.writer.suspect:
            return self
        self.ledger.reopened += 1
        return Closed(self.ledger, self.writer, now).discard()


@dataclass(eq=False, kw_only=True)
class Ended(WithoutWriter):
    """Does nothing more in this round."""

    outcome: Outcome
    error: str = ""
    cure: str = ""
    tripped: bool = False

    def receipt(self) -> Receipt:
        ledger, done = self.ledger, self.ledger.progress.done
        start = ledger.range.start if ledger.start is None else ledger.start
        return Receipt(
            partition=ledger.partition,
            start=start,
            end=start if ledger.committed is None else max(start, ledger.committed),
            records=done.records,
            out=done.out,
            dead=dict(done.dead),
            filtered=dict(done.filtered),
            outcome=self.outcome,
            error=self.error,
            cure=self.cure,
            reopened=ledger.reopened,
            metadata=str(ledger.metadata) if ledger.start is not None else "",
            tripped=self.tripped,
        )

    def tell(self, clients: ClientFactory, offsets: OffsetStore) -> Self:
        """
        Commit the offset again with the reason, so that `winnow lag` can show it. The next commit removes the reason.

        If the first records are to blame, the offset may still be an earlier run's. If a later run has taken over the
        partition, its offset is left alone. If Kafka is unavailable, nothing is stored.
        """
        writer = self.new_writer(clients, offsets)
        with contextlib.suppress(WinnowError):
            self._tell(writer, offsets)
        return self.discard()

    def _tell(self, writer: LaneWriter, offsets: OffsetStore) -> None:
        if self._committed(offsets) is None:
            return
        writer.open()
        if (committed := self._committed(offsets)) is None:
            return
        writer.settle(committed)
        reason = ": ".join(each for each in (self.error, self.cure) if each)
        metadata = replace(self.ledger.metadata, blocked=reason, tripped=self.tripped)
        writer.commit(committed.offset, str(metadata))

    def _committed(self, offsets: OffsetStore) -> CommittedOffset | None:
        """
        Return the lane's committed offset; None if the lane never began or the offset has moved.

        Raises Fenced if a later run has committed it since.
        """
        receipt, partition = self.receipt(), self.ledger.partition
        found = offsets.load([partition], stable=True).get(partition)
        refuse_if_taken(self.ledger, found)
        return found if found is not None and found.offset == receipt.end and receipt.metadata else None


State = Closed | Opened | Ready | Ended
Blocking = Callable[[], State]
