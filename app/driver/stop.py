"""A request to stop, from a signal or a test; it ends every wait of the driver."""

from __future__ import annotations

import signal
import threading
from types import FrameType


class Stop:
    """Set once, by SIGTERM or SIGINT; from then on every wait ends at once."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self.cause = ""

    @property
    def requested(self) -> bool:
        """Whether somebody asked us to stop."""
        return self._event.is_set()

    def request(self, cause: str) -> None:
        """Ask the service to stop."""
        self.cause = self.cause or cause
        self._event.set()

    def wait(self, seconds: float) -> bool:
        """Wait, at most until a stop is requested; return whether one is."""
        return self._event.wait(seconds)

    def on_signals(self) -> None:
        """Listen to SIGTERM and SIGINT. Call it again after Spark started, which installs its own SIGINT handler."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self.request(signal.Signals(number).name)
