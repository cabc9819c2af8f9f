"""When the lanes of a task commit."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import pytest

from app.errors import Transient
from app.executor.calls import Calls
from app.executor.commits import Commits
from app.executor.lane import Lane
from app.model import Partition
from app.watchdog import Watchdog
from tests.fakes import FakeClock

OUTAGE_SECONDS = 11.0
INTERVAL = 0.5


class OneLane:
    """A lane that always has something to commit, and whose commit lasts until it is let go."""

    dirty = running = True
    troubled = full = False

    def __init__(self, error: Transient | None) -> None:
        self.began, self.let_go = threading.Event(), threading.Event()
        self._error = error

    def commit(self, now: float) -> None:
        self.began.set()
        assert self.let_go.wait(10)
        if self._error:
            raise self._error

    def give_up(self, error: Transient, now: float) -> None:
        pass

    def discard(self) -> None:
        pass


@pytest.mark.parametrize("error", [Transient(Partition("raw", 0), "19 records were not acknowledged"), None])
def test_an_outage_does_not_delay_the_next_pass(error: Transient | None) -> None:
    """A commit that waits for its broker delays the commits of its lane, and no pass after it, if it fails or not."""
    clock, one = FakeClock(), OneLane(error)
    lane = cast("Lane", one)
    with ThreadPoolExecutor(1) as threads:
        calls = Calls(threads, lambda: clock.now, Watchdog())
        commits = Commits(2, INTERVAL, calls, lambda: clock.now)
        commits.start_pass([lane], clock.now)
        assert one.began.wait(10)
        repaired_at = clock.now + OUTAGE_SECONDS
        while clock.now < repaired_at:
            clock.now += INTERVAL
            if commits.pass_is_due(clock.now, catching_up=False):
                commits.start_pass([lane], clock.now)  # leaves out the lane, whose commit hangs
        one.let_go.set()
    calls.settle_ended()

    clock.now += INTERVAL

    assert commits.pass_is_due(clock.now, catching_up=False)
    assert lane not in calls
