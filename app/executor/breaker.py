"""Stops a partition before a wrong parser or wrong options drain good data into the dead letters."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Mapping
from itertools import pairwise
from typing import NamedTuple

from app.errors import TooManyDeadLetters
from app.executor.cleanse import Cleansed
from app.executor.lane.ledger import Progress
from app.model import Partition, Receipt
from app.rates import BreakerLimit, Window

# The window slides in steps of this fraction of its length.
SLICE = 1 / 20


class _Mark(NamedTuple):
    """How many records and dead letters a partition had had in this task at a moment; less than none before it."""

    at: float
    records: int
    dead: int


class CircuitBreaker:
    """
    Watches the records and the dead letters of each partition in a sliding window.

    The lanes count them: records that are dropped with their transaction come again, and must count once.

    Args:
        windows: what is in the windows at the beginning, because a window may be longer than a task.
    """

    def __init__(
        self, limit: BreakerLimit | None, windows: Mapping[Partition, Window], clock: Callable[[], float]
    ) -> None:
        self._limit = limit
        self._clock = clock
        now = clock()
        self._windows = defaultdict(deque, {each: _marks(window, now) for each, window in windows.items()})

    def judge(self, partition: Partition, progress: Progress, cleansed: Cleansed) -> None:
        """Judge results together with the lane's progress, before they are sent. Raises TooManyDeadLetters."""
        if self._limit is None:
            return
        known = progress.done, progress.open
        had = _Mark(self._clock(), sum(each.records for each in known), sum(each.dead_total for each in known))
        window = self._slide(partition, had, self._limit.seconds)
        if not window or window[-1].at < had.at - self._limit.seconds * SLICE:
            window.append(had)
        first = window[0]
        records = had.records - first.records + cleansed.records
        dead = had.dead - first.dead + len(cleansed.dead_letters)
        if records >= self._limit.minimum and dead > self._limit.ratio * records:
            raise TooManyDeadLetters(partition, _cause(self._limit, records, dead, cleansed.reasons))

    def window(self, receipt: Receipt) -> Window:
        """Return what a partition's next task must know; nothing after a trip, which an operator ends."""
        if self._limit is None or receipt.tripped:
            return ()
        now = _Mark(self._clock(), receipt.records, sum(receipt.dead.values()))
        slices = pairwise([*self._slide(receipt.partition, now, self._limit.seconds), now])
        return tuple((now.at - begin.at, end.records - begin.records, end.dead - begin.dead) for begin, end in slices)

    def _slide(self, partition: Partition, now: _Mark, seconds: float) -> deque[_Mark]:
        """Return the window of a partition, without what is too old and what was dropped."""
        window = self._windows[partition]
        while window and window[-1].records > now.records:
            window.pop()
        while window and window[0].at < now.at - seconds:
            window.popleft()
        return window


def _marks(window: Window, now: float) -> deque[_Mark]:
    marks, records, dead = deque[_Mark](), 0, 0
    for age, more, more_dead in reversed(window):
        records, dead = records - more, dead - more_dead
        marks.appendleft(_Mark(now - age, records, dead))
    return marks


def _cause(limit: BreakerLimit, records: int, dead: int, reasons: Collection[str]) -> str:
    most = "".join(f" (most recently: {reason!r})" for reason, _ in Counter(reasons).most_common(1))
    allowed = f"dead.letters.breaker.ratio allows {limit.ratio:.1%}"
    return f"{dead} of {records} records within {limit.seconds:g} s were rejected{most}; {allowed}"
