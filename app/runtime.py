"""The clocks and threads of a process: the real ones, unless a simulation hands in its own."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field


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


REAL = Runtime()
