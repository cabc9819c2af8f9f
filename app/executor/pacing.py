"""Limits how fast a task reads its partitions: by configured rates, by what a slow sink accepts, and by memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager

from app.errors import PartitionError
from app.executor.cleanse import Cleansed
from app.executor.lane.lane import Lane
from app.executor.lane.ledger import Ledger
from app.model import Partition
from app.offsets.metadata import NOTHING, Counts
from app.rates import Rates

# The burst of a partition that was idle, in seconds at its rate.
BURST_SECONDS = 1.0
# What one poll may return, in seconds at the lowest rate: all of it may be from one partition.
POLL_SECONDS = 0.5
# How many unacknowledged bytes a task may hold before it knows its sink's speed, and how soon that may double while
# commits are fast or halve while they are slow. With 16 MiB a short run is 2 to 8 % slower (make bench).
FIRST_WINDOW, RESIZE_SECONDS = 64 << 20, 1.0
# Each lane may always keep this fraction of an equal share, so a stuck lane does not starve the others.
SHARE = 0.25
# The longest that a commit should take. It is given up after 10 s (`app.kafka.consumer.CONTROL_SECONDS`).
SLOW_SECONDS = 2.0
GROWTH = 1.5
# In bytes: a partition that takes MOST in one transaction is no longer limited; LEAST is always allowed.
MOST, LEAST = 32 << 20, 64 << 10
# How long a partition may run without using up its allowance. Until that is forgotten, each poll of the task is as
# small: with 64 KiB, a million records cost 23 CPU-seconds instead of 2.
UNUSED_SECONDS = 10.0
# The approximate overhead of a record in librdkafka and the protocol.
RECORD_BYTES = 256


def size(taken: Counts | Cleansed) -> int:
    """Return how many bytes of memory these records occupy from sending until acknowledgement."""
    return taken.bytes_in + RECORD_BYTES * taken.records


class Allowance:
    """
    How many bytes one partition with a slow sink takes before it commits; None while its commits are fast.

    Records must be acknowledged before they can be committed, and within the transaction timeout. A slow commit shows
    how much the sink accepts in its time, and sets the size of the next transactions. Fast commits let them grow again,
    but gradually: a broker that enforces a quota tolerates a burst at first and throttles its clients later. A quiet
    partition never shows that its sink is fast again, so an allowance that it does not use up is forgotten.
    """

    def __init__(self, most: int | None = None) -> None:
        self.bytes = most
        self._forgotten_at = math.inf
        """When it will be forgotten unless it is used up; infinity until its partition runs with room left."""

    def room(self, taken: int, now: float) -> float:
        """Return how many bytes the running partition may take beyond `taken`, at most 0 if none; infinity if any."""
        most = self.bytes  # the thread of a commit may change it
        if most is None:
            return math.inf
        self._forgotten_at = math.inf if taken >= most else min(self._forgotten_at, now + UNUSED_SECONDS)
        if now > self._forgotten_at:
            self.bytes = None
        return most - taken

    def committed(self, taken: int, seconds: float) -> None:
        """Learn that a commit of `taken` bytes took this long."""
        if seconds > SLOW_SECONDS:
            self._shrink(taken, SLOW_SECONDS / seconds)
        elif self.bytes is not None and taken >= self.bytes:
            grown = int(self.bytes * GROWTH)
            self.bytes = grown if grown < MOST else None

    def failed(self, taken: int, seconds: float) -> None:
        """Learn that a commit of `taken` bytes was given up after this long."""
        if seconds > SLOW_SECONDS:
            self._shrink(taken, SLOW_SECONDS / seconds / 2)

    def _shrink(self, taken: int, share: float) -> None:
        if taken == 0:  # says nothing about how much the sink accepts
            return
        before = taken if self.bytes is None else min(taken, self.bytes)
        self._forgotten_at = math.inf
        self.bytes = max(LEAST, int(before * share))


class _Bucket:
    """The records that a partition may take now; negative after a poll that returned more."""

    def __init__(self, now: float) -> None:
        self._tokens = math.inf  # a new partition has been idle
        self._at = now

    def take(self, records: int, rate: float, now: float) -> float:
        """Add tokens for the time passed, at a rate in records per second, and take some; return how many are left."""
        self._tokens = min(self._tokens + rate * (now - self._at), rate * BURST_SECONDS) - records
        self._at = now
        return self._tokens


class Pacing:
    """
    Pauses partitions that exceed a limit.

    - A partition above its rate rests until it is back within it.
    - A partition with a slow sink rests when it has taken what the sink can acknowledge in time, until the commit.
    - While the task's memory is full, the partitions that hold most of it rest until that is acknowledged.

    The limits are checked once for each chunk, so they hold over seconds and cost nothing for each record. A resting
    partition is not read, and what was fetched ahead of it is dropped: its backlog stays in Kafka.

    Args:
        memory: the most unacknowledged bytes that the task may hold; it starts with fewer.
        allowances: the allowances of partitions with a slow sink at the end of an earlier task.
    """

    def __init__(
        self, rates: Rates, memory: int, allowances: Mapping[Partition, int], clock: Callable[[], float]
    ) -> None:
        self._rates = rates
        self._memory = memory
        self._window = self._first_window = min(FIRST_WINDOW, memory)
        """How many bytes the task may hold now."""
        self._next_resize = 0.0
        self._clock = clock
        self._buckets: dict[Partition, _Bucket] = {}
        self._allowances = {each: Allowance(most) for each, most in allowances.items()}
        """Only of partitions that have been slow to commit."""
        self._held = 0.0
        """The unacknowledged bytes of all lanes at the last count, plus all bytes taken since."""
        self._taken = NOTHING
        """The records and bytes of all lanes since the task started."""
        self._share = math.inf
        """How many bytes a lane may hold while the memory is full."""

    def most(self, lanes: Collection[Lane]) -> int | None:
        """Return how many records a poll may return; None if nothing is limited. Call it once for each chunk."""
        if self._full:
            self._held = sum(map(self._held_by, lanes))
            self._share = SHARE * self._window / len(lanes)
        if not any(self._rates) and not self._allowances and not self._full:
            return None
        return min((most for lane in lanes if lane.running is not None for most in self._mosts(lane)), default=None)

    @property
    def _full(self) -> bool:
        return self._held >= self._window

    def _mosts(self, lane: Lane) -> Iterator[int]:
        if (limit := self._limit(lane)) is not None:
            yield max(1, int(limit * POLL_SECONDS))
        if 0 < (room := self._room(lane)) < math.inf:
            yield math.ceil(room / self._record_size(lane))
        if self._full:
            yield max(1, int(self._share / self._record_size(lane)))

    def took(self, lane: Lane, cleansed: Cleansed) -> None:
        """Count the records that a lane has taken, and hold the lane if it must rest."""
        self._held += size(cleansed)
        self._taken += Counts(cleansed.records, bytes_in=cleansed.bytes_in)
        if (limit := self._limit(lane)) is not None:
            now = self._clock()
            bucket = self._buckets.setdefault(lane.partition, _Bucket(now))
            bucket.take(cleansed.records, limit, now)
        if self.rests(lane):
            lane.hold()

    @contextmanager
    def committing(self, ledger: Ledger) -> Iterator[None]:
        """Learn from the duration of a commit; use it in the thread that commits."""
        began, taken = self._clock(), size(ledger.progress.open)
        with self.delivering(ledger):
            yield
        seconds = self._clock() - began
        if taken:
            self._resize(quick=seconds <= SLOW_SECONDS)
        if seconds > SLOW_SECONDS or ledger.partition in self._allowances:
            self._allowances.setdefault(ledger.partition, Allowance()).committed(taken, seconds)

    @contextmanager
    def delivering(self, ledger: Ledger) -> Iterator[None]:
        """Learn from a failed delivery and its duration; use it in the thread that delivers."""
        began, taken = self._clock(), size(ledger.progress.open)
        try:
            yield
        except PartitionError:
            seconds = self._clock() - began
            self._allowances.setdefault(ledger.partition, Allowance()).failed(taken, seconds)
            if seconds > SLOW_SECONDS:
                self._resize(quick=False)
            raise

    def _resize(self, *, quick: bool) -> None:
        now = self._clock()
        if now >= self._next_resize:
            self._next_resize = now + RESIZE_SECONDS
            self._window = min(self._memory, self._window * 2) if quick else max(self._first_window, self._window // 2)

    def rests(self, lane: Lane) -> bool:
        return self._owes(lane) or self._room(lane) <= 0 or (self._full and self._held_by(lane) > self._share)

    def waits_for_commit(self, lane: Lane) -> bool:
        """Whether a lane has no room left, and no commit lately: by `commit.interval` the next may be a minute away."""
        return self._room(lane) <= 0 and self._clock() - lane.ledger.committed_at >= SLOW_SECONDS

    def _owes(self, lane: Lane) -> bool:
        limit, bucket = self._limit(lane), self._buckets.get(lane.partition)
        return limit is not None and bucket is not None and bucket.take(0, limit, self._clock()) < 0

    def allowance(self, partition: Partition) -> int | None:
        """Return how many bytes a partition may take before it commits; None if its commits are fast."""
        allowance = self._allowances.get(partition)
        return None if allowance is None else allowance.bytes

    def _room(self, lane: Lane) -> float:
        """Return how many bytes a lane may take before it commits, at most 0 if none; infinity if its sink is fast."""
        allowance = self._allowances.get(lane.partition)
        return math.inf if allowance is None else allowance.room(size(lane.ledger.progress.open), self._clock())

    def _limit(self, lane: Lane) -> int | None:
        return self._rates.limit(backlog=lane.ledger.in_backlog)

    def _held_by(self, lane: Lane) -> float:
        ready = lane.ready  # the thread of a call may change it
        return 0.0 if ready is None else ready.writer.waiting * self._record_size(lane)

    def _record_size(self, lane: Lane) -> float:
        """Return the mean record size of a lane or, before its first record, of all lanes; LEAST before any record."""
        known = (lane.ledger.progress.open, lane.ledger.progress.done, self._taken)
        return next((size(counts) / counts.records for counts in known if counts.records), LEAST)
