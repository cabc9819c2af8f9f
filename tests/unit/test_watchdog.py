"""The watchdog of a worker."""

from __future__ import annotations

import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

from app import watchdog
from app.watchdog import Deadline, Watchdog, in_time
from tests.fakes.simulation import SimulatedTime
from tests.support.waiting import PATIENCE

HANGS = """
import time
from app.watchdog import Watchdog
with Watchdog(0.5) as watchdog:
    watchdog.feed()
    time.sleep(3_600)
print("left")
"""


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimulatedTime:
    """Return the clock of the watchdog."""
    time = SimulatedTime()
    monkeypatch.setattr(watchdog, "time", SimpleNamespace(monotonic=time))
    return time


def test_a_hanging_call_ends_the_process() -> None:
    """A worker that stops feeding its watchdog prints where it hangs and exits."""
    done = subprocess.run([sys.executable, "-c", HANGS], capture_output=True, text=True, timeout=PATIENCE, check=False)

    assert (1, "") == (done.returncode, done.stdout)
    assert "Timeout" in done.stderr
    assert "line" in done.stderr


def test_a_fed_watchdog_does_nothing(clock: SimulatedTime, monkeypatch: pytest.MonkeyPatch) -> None:
    """The watchdog leaves a task alone while it makes progress and after it has ended."""
    exits_at: list[float] = []
    timer = SimpleNamespace(
        dump_traceback_later=lambda seconds, **_: exits_at.append(clock.now + seconds),
        cancel_dump_traceback_later=exits_at.clear,
    )
    monkeypatch.setattr(watchdog, "faulthandler", timer)

    with Watchdog(3) as fed:
        for _ in range(80):
            clock.pass_by(0.45)
            assert clock.now < exits_at[-1]
            fed.feed()

    assert [] == exits_at


def test_a_call_must_keep_its_own_timeout(clock: SimulatedTime) -> None:
    """A call that exceeds its timeout by more than the grace is reported to the waiting thread."""
    with Deadline() as deadline:
        with in_time(5.0, "commit_transaction"):
            clock.pass_by(5.0 + watchdog.GRACE_SECONDS)
            in_its_time = deadline.overdue
            clock.pass_by(0.1)
            after = deadline.overdue
        assert ("", "commit_transaction (5 s)") == (in_its_time, after)
        assert "" == deadline.overdue


def test_a_call_inside_another_keeps_the_earlier_deadline(clock: SimulatedTime) -> None:
    """After the inner call returns, the outer call's deadline applies again."""
    with Deadline() as deadline, in_time(100, "outer"):
        with in_time(1, "inner"), in_time(1_000, "innermost"):
            clock.pass_by(50)
            assert "inner (1 s)" == deadline.overdue
        assert "" == deadline.overdue


def test_threads_have_deadlines_of_their_own() -> None:
    """A thread's deadline affects neither other threads nor its own later calls."""
    with Deadline() as deadline:
        other = threading.Thread(target=lambda: in_time(-10, "in another thread").__enter__())
        other.start()
        other.join()
        assert "" == deadline.overdue
    with in_time(-10, "later"):
        assert "" == deadline.overdue


def test_a_worker_can_be_ended_at_once() -> None:
    """The process prints where its threads hang, and exits."""
    program = "from app.watchdog import Watchdog\nWatchdog().bite()\nprint('left')"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE, check=False
    )

    assert (1, "") == (done.returncode, done.stdout)
    assert "in bite" in done.stderr
