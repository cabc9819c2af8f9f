"""Ends a worker process that hangs inside a C call, because nothing in Python can interrupt that."""

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
from typing import Self

# Longer than the task's own thread may be busy between two feedings. What may wait for Kafka runs in other threads.
LIMIT_SECONDS = 30.0
# How much longer than its own timeout a call may take before it counts as hanging.
GRACE_SECONDS = 2.0
# To set faulthandler's timer ends one thread and starts another, which takes up to a millisecond.
RESET_SECONDS = 1.0

_deadlines: dict[int, float] = {}
"""The deadline of each thread that is inside a call with a timeout of its own."""


@contextmanager
def in_time(seconds: float) -> Iterator[None]:
    """
    Surround a call that promises to return within so many seconds; the process ends if the call does not.

    `send_offsets_to_transaction` can ignore its timeout while the group coordinator is down (librdkafka #5456). Until
    the process ends, its open transactions hold back every read_committed reader. So each call is held to its timeout.
    A call inside another one is held to the earlier deadline.
    """
    thread = threading.get_ident()
    outer = _deadlines.get(thread, math.inf)
    _deadlines[thread] = min(outer, time.monotonic() + seconds + GRACE_SECONDS)
    try:
        yield
    finally:
        if outer == math.inf:
            del _deadlines[thread]
        else:
            _deadlines[thread] = outer


class Watchdog:
    """
    A dead man's switch: unless it is fed, the process prints its stacks to stderr and exits, and Spark tries again.

    Feeding it also checks the calls of all other threads (`in_time`). faulthandler's timer is a C thread, so it works
    even if the hanging call holds the interpreter's lock.
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
        self.look()
        now = time.monotonic()
        if now < self._next_reset:
            return
        self._next_reset = now + min(RESET_SECONDS, self._seconds / 10)
        faulthandler.dump_traceback_later(self._seconds, exit=True, file=sys.__stderr__ or sys.stderr)

    def look(self) -> None:
        """End the process if a call of any thread is past its deadline."""
        now = time.monotonic()
        if any(deadline < now for deadline in list(_deadlines.values())):
            faulthandler.dump_traceback(file=sys.__stderr__ or sys.stderr)
            os._exit(1)
