"""A request to stop, from a signal or a test; it ends every wait of the driver."""

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
    """Somebody asked us to stop while we waited."""


class Stop:
    """Set once, by SIGTERM or SIGINT; from then on every wait ends at once."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._handover_seconds = 0.0
        self.cause = ""
        self.leaving = ""
        """The signal after which the service works on until another one takes over; empty before it came."""

    @property
    def requested(self) -> bool:
        """Whether somebody asked us to stop."""
        return self._event.is_set()

    def request(self, cause: str) -> None:
        """Ask the service to stop."""
        self.cause = self.cause or cause
        self._event.set()

    def hand_over_within(self, seconds: float) -> None:
        """
        From now on, let a first SIGTERM stop the service only after so many seconds.

        Another service may take over meanwhile, and readers then notice nothing. A second signal stops at once.
        """
        self._handover_seconds = seconds

    def wait(self, seconds: float) -> bool:
        """Wait, at most until a stop is requested; return whether one is."""
        return self._event.wait(seconds)

    def result(self, future: Future[T], meanwhile: Callable[[], object] = lambda: None) -> T:
        """
        Wait for what another thread does, and return its result or raise its error; do something else again and again.

        Raises:
            Stopped: a stop was requested before that; the other thread goes on.
        """
        while not self.requested:
            if wait([future], LOOK_SECONDS).done:
                return future.result()
            meanwhile()
        raise Stopped

    def on_signals(self) -> None:
        """Listen to SIGTERM and SIGINT. Only the main thread may."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        if number != signal.SIGTERM or self.leaving or not self._handover_seconds:
            self.request(name)
            return
        self.leaving = name
        timer = threading.Timer(self._handover_seconds, self.request, [name])
        timer.daemon = True
        timer.start()
