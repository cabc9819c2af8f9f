"""When the lanes of a task commit."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from types import SimpleNamespace
from typing import cast

import pytest

from app.errors import Transient
from app.executor.calls import SIDE_BY_SIDE, Calls
from app.executor.commits import Commits
from app.executor.lane.lane import Lane
from app.executor.lane.ledger import Progress
from app.executor.lane.states import Ready
from app.executor.pacing import Pacing
from app.executor.stopwatch import Stopwatch
from app.model import Attempt, Partition
from app.offsets.times import TaskReport
from app.rates import BUFFER_MEMORY, UNLIMITED
from app.watchdog import Watchdog
from tests.fakes import FakeClock
from tests.fakes.simulation import Inline
from tests.support.waiting import PATIENCE

OUTAGE_SECONDS = 11.0
INTERVAL = 0.5


def commits_of(
    lanes: int, calls: Calls, clock: FakeClock, reporter: object = None, transaction_seconds: float = 60.0
) -> tuple[Commits, Stopwatch]:
    stopwatch, pacing = Stopwatch(Attempt(3, 1), clock), Pacing(UNLIMITED, BUFFER_MEMORY, {}, clock)
    made = Commits(
        lanes,
        INTERVAL,
        transaction_seconds,
        calls,
        clock,
        stopwatch=stopwatch,
        pacing=pacing,
        reports=lambda lane: lane is reporter,
    )
    return made, stopwatch


def run(_: object, call: Callable[[], object], clock: object) -> None:
    """Run a call as a lane does."""
    with suppress(Transient):
        call()


class OneLane:
    """A lane, and its own state, that always has something to commit, and whose commit lasts until it is released."""

    dirty = True
    ledger = SimpleNamespace(troubled=False, partition=Partition("raw", 0), progress=Progress())

    def __init__(self, error: Transient | None) -> None:
        self.ready = self
        self.began, self.let_go = threading.Event(), threading.Event()
        self._error = error

    def commit(self, now: float, report: TaskReport | None) -> None:
        self.began.set()
        assert self.let_go.wait(PATIENCE)
        if self._error:
            raise self._error

    run = run


@pytest.mark.parametrize("error", [Transient(Partition("raw", 0), "19 records were not acknowledged"), None])
def test_an_outage_does_not_delay_the_next_pass(error: Transient | None) -> None:
    """A commit that waits for its broker delays its own lane but no later pass, whether it fails or not."""
    clock, one = FakeClock(), OneLane(error)
    lane = cast("Lane", one)
    with ThreadPoolExecutor(1) as threads, Watchdog() as watchdog:
        calls = Calls(threads, lambda: clock.now, watchdog, Ready.send_rest)
        commits, _ = commits_of(2, calls, clock)
        commits.start_pass([lane], clock.now)
        assert one.began.wait(PATIENCE)
        repaired_at = clock.now + OUTAGE_SECONDS
        while clock.now < repaired_at:
            clock.now += INTERVAL
            if commits.pass_is_due(clock.now, catching_up=False):
                commits.start_pass([lane], clock.now)  # leaves out the lane, whose commit hangs
        one.let_go.set()
        threads.shutdown()
        calls.settle_ended()

        clock.now += INTERVAL

        assert commits.pass_is_due(clock.now, catching_up=False)
        assert lane not in calls


def test_commits_that_are_about_to_end_are_awaited_before_the_next_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their lanes then take part in it instead of waiting for the next one."""
    clock, one = FakeClock(), OneLane(None)
    lane = cast("Lane", one)

    def a_moment(ends: list[Future[None]], seconds: float) -> None:
        one.let_go.set()
        assert not wait(ends, PATIENCE).not_done

    monkeypatch.setattr("app.executor.calls.wait", a_moment)
    with ThreadPoolExecutor(1) as threads, Watchdog() as watchdog:
        calls = Calls(threads, clock, watchdog, Ready.send_rest)
        commits, _ = commits_of(1, calls, clock)
        commits.start_pass([lane], clock.now)
        assert one.began.wait(PATIENCE)
        clock.now += INTERVAL

        commits.pass_is_due(clock.now, catching_up=False)

        assert lane not in calls


class SlowLane:
    """A lane, and its own state, whose commit takes its time."""

    ledger = OneLane.ledger
    run = run

    def __init__(self, clock: FakeClock, seconds: float, *, dirty: bool = True) -> None:
        self.dirty, self.committed, self.ready = dirty, 0, self
        self.report: TaskReport | None = None
        self._clock, self._seconds = clock, seconds

    def commit(self, now: float, report: TaskReport | None) -> None:
        self.committed += 1
        self.report = report
        self._clock.now += self._seconds


@pytest.mark.parametrize(
    ("took", "lanes", "catching_up", "pause"),
    [
        (0.0, 1, False, INTERVAL),
        (0.125, 1, False, INTERVAL),
        (1.0, 1, False, 2.0),  # half of the time
        (1.0, SIDE_BY_SIDE, True, 2.0),  # few lanes: the broker is slow, and readers would wait for it
        (1.0, SIDE_BY_SIDE + 1, False, 2.0),
        (1.0, SIDE_BY_SIDE + 1, True, 10.0),  # a tenth of the time
        (2.0, SIDE_BY_SIDE + 1, True, 12.0),  # but not more than ten seconds longer
        (16.0, 1, False, 26.0),
    ],
)
def test_a_pass_is_due_after_a_pause_that_fits_the_last_one(
    took: float, lanes: int, catching_up: bool, pause: float
) -> None:
    """Not a moment earlier. The first one is due at once, whatever the clock's start."""
    clock = FakeClock()
    clock.now = 0.0
    calls = Calls(Inline(), clock, Watchdog(), Ready.send_rest)
    commits, _ = commits_of(lanes, calls, clock)
    assert commits.pass_is_due(clock.now, catching_up=catching_up)
    began, slow, quick = clock.now, SlowLane(clock, took), SlowLane(clock, 0.0)
    commits.start_pass([cast("Lane", slow), cast("Lane", quick)], began)

    assert not commits.pass_is_due(began + pause - 0.125, catching_up=catching_up)
    assert commits.pass_is_due(began + pause, catching_up=catching_up)
    commits.start_pass([], began + pause)
    assert commits.pass_is_due(began + pause + INTERVAL, catching_up=catching_up)  # it took no time


def test_no_transaction_becomes_too_old_while_the_task_catches_up() -> None:
    """Of a small `transaction.timeout`, a pause takes a quarter; Kafka would abort what is open for too long."""
    clock, took, timeout = FakeClock(), 2.0, 10.0
    commits, _ = commits_of(SIDE_BY_SIDE + 1, Calls(Inline(), clock, Watchdog(), Ready.send_rest), clock, None, timeout)
    began = clock.now
    commits.start_pass([cast("Lane", SlowLane(clock, took))], began)

    assert commits.pass_is_due(began + took + timeout / 4, catching_up=True)


def test_only_lanes_with_something_to_commit_take_part_in_a_pass() -> None:
    clock = FakeClock()
    commits, _ = commits_of(2, Calls(Inline(), clock, Watchdog(), Ready.send_rest), clock)
    idle, busy = SlowLane(clock, 0.0, dirty=False), SlowLane(clock, 0.0)
    commits.start_pass([cast("Lane", idle), cast("Lane", busy)], clock.now)
    assert (0, 1) == (idle.committed, busy.committed)

    commits.start([cast("Lane", idle), cast("Lane", busy)])  # the commit of the latter is not settled yet

    assert (1, 1) == (idle.committed, busy.committed)


def test_one_lane_reports_for_its_task() -> None:
    """It reports how long earlier commits took; the other lanes report nothing."""
    clock = FakeClock()
    slow, reporter = SlowLane(clock, 2.0), SlowLane(clock, 0.0)
    commits, stopwatch = commits_of(2, Calls(Inline(), clock, Watchdog(), Ready.send_rest), clock, reporter)

    commits.start_pass([cast("Lane", slow), cast("Lane", reporter)], clock.now)

    assert slow.report is None
    assert reporter.report is not None
    assert (Attempt(3, 1), 2.0) == (reporter.report.attempt, reporter.report.times.commit.seconds)
    assert 2 == sum(stopwatch.report().times.commit.counts)
