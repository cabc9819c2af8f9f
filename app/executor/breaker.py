"""Stops a partition before a wrong parser or wrong options drain good data into the dead letters."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection
from typing import NamedTuple

from app.errors import TooManyDeadLetters
from app.executor.cleanse import Cleansed
from app.executor.lane.progress import Progress
from app.model import Partition
from app.rates import BreakerLimit

# The window slides in steps of this fraction of its length.
SLICE = 1 / 20


class _Mark(NamedTuple):
    """How many records and dead letters a partition had had at a moment."""

    at: float
    records: int
    dead: int


class CircuitBreaker:
    """
    Watches the records and the dead letters of each partition in a sliding window.

    The lanes count them: records that are dropped with their transaction come again, and must count once.
    """

    def __init__(self, limit: BreakerLimit | None, clock: Callable[[], float]) -> None:
        self._limit = limit
        self._clock = clock
        self._windows: dict[Partition, deque[_Mark]] = defaultdict(deque)

    def judge(self, partition: Partition, progress: Progress, cleansed: Cleansed) -> None:
        """
        Judge the results of some records together with the lane's progress; call it before they are sent.

        Raises:
            TooManyDeadLetters: the window now contains too many.
        """
        if self._limit is None:
            return
        known = progress.done, progress.open
        had = _Mark(self._clock(), sum(each.records for each in known), sum(each.dead_total for each in known))
        first = self._slide(partition, had, self._limit.seconds)
        records = had.records - first.records + cleansed.records
        dead = had.dead - first.dead + len(cleansed.dead_letters)
        if records >= self._limit.minimum and dead > self._limit.ratio * records:
            raise TooManyDeadLetters(partition, _cause(self._limit, records, dead, cleansed.reasons))

    def _slide(self, partition: Partition, now: _Mark, seconds: float) -> _Mark:
        """Move the window of a partition on; return the mark at its beginning."""
        window = self._windows[partition]
        while window and window[-1].records > now.records:  # set on records that were dropped since
            window.pop()
        while window and window[0].at < now.at - seconds:
            window.popleft()
        if not window or window[-1].at < now.at - seconds * SLICE:
            window.append(now)
        return window[0]


def _cause(limit: BreakerLimit, records: int, dead: int, reasons: Collection[str]) -> str:
    most = "".join(f" (most recently: {reason!r})" for reason, _ in Counter(reasons).most_common(1))
    allowed = f"dead.letters.breaker.ratio allows {limit.ratio:.1%}"
    return f"{dead} of {records} records within {limit.seconds:g} s were rejected{most}; {allowed}"
