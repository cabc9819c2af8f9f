"""The watchdog of a worker."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest

from app import watchdog

PROGRAM = """
import time
from app.watchdog import Watchdog
with Watchdog(0.5) as watchdog:
    for _ in range(8):
        time.sleep(0.1); watchdog.feed()
    print("alive", flush=True)
    if {hang}: time.sleep(60)
time.sleep(0.8)
print("left", flush=True)
"""


def run(*, hang: bool) -> tuple[int, str, str, float]:
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(hang=hang)], capture_output=True, text=True, timeout=30, check=False
    )
    return done.returncode, done.stdout, done.stderr, time.monotonic() - began


def test_a_hanging_call_ends_the_process() -> None:
    """A worker that stops feeding its watchdog prints where it hangs and exits; Spark retries the task."""
    code, printed, errors, took = run(hang=True)

    assert 0 != code
    assert "alive\n" == printed
    assert "Timeout" in errors
    assert "time.sleep" in errors or "line" in errors
    assert took < 20


def test_a_fed_watchdog_does_nothing() -> None:
    """The watchdog leaves a task alone that makes progress or has ended."""
    code, printed, _, _ = run(hang=False)

    assert (0, "alive\nleft\n") == (code, printed)


OVERRUN = """
import threading, time
from app.watchdog import Watchdog, in_time
import app.watchdog
app.watchdog.GRACE_SECONDS = 0.2
def call(seconds):
    with in_time(0.3):
        time.sleep(seconds)
with Watchdog(60) as watchdog:
    lane = threading.Thread(target=call, args=({takes},), daemon=True)
    lane.start()
    while lane.is_alive():
        watchdog.look(); time.sleep(0.05)
    watchdog.look()
print("left", flush=True)
"""


@pytest.mark.parametrize(("takes", "ended"), [(0.4, False), (60, True)])
def test_a_call_must_keep_its_own_timeout(*, takes: float, ended: bool) -> None:
    """A call that overruns its timeout by more than the grace ends the process, long before the task's own limit."""
    done = subprocess.run(
        [sys.executable, "-c", OVERRUN.format(takes=takes)], capture_output=True, text=True, timeout=30, check=False
    )

    assert ended == (done.returncode != 0)
    assert ended == ("left" not in done.stdout)
    assert ended == ("time.sleep" in done.stderr or "line" in done.stderr)


def test_a_call_inside_another_keeps_the_earlier_deadline() -> None:
    """When the inner call has returned, the outer one is held to its own deadline again."""
    thread = threading.get_ident()
    with watchdog.in_time(100):
        outer = watchdog._deadlines[thread]
        with watchdog.in_time(5):
            assert outer > watchdog._deadlines[thread]
        with watchdog.in_time(1_000):
            assert outer == watchdog._deadlines[thread]
        assert outer == watchdog._deadlines[thread]
    assert thread not in watchdog._deadlines


HANGING_COMMIT = """
import time
import app.watchdog
from app.executor import task
from app.executor.parse import make_parser
from app.model import Partition, OffsetRange
from tests import fakes

app.watchdog.GRACE_SECONDS = 0.2

class Hanging(fakes.FakeTransaction):
    def _commit(self, at):
        with app.watchdog.in_time(0.3):
            time.sleep(60)

fakes.FakeTransaction = Hanging
partition = Partition("raw", 0)
kafka, task_config, clock = fakes.FakeKafka({partition: []}), fakes.make_task_config(), fakes.FakeClock()
clients = fakes.FakeClients(kafka, task_config, clock)
task.run(fakes.make_assignment(task_config, OffsetRange(partition, None, 0)), clients, make_parser(task_config), seconds=8, runtime=clock.threaded)
"""


def test_a_hanging_commit_of_a_lane_ends_the_worker() -> None:
    """The task waits for its lanes, but a commit that overruns its timeout ends the worker."""
    done = subprocess.run(
        [sys.executable, "-c", HANGING_COMMIT], capture_output=True, text=True, timeout=30, check=False
    )

    assert 1 == done.returncode
    assert "_commit" in done.stderr
