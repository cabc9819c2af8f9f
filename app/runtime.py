"""The clocks and threads of a process: the real ones, unless a simulation hands in its own."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Runtime:
    """
    What the driver and a task need of the machine they run on.

    Args:
        monotonic: a clock in seconds that never goes back.
        wall_clock: seconds since the epoch.
        threads: makes a pool of at most so many threads, whose names begin with a prefix.
        host: the name of the machine.
    """

    monotonic: Callable[[], float] = time.monotonic
    wall_clock: Callable[[], float] = time.time
    threads: Callable[[int, str], Executor] = ThreadPoolExecutor
    host: str = field(default_factory=socket.gethostname)

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
