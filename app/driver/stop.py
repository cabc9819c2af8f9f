"""A request to stop, from a signal or a test. It ends every wait of the driver."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
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
        self._event = threading.Event()
        self._handover_seconds = 0.0
        self.cause = ""
        self.leaving = ""
        """The signal after which the service keeps working until another one takes over; empty before."""

    @property
    def requested(self) -> bool:
        return self._event.is_set()

    def request(self, cause: str) -> None:
        self.cause = self.cause or cause
        self._event.set()

    def hand_over_within(self, seconds: float) -> None:
        """
        From now on, let the first SIGTERM stop the service only after this time, so that another service can take over.

        A second signal stops at once.
        """
        self._handover_seconds = seconds

    def wait(self, seconds: float) -> bool:
        """Wait until a stop is requested, or for this time; return whether a stop is requested."""
        return self._event.wait(seconds)

    def result(self, future: Future[T], meanwhile: Callable[[], object] = lambda: None) -> T:
        """
        Wait for another thread's result and return it, or raise its error. Call `meanwhile` repeatedly.

        Raises:
            Stopped: a stop was requested first; the other thread continues.
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
        if number != signal.SIGTERM or self.leaving or not self._handover_seconds:
            self.request(name)
            return
        self.leaving = name
        timer = threading.Timer(self._handover_seconds, self.request, [name])
        timer.daemon = True
        timer.start()
