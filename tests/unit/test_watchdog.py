"""The watchdog of a worker."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest

from app import watchdog
from app.watchdog import Deadline, in_time

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


def test_a_call_must_keep_its_own_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits for a thread learns which of its calls overruns its timeout by more than the grace."""
    monkeypatch.setattr(watchdog, "GRACE_SECONDS", 0.01)
    with Deadline() as deadline:
        with in_time(0.0, "commit_transaction"):
            in_its_time = deadline.overdue
            time.sleep(0.05)
            after = deadline.overdue
        assert ("", "commit_transaction (0 s)") == (in_its_time, after)
        assert "" == deadline.overdue


def test_a_call_inside_another_keeps_the_earlier_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the inner call has returned, the outer one is held to its own deadline again."""
    monkeypatch.setattr(watchdog, "GRACE_SECONDS", 0.0)
    with Deadline() as deadline, in_time(100, "outer"):
        with in_time(-1, "inner"), in_time(1_000, "innermost"):
            assert "inner (-1 s)" == deadline.overdue
        assert "" == deadline.overdue


def test_threads_have_deadlines_of_their_own() -> None:
    """What one thread waits for says nothing about another, or about what the thread does later."""
    with Deadline() as deadline:
        other = threading.Thread(target=lambda: in_time(-10, "in another thread").__enter__())
        other.start()
        other.join()
        assert "" == deadline.overdue
    with in_time(-10, "later"):
        assert "" == deadline.overdue


HANGING_COMMITS = """
import time
import app.watchdog
from app.executor import task
from app.executor.parse import make_parser
from app.model import Partition, OffsetRange
from tests import fakes

app.watchdog.GRACE_SECONDS = 0.2

class Hanging(fakes.FakeTransaction):
    def _commit(self, at):
        with app.watchdog.in_time(0.3, "commit_transaction"):
            time.sleep(60)

fakes.FakeTransaction = Hanging
partition = Partition("raw", 0)
kafka, task_config, clock = fakes.FakeKafka({partition: []}), fakes.make_task_config(), fakes.FakeClock()
clients = fakes.FakeClients(kafka, task_config, clock)
consumer = fakes.FakeConsumer(clients, tick=0.0)
poll = consumer.poll
consumer.poll = lambda seconds: time.sleep(0.01) or poll(seconds)
clients.consumer = lambda: consumer
fakes.FakeClock.__call__ = lambda _: time.monotonic()
task.run(fakes.make_assignment(task_config, OffsetRange(partition, None, 0)), clients, make_parser(task_config), seconds=25, runtime=clock.threaded)
"""


def test_a_lane_that_hangs_again_and_again_ends_the_worker() -> None:
    """The task goes on without one commit that does not return, but if its successor's does not either, the worker ends."""
    done = subprocess.run(
        [sys.executable, "-c", HANGING_COMMITS], capture_output=True, text=True, timeout=30, check=False
    )

    assert 1 == done.returncode
    assert 2 == done.stderr.count("in _commit")
    assert 1 == done.stdout.count("commit_transaction (0 s) does not return; a new producer takes over")
