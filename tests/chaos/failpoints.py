"""
Named points in a worker's flow at which the harness can kill or stop it. Runs in Spark's Python workers.

A file with the name of a point arms it; its text is the signal. The first worker that passes the point renames the
file to `hit-POINT-PID` and sends the signal to itself.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

STEPS = ("init", "fetch", "send", "offsets", "commit")
POINTS = tuple(f"{when}-{step}" for step in STEPS for when in ("before", "after"))


class Failpoints:
    """The points, in a folder that the nemesis shares with all workers on this machine."""

    def __init__(self, folder: str | Path) -> None:
        """Set the folder."""
        self._folder = str(folder)

    @contextmanager
    def around(self, step: str) -> Iterator[None]:
        """Pass the point before the block and the point after it."""
        self._pass(f"before-{step}")
        yield
        self._pass(f"after-{step}")

    def _pass(self, point: str) -> None:
        armed = Path(self._folder, point)
        try:
            number = signal.Signals[armed.read_text()]
            armed.rename(Path(self._folder, f"hit-{point}-{os.getpid()}"))
        except FileNotFoundError:  # not armed, as nearly always; or another worker was first
            return
        os.kill(os.getpid(), number)

    def arm(self, point: str, number: signal.Signals) -> None:
        """Send this signal to the next worker that passes the point."""
        ready = Path(self._folder, f"new-{point}")
        ready.write_text(number.name)
        ready.rename(Path(self._folder, point))

    def await_hit(self, point: str, seconds: float) -> int | None:
        """Wait until a worker passes, and return its pid; after `seconds`, disarm the point and return None."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for hit in Path(self._folder).glob(f"hit-{point}-*"):
                hit.unlink()
                return int(hit.name.rpartition("-")[2])
            time.sleep(0.02)
        Path(self._folder, point).unlink(missing_ok=True)
        return None
