"""When the lanes of a task commit."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, cast

import pytest

from app.errors import Transient
from app.executor.commits import Commits
from app.executor.lane import Lane
from app.model import Partition
from app.watchdog import Watchdog
from tests.fakes import FakeClock

OUTAGE_SECONDS = 11.0
INTERVAL = 0.5


class HeldThreads(Executor):
    """A pool whose calls wait until the test lets them run."""

    def __init__(self) -> None:
        self._calls: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._calls.append((future, lambda: call(*args, **kwargs)))
        return future

    def run(self) -> None:
        calls, self._calls = self._calls, []
        for future, call in calls:
            future.set_result(call())


class OneLane:
    """A lane that always has something to commit."""

    dirty = running = True

    def __init__(self, error: Transient | None) -> None:
        self._error = error

    def commit(self, now: float) -> None:
        if self._error:
            raise self._error

    def give_up(self, error: Transient, now: float) -> None:
        pass


@pytest.mark.parametrize("error", [Transient(Partition("raw", 0), "19 records were not acknowledged"), None])
def test_an_outage_does_not_delay_the_next_pass(error: Transient | None) -> None:
    """A commit that waits for its broker delays the commits of its lane, and no pass after it, if it fails or not."""
    clock, threads, lane = FakeClock(), HeldThreads(), cast("Lane", OneLane(error))
    commits = Commits(2, INTERVAL, threads, lambda: clock.now, Watchdog())
    commits.start_pass([lane], clock.now)
    repaired_at = clock.now + OUTAGE_SECONDS
    while clock.now < repaired_at:
        clock.now += INTERVAL
        if commits.pass_is_due(clock.now, catching_up=False):
            commits.start_pass([lane], clock.now)  # leaves out the lane, whose commit hangs
    threads.run()

    clock.now += INTERVAL

    assert commits.pass_is_due(clock.now, catching_up=False)
    assert lane not in commits
