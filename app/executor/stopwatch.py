"""Takes the time of one task: a few looks at the clock for each chunk, none for a record."""

from __future__ import annotations

import threading
from collections.abc import Callable

from app.model import Attempt
from app.offsets.times import BOUNDS, Histogram, TaskReport, TaskTimes, place_of


class _Times:
    """A histogram that grows in place: there may be thousands of chunks a second."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._counts = [0] * (len(BOUNDS) + 1)

    def add(self, seconds: float) -> None:
        self._seconds += seconds
        self._counts[place_of(seconds)] += 1

    def so_far(self) -> Histogram:
        used = max((place for place, count in enumerate(self._counts, 1) if count), default=0)
        return Histogram(self._seconds, tuple(self._counts[:used]))


class Stopwatch:
    """
    Knows what the task's own thread did since the last look, and how long commits took.

    Args:
        attempt: whose time it takes.
        clock: a monotonic clock in seconds.
    """

    def __init__(self, attempt: Attempt, clock: Callable[[], float]) -> None:
        self._attempt = attempt
        self._clock = clock
        self._at = clock()
        self._waits = self._commits = 0.0
        self._parse, self._produce, self._commit = _Times(), _Times(), _Times()
        self._committing = threading.Lock()

    def start(self) -> None:
        """Begin now: what came before was no part of the flow."""
        self._at = self._clock()

    def waited(self) -> None:
        """Take in that the task has waited for records."""
        self._waits += self._lap()

    def parsed(self) -> None:
        """Take in that it has parsed a chunk."""
        self._parse.add(self._lap())

    def produced(self) -> None:
        """Take in that it has handed over what became of a chunk."""
        self._produce.add(self._lap())

    def kept_up(self) -> None:
        """Take in that it has started commits, and looked after its lanes."""
        self._commits += self._lap()

    def committed(self, seconds: float) -> None:
        """Take in how long a commit took; any thread may call it."""
        with self._committing:
            self._commit.add(seconds)

    def _lap(self) -> float:
        before, self._at = self._at, self._clock()
        return self._at - before

    def report(self) -> TaskReport:
        """Return all of it; any thread may call it."""
        histograms = (each.so_far() for each in (self._parse, self._produce, self._commit))
        return TaskReport(self._attempt, TaskTimes(self._waits, self._commits, *histograms))
