"""The watchdog of a worker."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest

from app import watchdog
from app.watchdog import Deadline, in_time
from tests.support.waiting import PATIENCE

PROGRAM = """
import time
from app.watchdog import Watchdog
with Watchdog(3) as watchdog:
    for _ in range(8):
        time.sleep(0.45); watchdog.feed()
    print("alive", flush=True)
    if {hang}: time.sleep(3_600)
time.sleep(3.3)
print("left", flush=True)
"""


def run(*, hang: bool) -> tuple[int, str, str]:
    command = [sys.executable, "-c", PROGRAM.format(hang=hang)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    return done.returncode, done.stdout, done.stderr


def test_a_hanging_call_ends_the_process() -> None:
    """A worker that stops feeding its watchdog prints where it hangs and exits."""
    code, printed, errors = run(hang=True)

    assert 0 != code
    assert "alive\n" == printed
    assert "Timeout" in errors
    assert "time.sleep" in errors or "line" in errors


def test_a_fed_watchdog_does_nothing() -> None:
    """The watchdog leaves a task alone while it makes progress and after it has ended."""
    code, printed, _ = run(hang=False)

    assert (0, "alive\nleft\n") == (code, printed)


def test_a_call_must_keep_its_own_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that exceeds its timeout by more than the grace is reported to the waiting thread."""
    monkeypatch.setattr(watchdog, "GRACE_SECONDS", 0.01)
    with Deadline() as deadline:
        with in_time(0.0, "commit_transaction"):
            in_its_time = deadline.overdue
            time.sleep(0.05)
            after = deadline.overdue
        assert ("", "commit_transaction (0 s)") == (in_its_time, after)
        assert "" == deadline.overdue


def test_a_call_inside_another_keeps_the_earlier_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the inner call returns, the outer call's deadline applies again."""
    monkeypatch.setattr(watchdog, "GRACE_SECONDS", 0.0)
    with Deadline() as deadline, in_time(100, "outer"):
        with in_time(-1, "inner"), in_time(1_000, "innermost"):
            assert "inner (-1 s)" == deadline.overdue
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
