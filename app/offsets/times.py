"""
How a task spends its time: one word in the metadata of one of its partitions' offsets.

    task=12.3.0;41200;310;5321:0,3,9;1210:8,4;880:0,0,0,40

That is attempt 0 at task 3 of round 12; the milliseconds spent waiting for records, and on commits; and histograms of
parse, produce and commit times: the sum in milliseconds, and the count in each bucket.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from itertools import zip_longest
from typing import NamedTuple

from app.model import Attempt

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""The upper bounds of the buckets, in seconds; one more bucket holds what took longer."""


def place_of(seconds: float) -> int:
    """Return the index of the bucket for a time."""
    return bisect_left(BOUNDS, seconds)


@dataclass(frozen=True, slots=True)
class Histogram:
    """The sum of times, and the count in each bucket; missing ones at the end are 0."""

    seconds: float = 0.0
    counts: tuple[int, ...] = ()

    def __add__(self, other: Histogram) -> Histogram:
        counts = tuple(a + b for a, b in zip_longest(self.counts, other.counts, fillvalue=0))
        return Histogram(self.seconds + other.seconds, counts)

    def since(self, earlier: Histogram) -> Histogram:
        counts = tuple(max(0, a - b) for a, b in zip_longest(self.counts, earlier.counts, fillvalue=0))
        return Histogram(max(0.0, self.seconds - earlier.seconds), counts)

    def __str__(self) -> str:
        return f"{round(self.seconds * 1000)}:{','.join(map(str, self.counts))}"

    @classmethod
    def parse(cls, text: str) -> Histogram:
        """Parse a histogram; raise ValueError for other text."""
        milliseconds, _, counts = text.partition(":")
        return cls(int(milliseconds) / 1000, tuple(map(int, counts.split(","))) if counts else ())


@dataclass(frozen=True, slots=True)
class TaskTimes:
    """
    How a task's thread spends its time. Commits run in other threads, for many partitions at once.

    Args:
        waits: seconds spent waiting for records.
        commits: seconds spent starting commits, waiting for them, and managing partitions.
        parse: the time to parse each chunk of records.
        produce: the time to hand each chunk's output to the producer.
        commit: the time of each partition's commit.
    """

    waits: float = 0.0
    commits: float = 0.0
    parse: Histogram = Histogram()
    produce: Histogram = Histogram()
    commit: Histogram = Histogram()

    @property
    def seconds(self) -> float:
        """The total time of the thread."""
        return self.waits + self.commits + self.parse.seconds + self.produce.seconds

    def __add__(self, other: TaskTimes) -> TaskTimes:
        return TaskTimes(
            self.waits + other.waits,
            self.commits + other.commits,
            self.parse + other.parse,
            self.produce + other.produce,
            self.commit + other.commit,
        )

    def since(self, earlier: TaskTimes) -> TaskTimes:
        return TaskTimes(
            max(0.0, self.waits - earlier.waits),
            max(0.0, self.commits - earlier.commits),
            self.parse.since(earlier.parse),
            self.produce.since(earlier.produce),
            self.commit.since(earlier.commit),
        )


NO_TIME = TaskTimes()


class TaskReport(NamedTuple):
    """The times of one attempt at a task, since it began."""

    attempt: Attempt
    times: TaskTimes

    def __str__(self) -> str:
        times = self.times
        alone = (round(seconds * 1000) for seconds in (times.waits, times.commits))
        words = (".".join(map(str, self.attempt)), *alone, times.parse, times.produce, times.commit)
        return ";".join(map(str, words))

    @classmethod
    def parse(cls, text: str) -> TaskReport | None:
        """Parse a report; return None for other text."""
        try:
            attempt, waits, commits, *histograms = text.split(";")
            parse, produce, commit = map(Histogram.parse, histograms)
            times = TaskTimes(int(waits) / 1000, int(commits) / 1000, parse, produce, commit)
            round_, task, number = map(int, attempt.split("."))
            return cls(Attempt(round_, task, number), times)
        except ValueError:
            return None
