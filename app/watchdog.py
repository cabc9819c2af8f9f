"""
Detects what hangs: a thread's call, by its deadline, and a whole worker process, which is then killed.

Python cannot interrupt a C call. If one thread hangs, the others can continue without it. If the task's own thread
hangs, or a call holds the GIL, only exiting the process helps.
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
from typing import Never, Self

# Longer than the task's own thread is ever busy between two feeds. Calls that may wait for Kafka run in other threads.
LIMIT_SECONDS = 30.0
# How far a call may exceed its own timeout before it counts as overdue.
GRACE_SECONDS = 2.0
# Setting faulthandler's timer ends one thread and starts another, which takes up to a millisecond.
RESET_SECONDS = 1.0

_of_thread = threading.local()


class Deadline:
    """The deadline of the calls that a thread makes in the `with` block; any thread may read it."""

    def __init__(self) -> None:
        self._due = (math.inf, "")

    @property
    def overdue(self) -> str:
        """The call that should have returned, with its timeout; empty if there is none."""
        at, call = self._due
        return call if time.monotonic() > at else ""

    def __enter__(self) -> Self:
        _of_thread.deadline = self
        return self

    def __exit__(self, *_: object) -> None:
        del _of_thread.deadline

    @contextmanager
    def within(self, seconds: float, call: str) -> Iterator[None]:
        """Expect the block to end within this many seconds; an earlier outer deadline still applies."""
        outer = self._due
        self._due = min(outer, (time.monotonic() + seconds + GRACE_SECONDS, f"{call} ({seconds:.0f} s)"))
        try:
            yield
        finally:
            self._due = outer


@contextmanager
def in_time(seconds: float, call: str) -> Iterator[None]:
    """
    Expect the block to end within this many seconds, for the thread that waits for this one.

    `send_offsets_to_transaction` can ignore its timeout while a coordinator is down (librdkafka #5456), and meanwhile
    its open transaction holds back every read_committed reader.
    """
    with getattr(_of_thread, "deadline", Deadline()).within(seconds, call):
        yield


@contextmanager
def shown_if_slow() -> Iterator[None]:
    """Dump all stacks to stderr if the block takes longer than LIMIT_SECONDS; it may go on."""
    faulthandler.dump_traceback_later(LIMIT_SECONDS, file=sys.__stderr__ or sys.stderr)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


class Watchdog:
    """
    A dead man's switch: unless it is fed, the process dumps its stacks to stderr and exits, and Spark retries the task.

    faulthandler's timer is a C thread, so it fires even if a hanging call holds the GIL.
    """

    def __init__(self, seconds: float = LIMIT_SECONDS) -> None:
        self._seconds = seconds
        self._next_reset = 0.0

    def __enter__(self) -> Self:
        self.feed()
        return self

    def __exit__(self, *_: object) -> None:
        faulthandler.cancel_dump_traceback_later()

    def feed(self) -> None:
        """Report that the task is alive; calls within a second of the last one cost nothing."""
        now = time.monotonic()
        if now < self._next_reset:
            return
        self._next_reset = now + min(RESET_SECONDS, self._seconds / 10)
        faulthandler.dump_traceback_later(self._seconds, exit=True, file=sys.__stderr__ or sys.stderr)

    def bite(self) -> Never:
        """End the process now."""
        faulthandler.dump_traceback(file=sys.__stderr__ or sys.stderr)
        os._exit(1)
