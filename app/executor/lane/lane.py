"""
One source partition inside a task, as the task's own thread sees it: in one of its `states`, which share a `ledger`.

If a blocking call does not return, a copy of the lane replaces it.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace

from app.errors import (
    Blocked,
    Fenced,
    OffsetMoved,
    PartitionError,
    Refused,
    TooManyDeadLetters,
    Transient,
    Truncated,
    Undelivered,
    Unreachable,
)
from app.executor.clients import SourceConsumer
from app.executor.lane.ledger import LAST_BACKOFF, Ledger
from app.executor.lane.search import refused_cure
from app.executor.lane.states import Blocking, Closed, Ended, Ready, State
from app.model import NOBODY, OffsetRange, Outcome, Owner


class Lane:
    """Owns the writer of one source partition. Nothing else decides its next offset."""

    def __init__(self, offset_range: OffsetRange, consumer: SourceConsumer, owner: Owner = NOBODY) -> None:
        self.partition = offset_range.partition
        self.ledger = Ledger(offset_range, consumer, owner)
        self.state: State = Closed(self.ledger)

    @property
    def outcome(self) -> Outcome | None:
        """How it ended; None if it has not."""
        return self.state.outcome if isinstance(self.state, Ended) else None

    @property
    def ready(self) -> Ready | None:
        """Its state, if it accepts records."""
        return self.state if isinstance(self.state, Ready) else None

    @property
    def running(self) -> Ready | None:
        """Its state, if the consumer should deliver records now."""
        ready = self.ready
        return ready if ready is not None and ready.reads else None

    def hold(self) -> None:
        self.ledger.hold()

    def run(self, call: Blocking, clock: Callable[[], float]) -> None:
        """Run a call in its thread and enter the state that it leads to."""
        held = self.state
        try:
            after = call()
        except (PartitionError, Unreachable) as error:  # unreachable: no client can be made now
            failure = error if isinstance(error, PartitionError) else Transient(self.partition, str(error))
            after = held if self.outcome else _after(failure, held, clock())
        if isinstance(self.state, Ended):  # perhaps abandoned in the meantime
            self.state.writer = after.writer
        else:
            self.state = after
        if isinstance(self.state, Closed | Ended):
            self.state.discard()

    def give_up(self, error: PartitionError, now: float) -> None:
        """Drop uncommitted work after an error, then either retry after a back-off or end the lane."""
        self.state = _after(error, self.state, now)

    def finish(self) -> Ended:
        """Stop, once everything is committed or dropped."""
        self.hold()
        state = self.state
        if isinstance(state, Ended):
            return state
        failed = isinstance(state, Closed) and state.retry_at is not None and self.ledger.error
        outcome = Outcome.FAILED if failed else Outcome.DONE
        self.state = ended = Ended(self.ledger, state.writer, outcome=outcome, error=self.ledger.error)
        return ended

    def abandon(self) -> None:
        """Stop although a call of this lane hangs in another thread. Its result no longer counts."""
        self.ledger.abandoned = True  # first: a call that makes its writer only now is to see it
        writer = self.state.writer
        if self.outcome is None:
            error = self.ledger.error or f"{self.partition}: the last commit did not finish in time"
            self.state = Ended(self.ledger, writer, outcome=Outcome.FAILED, error=error)
        self.hold()
        if writer is not None:
            writer.abandon()

    def successor(self, call: str, now: float) -> Lane:
        """
        Return a copy that replaces this lane, one of whose calls has not returned in time.

        Its new producer fences the old one and ends the old transaction, so readers need not wait for the call. If a
        commit succeeded anyway, the committed offset shows it.
        """
        successor, before = copy(self), self.state
        self.abandon()
        successor.ledger = self.ledger.copy()
        if isinstance(before, Ended):
            successor.state = replace(before, ledger=successor.ledger, writer=None)  # the writer hangs
        else:
            successor.state = Closed(successor.ledger)
            error = Transient(self.partition, f"{call} did not return; replacing the producer")
            successor.give_up(error, now)
        return successor


def _after(error: PartitionError, state: State, now: float) -> Closed | Ended:
    """Return the state that follows an error: uncommitted work is dropped, and the writer retired."""
    if isinstance(state, Ended):  # abandoned in the meantime
        return state
    ledger = state.ledger
    if not isinstance(error, Fenced):
        at = ledger.range.start if ledger.committed is None else ledger.committed
        ledger.trouble.happened(error, at, now)
    ended = _end(error, ledger)
    if ended is None:
        return Closed(ledger, state.writer, now + _pause(error, state))
    ended.writer = state.writer
    return ended


def _end(error: PartitionError, ledger: Ledger) -> Ended | None:
    """Return how a lane ends by an error; None if it tries again."""
    match error:
        case Fenced():
            return Ended(ledger, outcome=Outcome.FENCED, error=ledger.error)
        case OffsetMoved():
            return Ended(ledger, outcome=Outcome.FAILED, error=str(error))
        case Truncated():
            return _end_if_cut(error, ledger)
        case Blocked():
            tripped = isinstance(error, TooManyDeadLetters)
            return Ended(ledger, outcome=Outcome.BLOCKED, error=error.cause, cure=error.cure, tripped=tripped)
        case Refused() if ledger.search.found is not None:
            cause = f"Kafka rejects both the record and its dead letter: {error.cause}"
            cure = refused_cure(ledger.partition, ledger.search.found)
            return Ended(ledger, outcome=Outcome.BLOCKED, error=cause, cure=cure)
    return None


def _end_if_cut(error: Truncated, ledger: Ledger) -> Ended | None:
    """Block if the committed offset was cut off. If only the read-ahead was, it is read again."""
    if error.offset != ledger.reads_from:
        return None
    final = Truncated(ledger.partition, ledger.position, error.cut)
    ledger.metadata = replace(ledger.metadata, cut=error.cut)
    return Ended(ledger, outcome=Outcome.BLOCKED, error=final.cause, cure=final.cure)


def _pause(error: PartitionError, state: State) -> float:
    """Note an error that may pass; return for how long the lane waits before it opens again."""
    ledger = state.ledger
    pause = ledger.backoff
    ledger.error = str(error)
    ledger.reopened += 1
    ledger.backoff = min(pause * 2, LAST_BACKOFF)
    if not isinstance(state, Ready) or ledger.committed is None:  # nothing was sent
        return pause
    if isinstance(error, Undelivered):
        ledger.search.undelivered(ledger.committed, ledger.reach)
    if not isinstance(error, Refused):
        return pause
    ledger.refused_because = error.cause
    ledger.search.refused(ledger.committed, ledger.reach)
    return 0.0 if ledger.search.blames else pause  # a search for the culprit retries at once
