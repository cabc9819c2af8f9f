"""The clocks and threads of a process, which a simulation can replace."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

T = TypeVar("T")


class Timings(NamedTuple):
    """The driver's patience, in seconds."""

    stalled: float = 15.0
    """
    How long a commit may be overdue before its partition or task is considered stalled.

    Longer than the pause of 10 s that may follow a slow pass over many lanes (`app.executor.commits`). A stopped worker
    is found within 30 s: python -m tests.chaos run --fault "worker stopped".
    """
    start: float = 30.0
    """
    Added to `stalled` before a task's first commit.

    On a busy machine a Python worker is slow to start, and a new round would have to start it again.
    """
    election: float = 15.0
    """
    How long to defer rebalancing after partitions lose or gain a leader.

    All partitions pause while Kafka elects leaders and coordinators. A task's throughput cannot be judged then, and
    a new plan would cost all of them a second pause.
    """
    gone: float = 60.0
    """How long a run may commit nothing before it counts as dead."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """
    What the driver and a task use of the machine they run on.

    Args:
        monotonic: a monotonic clock in seconds.
        wall_clock: seconds since the epoch.
        threads: creates a pool from its maximum size and the prefix of its threads' names.
    """

    monotonic: Callable[[], float] = time.monotonic
    wall_clock: Callable[[], float] = time.time
    threads: Callable[[int, str], Executor] = ThreadPoolExecutor
    host: str = field(default_factory=socket.gethostname)
    timings: Timings = field(default_factory=Timings)

    def background(self, call: Callable[[], T]) -> Future[T]:
        """Run a call in a daemon thread of its own and return its future; the process may exit before the call ends."""
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(call())
            except BaseException as error:  # noqa: BLE001  # the future raises it
                future.set_exception(error)

        threading.Thread(target=run, daemon=True).start()
        return future


REAL = Runtime()
