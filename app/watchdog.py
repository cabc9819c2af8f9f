"""Ends a worker process that hangs inside a C call, which nothing in Python can interrupt."""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

# Longer than any step of a task may take by the timeouts of its calls: a commit waits at most 10 + 5 + 5 s.
LIMIT_SECONDS = 30.0
# How much longer than its own timeout a call may take before it counts as hanging.
GRACE_SECONDS = 2.0
# Each time it is wound up, faulthandler's timer ends a thread and starts another: up to a millisecond.
ENOUGH_SECONDS = 1.0

_deadlines: dict[int, float] = {}
"""Of each thread that is inside a call with a timeout of its own."""


@contextmanager
def in_time(seconds: float) -> Iterator[None]:
    """
    Surround a call that promises to return within so many seconds; if it does not keep that, the process ends.

    `send_offsets_to_transaction` can ignore its timeout while the group coordinator is down (librdkafka #5456). Until
    the process ends, its open transactions hold back every read_committed reader, so each call is held to its own word.
    """
    thread = threading.get_ident()
    _deadlines[thread] = time.monotonic() + seconds + GRACE_SECONDS
    try:
        yield
    finally:
        del _deadlines[thread]


class Watchdog:
    """
    A dead man's switch: unless it is fed, the process prints its stacks to stderr and exits; Spark tries again.

    Who feeds it also looks after the calls of all other threads (`in_time`). faulthandler's timer is a C thread, so it
    works even if the hanging call holds the interpreter's lock.
    """

    def __init__(self, seconds: float = LIMIT_SECONDS) -> None:
        self._seconds = seconds
        self._enough_until = 0.0

    def __enter__(self) -> Self:
        self.feed()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        faulthandler.cancel_dump_traceback_later()

    def feed(self) -> None:
        """Say that the task is alive; said again too soon, it costs nothing."""
        self.look()
        now = time.monotonic()
        if now < self._enough_until:
            return
        self._enough_until = now + min(ENOUGH_SECONDS, self._seconds / 10)
        faulthandler.dump_traceback_later(self._seconds, exit=True, file=sys.__stderr__ or sys.stderr)

    def look(self) -> None:
        """End the process if a call of any thread has not kept its word."""
        now = time.monotonic()
        if any(deadline < now for deadline in list(_deadlines.values())):
            faulthandler.dump_traceback(file=sys.__stderr__ or sys.stderr)
            os._exit(1)
