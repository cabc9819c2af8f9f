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

    commit_overdue: float = 15.0
    """
    How long a commit may be overdue before the round is planned again.

    Longer than the pause of 10 s that may follow a slow pass over many lanes (`app.executor.commits`). A stopped worker
    is found within 30 s: python -m tests.chaos run --fault "worker stopped".
    """
    commit_overdue_each: float = 0.25
    """Added for each partition of the task: to open hundreds takes long, and then each rarely gets its turn."""
    start: float = 30.0
    """Added before a task's first commit: a busy machine starts workers slowly, and anew for a new round."""
    election: float = 15.0
    """
    How long to defer rebalancing after partitions lose or gain a leader.

    All partitions pause while Kafka elects leaders and coordinators. A task's throughput cannot be judged then, and
    a new plan would cost all of them a second pause.
    """

    sign_of_life: float = 3.0
    """How long to look for a commit of another run: if none comes, none works. Each task commits once a second."""
    gone: float = 60.0
    """How long a run may commit nothing before it counts as dead."""

    look: float = 0.1
    """How often a running round is asked whether it has ended."""
    watch: float = 1.0
    """How often it is asked for more. Ten times a second cost 0.4 CPU-seconds per million records (make bench)."""
    control_fence: float = 2.5
    """How long tasks may take to commit and report after their control partitions are fenced."""
    fence_all: float = 2.0
    """How long they may then take after all partitions are fenced."""
    kill: float = 4.0
    """How long their killed job may then take to end."""
    overrun: float = 4.0
    """
    How long after its deadline a task may take to open and commit.

    After that the task or its machine is stuck, and all other partitions are waiting for the next round. To see how
    long they wait: python -m tests.chaos run --fault "worker stopped".
    """
    overrun_each: float = 0.1
    """Added for each partition of the task."""

    def signs_of_life(self, commit_seconds: float) -> float:
        """Return how long to look before the group counts as idle: a busy partition commits each `commit_seconds`."""
        return max(self.sign_of_life, 2 * commit_seconds)

    def for_slow_tasks(self, factor: int) -> Timings:
        """Return the same, except that tasks have this many times as long to start, to commit and to end."""
        return self._replace(
            commit_overdue=factor * self.commit_overdue,
            start=factor * self.start,
            overrun=factor * self.overrun,
            overrun_each=factor * self.overrun_each,
        )


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
