"""Stops a partition before a wrong parser or wrong options drain good data into the dead letters."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection
from dataclasses import dataclass

from app.errors import TooManyDeadLetters
from app.executor.cleanse import Cleansed
from app.model import Partition
from app.rates import BreakerLimit

# The window slides in steps of this fraction of its length.
SLICE = 1 / 20


@dataclass(slots=True)
class _Slice:
    """The number of records and of dead letters since a moment."""

    since: float
    records: int = 0
    dead: int = 0


class CircuitBreaker:
    """Counts the records and the dead letters of each partition in a sliding window."""

    def __init__(self, limit: BreakerLimit | None, clock: Callable[[], float]) -> None:
        self._limit = limit
        self._clock = clock
        self._windows: dict[Partition, deque[_Slice]] = defaultdict(deque)

    def judge(self, partition: Partition, cleansed: Cleansed) -> None:
        """
        Count the results of some records; call it before they are sent.

        Raises:
            TooManyDeadLetters: the window now contains too many.
        """
        if self._limit is None:
            return
        records, dead = self._add(partition, cleansed, self._limit.seconds)
        if records >= self._limit.minimum and dead > self._limit.ratio * records:
            raise TooManyDeadLetters(partition, _cause(self._limit, records, dead, cleansed.reasons))

    def _add(self, partition: Partition, cleansed: Cleansed, seconds: float) -> tuple[int, int]:
        """Add some records to the window of a partition; return its totals of records and dead letters."""
        window, now = self._windows[partition], self._clock()
        while window and window[0].since < now - seconds:
            window.popleft()
        if not window or window[-1].since < now - seconds * SLICE:
            window.append(_Slice(now))
        window[-1].records += cleansed.records
        window[-1].dead += len(cleansed.dead_letters)
        return sum(each.records for each in window), sum(each.dead for each in window)


def _cause(limit: BreakerLimit, records: int, dead: int, reasons: Collection[str]) -> str:
    most = "".join(f" (most recently: {reason!r})" for reason, _ in Counter(reasons).most_common(1))
    allowed = f"dead.letters.breaker.ratio allows {limit.ratio:.1%}"
    return f"{dead} of {records} records within {limit.seconds:g} s were rejected{most}; {allowed}"
