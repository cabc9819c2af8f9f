"""Times the steps of one task, with a few clock reads for each chunk and none for each record."""

from __future__ import annotations

import threading
from collections.abc import Callable

from app.model import Attempt
from app.offsets.times import BOUNDS, Histogram, TaskReport, TaskTimes, place_of


class _Times:
    """A histogram that is updated in place, thousands of times a second."""

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
    """Measures the steps of the task's own thread from lap to lap, and the duration of each commit."""

    def __init__(self, attempt: Attempt, clock: Callable[[], float]) -> None:
        self._attempt = attempt
        self._clock = clock
        self._at = clock()
        self._waits = self._commits = 0.0
        self._parse, self._produce, self._commit = _Times(), _Times(), _Times()
        self._committing = threading.Lock()

    def start(self) -> None:
        self._at = self._clock()

    def waited(self) -> None:
        self._waits += self._lap()

    def parsed(self) -> float:
        """Return how long it took to cleanse a chunk."""
        self._parse.add(seconds := self._lap())
        return seconds

    def produced(self) -> None:
        """Record the hand-over of a chunk's results."""
        self._produce.add(self._lap())

    def kept_up(self) -> None:
        """Record the upkeep of the lanes and the start of commits."""
        self._commits += self._lap()

    def committed(self, seconds: float) -> None:
        """Record the duration of a commit. Thread-safe."""
        with self._committing:
            self._commit.add(seconds)

    def _lap(self) -> float:
        before, self._at = self._at, self._clock()
        return self._at - before

    def report(self) -> TaskReport:
        """Return all times so far. May be called from any thread."""
        histograms = (each.so_far() for each in (self._parse, self._produce, self._commit))
        return TaskReport(self._attempt, TaskTimes(self._waits, self._commits, *histograms))
