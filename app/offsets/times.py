"""
Where the time of a task goes: committed beside an offset of one of its partitions, as one word of the metadata.

    task=12.3.0;41200;310;5321:0,3,9;1210:8,4;880:0,0,0,40

That is attempt 0 at task 3 of round 12; then the milliseconds that it has waited for records, and for commits; then
histograms of how long it parsed, produced and committed: the sum in milliseconds, and the count below each bound.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from itertools import zip_longest
from typing import NamedTuple

from app.model import Attempt

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""The longest time of each count, in seconds; one more count has what took longer."""


def place_of(seconds: float) -> int:
    """Return which of the counts has what took so long."""
    return bisect_left(BOUNDS, seconds)


@dataclass(frozen=True, slots=True)
class Histogram:
    """
    How long something took, each time.

    Args:
        seconds: the sum.
        counts: how often it took how long, by BOUNDS; what is missing at the end is 0.
    """

    seconds: float = 0.0
    counts: tuple[int, ...] = ()

    @classmethod
    def of(cls, seconds: float) -> Histogram:
        """Return that it took so long, once."""
        return cls(seconds, (0,) * place_of(seconds) + (1,))

    def __add__(self, other: Histogram) -> Histogram:
        counts = tuple(a + b for a, b in zip_longest(self.counts, other.counts, fillvalue=0))
        return Histogram(self.seconds + other.seconds, counts)

    def since(self, earlier: Histogram) -> Histogram:
        """Return what came after `earlier`."""
        counts = tuple(max(0, a - b) for a, b in zip_longest(self.counts, earlier.counts, fillvalue=0))
        return Histogram(max(0.0, self.seconds - earlier.seconds), counts)

    def __str__(self) -> str:
        return f"{round(self.seconds * 1000)}:{','.join(map(str, self.counts))}"

    @classmethod
    def parse(cls, text: str) -> Histogram:
        """Return what `text` says; raise ValueError where it says something else."""
        milliseconds, _, counts = text.partition(":")
        return cls(int(milliseconds) / 1000, tuple(map(int, counts.split(","))) if counts else ())


@dataclass(frozen=True, slots=True)
class TaskTimes:
    """
    What the thread of a task has spent its time on; commits run beside it, for many partitions at once.

    Args:
        waits: seconds that it waited for records.
        commits: seconds in which it started commits, waited for them, and looked after its partitions.
        parse: how long it parsed each chunk of records.
        produce: how long it took to hand over what became of each chunk.
        commit: how long each commit of a partition took.
    """

    waits: float = 0.0
    commits: float = 0.0
    parse: Histogram = Histogram()
    produce: Histogram = Histogram()
    commit: Histogram = Histogram()

    @property
    def seconds(self) -> float:
        """The whole time of its thread."""
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
        """Return what came after `earlier`."""
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
        """Return what `text` says; None where it says something else, or nothing."""
        try:
            attempt, waits, commits, *histograms = text.split(";")
            parse, produce, commit = map(Histogram.parse, histograms)
            times = TaskTimes(int(waits) / 1000, int(commits) / 1000, parse, produce, commit)
            round_, task, number = map(int, attempt.split("."))
            return cls(Attempt(round_, task, number), times)
        except ValueError:
            return None
