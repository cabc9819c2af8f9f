"""
Named points of a worker's flow, at which it can be made to die or to freeze. Runs in Spark's Python workers.

A point is armed by a file of its name whose text is the signal. The first worker that passes takes the file, leaves
one that says who it was (`hit-POINT-PID`), and gives itself the signal.
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
    """The points, in a folder that the nemesis shares with all workers of this machine."""

    def __init__(self, folder: str | Path) -> None:
        """Remember where."""
        self._folder = str(folder)

    @contextmanager
    def around(self, step: str) -> Iterator[None]:
        """Pass the point before a step, take the step, pass the point after it."""
        self._pass(f"before-{step}")
        yield
        self._pass(f"after-{step}")

    def _pass(self, point: str) -> None:
        armed = Path(self._folder, point)
        try:
            number = signal.Signals[armed.read_text()]
            armed.rename(Path(self._folder, f"hit-{point}-{os.getpid()}"))
        except FileNotFoundError:  # nearly always; or another worker was quicker
            return
        os.kill(os.getpid(), number)

    def arm(self, point: str, number: signal.Signals) -> None:
        """Make the next worker that passes get the signal."""
        ready = Path(self._folder, f"new-{point}")
        ready.write_text(number.name)
        ready.rename(Path(self._folder, point))

    def await_hit(self, point: str, seconds: float) -> int | None:
        """Wait until a worker has passed; return its pid, or None if nobody did (then the point is disarmed)."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for hit in Path(self._folder).glob(f"hit-{point}-*"):
                hit.unlink()
                return int(hit.name.rpartition("-")[2])
            time.sleep(0.02)
        Path(self._folder, point).unlink(missing_ok=True)
        return None
