"""Ends a worker process that hangs inside a C call, which nothing in Python can interrupt."""

from __future__ import annotations

import faulthandler
import sys
import time
from types import TracebackType
from typing import Self

# Longer than any step of a task may take by the timeouts of its calls: a commit waits at most 10 + 5 + 5 s. Shorter is
# better: until the process ends, its open transactions hold back every read_committed reader.
LIMIT_SECONDS = 30.0
# Each time it is wound up, faulthandler's timer ends a thread and starts another: up to a millisecond.
ENOUGH_SECONDS = 1.0


class Watchdog:
    """
    A dead man's switch: unless it is fed, the process prints its stacks to stderr and exits; Spark tries again.

    `send_offsets_to_transaction` can ignore its timeout while the group coordinator is down (librdkafka #5456).
    faulthandler's timer is a C thread, so it works even if the hanging call holds the interpreter's lock.
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
        now = time.monotonic()
        if now < self._enough_until:
            return
        self._enough_until = now + min(ENOUGH_SECONDS, self._seconds / 10)
        faulthandler.dump_traceback_later(self._seconds, exit=True, file=sys.__stderr__ or sys.stderr)
