"""Looks at the lag again and again in the background: however long Kafka takes, a screen can show what is known."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from typing import Generic, NamedTuple, TypeVar

from app.config import Config
from app.driver.clients import Ages, Clients
from app.errors import Unreachable
from app.model import FirstWaiting, Partition, Pause
from app.operate.lag import PartitionLag, positions, unread, with_ages
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
        self._ages = ages
        self._runtime = runtime
        self._looks = Repeated(look, seconds, runtime)
        self._ages_read = Repeated(self._read_ages, math.inf, runtime)
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

    def _read_ages(self) -> Mapping[Partition, FirstWaiting]:
        assert self.look is not None  # the caller has checked
        return self._ages.waiting(unread(self.look.found))

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
