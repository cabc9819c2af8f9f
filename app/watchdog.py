"""
Notices what does not return: a call of a thread, by its deadline, and a whole worker, which then ends.

Nothing in Python can interrupt a C call. Where one thread hangs, the others can go on without it; where the task's own
thread does, or the interpreter's lock is held, only the end of the process helps.
"""

from __future__ import annotations

import faulthandler
import math
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Never, Self

# Longer than the task's own thread may be busy between two feedings. What may wait for Kafka runs in other threads.
LIMIT_SECONDS = 30.0
# How much longer than its own timeout a call may take before it counts as overdue.
GRACE_SECONDS = 2.0
# To set faulthandler's timer ends one thread and starts another, which takes up to a millisecond.
RESET_SECONDS = 1.0

_of_thread = threading.local()


class Deadline:
    """By when a thread must return from what it does in the `with` block; any thread may ask."""

    def __init__(self) -> None:
        self._due = (math.inf, "")
        """When what must return."""

    @property
    def overdue(self) -> str:
        """The call that should have returned, with its timeout; empty if there is none."""
        at, call = self._due
        return call if time.monotonic() > at else ""

    def __enter__(self) -> Self:
        _of_thread.deadline = self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        del _of_thread.deadline

    @contextmanager
    def within(self, seconds: float, call: str) -> Iterator[None]:
        """Surround a call that promises to return within so many seconds; an earlier deadline around it stays."""
        outer = self._due
        self._due = min(outer, (time.monotonic() + seconds + GRACE_SECONDS, f"{call} ({seconds:.0f} s)"))
        try:
            yield
        finally:
            self._due = outer


@contextmanager
def in_time(seconds: float, call: str) -> Iterator[None]:
    """
    Surround a call that promises to return within so many seconds, for whoever waits for this thread.

    `send_offsets_to_transaction` can ignore its timeout while a coordinator is down (librdkafka #5456), and its open
    transaction holds back every read_committed reader meanwhile.
    """
    with getattr(_of_thread, "deadline", Deadline()).within(seconds, call):
        yield


class Watchdog:
    """
    A dead man's switch: unless it is fed, the process prints its stacks to stderr and exits, and Spark tries again.

    faulthandler's timer is a C thread, so it works even if a hanging call holds the interpreter's lock.
    """

    def __init__(self, seconds: float = LIMIT_SECONDS) -> None:
        self._seconds = seconds
        self._next_reset = 0.0

    def __enter__(self) -> Self:
        self.feed()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        faulthandler.cancel_dump_traceback_later()

    def feed(self) -> None:
        """Report that the task is alive; again within a second this costs nothing."""
        now = time.monotonic()
        if now < self._next_reset:
            return
        self._next_reset = now + min(RESET_SECONDS, self._seconds / 10)
        faulthandler.dump_traceback_later(self._seconds, exit=True, file=sys.__stderr__ or sys.stderr)

    def bite(self) -> Never:
        """End the process now."""
        faulthandler.dump_traceback(file=sys.__stderr__ or sys.stderr)
        os._exit(1)
