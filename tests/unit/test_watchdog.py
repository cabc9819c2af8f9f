"""The dead man's switch of a worker."""

from __future__ import annotations

import subprocess
import sys
import time

PROGRAM = """
import time
from app.executor.watchdog import Watchdog
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
    """A worker that is not fed prints where it hangs and exits; Spark tries the task again."""
    code, printed, told, took = run(hang=True)

    assert 0 != code
    assert "alive\n" == printed
    assert "Timeout" in told
    assert "time.sleep" in told or "line" in told
    assert took < 20


def test_a_fed_watchdog_does_nothing() -> None:
    """A task that goes on, or has ended, is left alone."""
    code, printed, _, _ = run(hang=False)

    assert (0, "alive\nleft\n") == (code, printed)
