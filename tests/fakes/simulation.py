"""A clock, threads and waits that a simulation controls: time passes only in waits."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from app.driver.stop import Stop
from app.runtime import Runtime


class Inline(Executor):
    """Runs each call at once, in the thread that submits it."""

    def __init__(self, *_: object) -> None:
        """Ignore the number of threads."""

    def submit(self, call: Callable[..., Any], *args: Any, **named: Any) -> Future[Any]:  # type: ignore[override]
        future: Future[Any] = Future()
        try:
            future.set_result(call(*args, **named))
        except BaseException as error:  # noqa: BLE001  # the caller of result() gets it
            future.set_exception(error)
        return future


class ImpatientStop(Stop):
    """A stop whose waits end at once."""

    def wait(self, seconds: float) -> bool:
        """Return at once."""
        return self.requested


class SimulatedTime:
    """Seconds that pass only by waiting."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def pass_by(self, seconds: float) -> None:
        """Advance the time."""
        self.now += seconds

    @property
    def runtime(self) -> Runtime:
        """Return a runtime without threads that uses this time."""
        return Runtime(self, self, Inline)


class SimulatedStop(Stop):
    """A request to stop at a point in simulated time."""

    def __init__(self, time: SimulatedTime, at: float) -> None:
        super().__init__()
        self._time, self._at = time, at

    @property
    def requested(self) -> bool:
        """Whether that time has come."""
        if self._time.now >= self._at:
            self.request("the simulation ends")
        return super().requested

    def wait(self, seconds: float) -> bool:
        """Advance the time, at most until the stop."""
        self._time.pass_by(max(0.0, min(seconds, self._at - self._time.now)))
        return self.requested

    def on_signals(self) -> None:
        """Ignore signals."""
