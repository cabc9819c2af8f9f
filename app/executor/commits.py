"""Decides when a task's lanes commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from app.executor.calls import SIDE_BY_SIDE, Calls
from app.executor.lane.lane import Lane
from app.executor.lane.states import Ready, State
from app.executor.pacing import Pacing
from app.executor.stopwatch import Stopwatch

# A pass over hundreds of lanes takes seconds. While the task catches up, readers are not waiting for the latest record,
# so commits get a tenth of the time. Otherwise they get up to half of it, to be punctual (python -m tests.bench.scale).
PACE_CATCHING_UP, PACE = 10.0, 2.0
MAX_PAUSE_SECONDS = 10.0
# A transaction is open from one pass to the next, and Kafka aborts one that is too old.
PART_OF_TIMEOUT = 1 / 4


class Commits:
    """
    Commits lanes in parallel, in passes over all of them, one every `interval` seconds.

    `reports` tells whether a lane stores the task's times with its offset.
    """

    def __init__(
        self,
        lanes: int,
        interval: float,
        transaction_seconds: float,
        calls: Calls,
        clock: Callable[[], float],
        *,
        stopwatch: Stopwatch,
        pacing: Pacing,
        reports: Callable[[Lane], bool],
    ) -> None:
        self._lanes = lanes
        self._interval = interval
        self._most_pause = min(MAX_PAUSE_SECONDS, transaction_seconds * PART_OF_TIMEOUT)
        self._calls = calls
        self._clock = clock
        self._stopwatch = stopwatch
        self._pacing = pacing
        self._reports = reports
        self._next_pass = self._pass_began = self._pass_took = 0.0

    def start(self, lanes: Iterable[Lane]) -> None:
        began = self._clock()
        for lane in lanes:
            if lane not in self._calls and (ready := lane.ready) is not None:
                self._calls.start(lane, partial(self._commit, ready, began, reports=self._reports(lane)))

    def _commit(self, ready: Ready, began: float, *, reports: bool) -> State:
        started = self._clock()
        with self._pacing.committing(ready.ledger):
            after = ready.commit(started, self._stopwatch.report() if reports else None)
        self._stopwatch.committed(self._clock() - started)
        # A failed commit does not count as slow, nor does one from an earlier pass.
        if began >= self._pass_began:
            self._pass_took = max(self._pass_took, self._clock() - began)
        return after

    def start_pass(self, lanes: Iterable[Lane], now: float) -> None:
        self._pass_began, self._pass_took = now, 0.0
        self._next_pass = now + self._interval
        self.start(lane for lane in lanes if (ready := lane.ready) is not None and ready.dirty)

    def pass_is_due(self, now: float, *, catching_up: bool) -> bool:
        """
        Return whether to commit all lanes: the interval has passed and, after a slow pass, a longer pause.

        With few lanes, a pass is slow only if the broker is, and a pause of ten times that would make readers wait.
        """
        if now < self._next_pass or self._calls.crowded:
            return False
        self._calls.settle_soon()
        pace = PACE_CATCHING_UP if catching_up and self._lanes > SIDE_BY_SIDE else PACE
        pause = min(pace * self._pass_took, self._pass_took + self._most_pause)
        return now >= self._pass_began + pause
