"""Looks at the lag again and again in the background, so that a screen never waits, and the rates between two looks."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, wait
from typing import Any, Generic, NamedTuple, TypeVar

from app.config import Config
from app.driver.clients import Ages, Clients
from app.errors import Unreachable
from app.model import FirstWaiting, Partition, Pause
from app.operate.lag import PartitionLag, positions, severity, unread, with_ages
from app.runtime import REAL, Runtime

T = TypeVar("T")
LEAVE_SECONDS = 6.0
"""How long to wait at the end for a request: longer than those for offsets take."""


class Look(NamedTuple):
    """The lag of the partitions at one moment; `at` is in seconds of a monotonic clock."""

    at: float
    found: Sequence[PartitionLag]
    pause: Pause | None

    @classmethod
    def of(cls, config: Config, clients: Clients) -> Look:
        """Look without the ages of waiting records."""
        return cls(time.monotonic(), positions(config, clients), clients.pauses.read())


class Repeated(Generic[T]):
    """A call that is made in the background every so many seconds, and never twice at once."""

    def __init__(self, call: Callable[[], T], seconds: float, runtime: Runtime = REAL) -> None:
        self._call = call
        self._seconds = seconds
        self._runtime = runtime
        self._running: Future[T] | None = None
        self._due = runtime.monotonic()

    def hasten(self) -> None:
        """Make the next call as soon as the last one has ended."""
        self._due = self._runtime.monotonic()

    def result(self) -> T | None:
        """Return the result of a call that has ended since, or raise its error; start the next one if it is due."""
        ended = self._running if self._running is not None and self._running.done() else None
        if ended is not None:
            self._running = None
        if self._running is None and (now := self._runtime.monotonic()) >= self._due:
            self._running, self._due = self._runtime.background(self._call), now + self._seconds
        return None if ended is None else ended.result()

    def leave(self) -> None:
        """Wait for the call that is being made, so that its client can be closed."""
        if self._running is not None:
            wait([self._running], LEAVE_SECONDS)


class WatchedLag:
    """
    What is known about the lag: first the offsets, and the ages as they become known, which may take seconds.

    `trouble` says why the last look failed; what was known before is kept.
    """

    def __init__(self, look: Callable[[], Look], ages: Ages, seconds: float, runtime: Runtime = REAL) -> None:
        self._runtime = runtime
        self._looks = Repeated(look, seconds, runtime)
        self._ages_read = Repeated(
            lambda: ages.waiting(unread(self.look.found if self.look else ())), math.inf, runtime
        )
        self._waiting: Mapping[Partition, FirstWaiting] = {}
        self.look: Look | None = None
        self.trouble = ""

    def poll(self) -> None:
        """Take in what has been found since; never wait. Raises NotUsable if Kafka refuses the request."""
        try:
            if (look := self._looks.result()) is not None:
                self.look, self.trouble = look, ""
                self._ages_read.hasten()
        except Unreachable as error:
            self.trouble = str(error)
        if self.look is not None and (waiting := self._ages_read.result()) is not None:
            self._waiting = waiting

    @property
    def found(self) -> list[PartitionLag]:
        """The partitions, with the ages that are known, at the moment of the look."""
        if self.look is None:
            return []
        then = self._runtime.wall_clock() - (self._runtime.monotonic() - self.look.at)
        return with_ages(self.look.found, {each: at.since for each, at in self._waiting.items()}, then)

    def leave(self) -> None:
        self._looks.leave()
        self._ages_read.leave()


class Row(NamedTuple):
    """A partition between two looks; rates are per second, and None before the second one."""

    at: PartitionLag
    records: float | None
    dead: float | None
    closing: float | None
    """Offsets by which the lag shrinks; negative if it grows."""
    share: float | None
    """The percentage of dead letters since its counts began."""

    @property
    def seconds_to_close(self) -> float | None:
        return self.at.lag / self.closing if self.at.lag and self.closing and self.closing > 0 else None

    def as_json(self) -> dict[str, Any]:
        rates = {"records_per_second": self.records, "dead_letters_per_second": self.dead}
        more = {"dead_letters_percent": self.share, "seconds_to_close": self.seconds_to_close}
        return self.at.as_json() | rates | more


def rows(before: Look | None, now: Look) -> list[Row]:
    earlier, seconds = ([], 0.0) if before is None else (before.found, now.at - before.at)
    known = {each.partition: each for each in earlier}
    return chosen([_row(known.get(each.partition), each, seconds) for each in now.found], "lag")


ORDERS: Mapping[str, Callable[[Row], Any]] = {
    "lag": lambda row: severity(row.at),
    "age": lambda row: -(row.at.seconds or 0),
    "records/s": lambda row: -(row.records or 0),
    "dead letters/s": lambda row: -(row.dead or 0),
    "name": lambda row: row.at.partition,
}
"""What rows can be sorted by: the first is the default, and has the worst first."""


def chosen(found: Collection[Row], order: str, text: str = "") -> list[Row]:
    """Return the rows with this text in their partition's name or problem, in whatever case, in an order."""
    having = (each for each in found if text.lower() in f"{each.at.partition} {each.at.problem}".lower())
    return sorted(having, key=ORDERS[order])


def _row(before: PartitionLag | None, now: PartitionLag, seconds: float) -> Row:
    metadata = now.metadata
    counts = metadata.counts
    share = 100 * counts.dead_total / counts.records if counts.records else None
    if before is None or seconds <= 0:
        return Row(now, None, None, None, share)
    earlier = before.metadata
    done = counts.since(earlier.counts) if metadata.continues(earlier) else counts  # counts that restarted are all new
    closing = None if before.lag is None or now.lag is None else (before.lag - now.lag) / seconds
    return Row(now, done.records / seconds, done.dead_total / seconds, closing, share)


def summed(found: Collection[Row]) -> dict[str, float]:
    return {
        "lag": sum(each.at.lag or 0 for each in found),
        "records_per_second": round(sum(each.records or 0 for each in found), 1),
        "dead_letters_per_second": round(sum(each.dead or 0 for each in found), 1),
    }
