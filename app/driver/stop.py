"""A request to stop, from a signal or a test. It ends every wait of the driver."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from queue import Empty, SimpleQueue
from types import FrameType
from typing import TypeVar

T = TypeVar("T")
LOOK_SECONDS = 0.1


class Stopped(Exception):  # not an error: the way out of a wait
    """A stop was requested during a wait."""


class Stop:
    """Set once, by SIGTERM or SIGINT. From then on every wait ends at once."""

    signalled = False
    """Whether a signal has come to this process, which must not start anew then."""

    def __init__(self) -> None:
        self._wakes: SimpleQueue[None] = SimpleQueue()
        """Ends a wait. Unlike an Event, it lets a signal handler in that has interrupted the wait at any point."""
        self.handover_seconds = 0.0
        """How long the first SIGTERM leaves another service to take over, perhaps 0. A second signal stops at once."""
        self.cause = ""
        self.leaving = ""
        """The signal after which the service keeps working until another one takes over; empty before."""

    @property
    def requested(self) -> bool:
        return bool(self.cause)

    def request(self, cause: str) -> None:
        self.cause = self.cause or cause
        self._wakes.put(None)

    def wait(self, seconds: float) -> bool:
        """Wait until a stop is requested, or for this time; return whether a stop is requested."""
        if not self.requested:
            with suppress(Empty):
                self._wakes.get(timeout=seconds)
        return self.requested

    def result(self, future: Future[T], meanwhile: Callable[[], object] = lambda: None) -> T:
        """
        Wait for another thread's result and return it, or raise its error. Call `meanwhile` repeatedly.

        Raises Stopped if a stop is requested first; the other thread continues.
        """
        while not self.requested:
            if wait([future], LOOK_SECONDS).done:
                return future.result()
            meanwhile()
        raise Stopped

    def on_signals(self) -> None:
        """Handle SIGTERM and SIGINT. Call it from the main thread."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        Stop.signalled, name = True, signal.Signals(number).name
        if number != signal.SIGTERM or self.leaving or not self.handover_seconds:
            self.request(name)
            return
        self.leaving = name
        timer = threading.Timer(self.handover_seconds, self.request, [name])
        timer.daemon = True
        timer.start()
