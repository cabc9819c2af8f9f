"""The clocks and threads of a process: the real ones, unless a simulation hands in its own."""

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
    """For how many seconds the driver waits for what may never come."""

    stalled: float = 15.0
    """
    How long records may wait after their commit was due before something is wrong with their partition or its task.

    That is more than the pause of 10 s that may follow a slow pass over many lanes (`app.executor.commits`).
    A stopped worker is found within 30 s: python -m tests.chaos run --fault "worker stopped".
    """
    start: float = 30.0
    """
    How much longer before the first commit of a task.

    On a busy machine its Python worker takes long to start, and the next round would have to start it again.
    """
    election: float = 15.0
    """
    For how long no rebalance follows when partitions have lost their leader, or got one.

    All partitions pause while Kafka elects leaders and coordinators. What a task keeps up with is not to be seen then,
    and a new plan in the middle of it would cost all of them a second pause.
    """
    gone: float = 60.0
    """After how long a run that has committed nothing counts as gone."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """
    What the driver and a task need of the machine they run on.

    Args:
        monotonic: a clock in seconds that never goes back.
        wall_clock: seconds since the epoch.
        threads: makes a pool of at most so many threads, whose names begin with a prefix.
        host: the name of the machine.
        timings: how long the driver waits.
    """

    monotonic: Callable[[], float] = time.monotonic
    wall_clock: Callable[[], float] = time.time
    threads: Callable[[int, str], Executor] = ThreadPoolExecutor
    host: str = field(default_factory=socket.gethostname)
    timings: Timings = field(default_factory=Timings)

    def background(self, call: Callable[[], T]) -> Future[T]:
        """Run a call in a thread of its own, and return its future; the process may end before the call."""
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(call())
            except BaseException as error:  # noqa: BLE001  # the future raises it
                future.set_exception(error)

        threading.Thread(target=run, daemon=True).start()
        return future


REAL = Runtime()
