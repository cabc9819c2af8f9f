"""
Measures how long readers of the sink wait while a later generation takes over, at a steady rate.

Usage: python -m tests.bench.takeover [--per-second N] [--times N] [--cores N]

A read_committed reader follows every partition. The pause of a take-over is the longest time without a new line in any
partition, from the start of the later service until three seconds after the end of the earlier one. For comparison, the
table shows the longest pause in the ten seconds before that start. All processes share the cores, so a starting JVM
slows all of them.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from datetime import datetime
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from app.embedded.broker import Broker
from app.embedded.process import ManagedProcess
from tests.bench import feed
from tests.bench.job import Job, keep_to, prepared
from tests.bench.latency import PARTITIONS, READER, RESOLUTION_SECONDS
from tests.bench.report import markdown, say
from tests.bench.systems import service
from tests.chaos.cluster import until

BEFORE_SECONDS, AFTER_SECONDS = 10.0, 3.0
PATIENCE_SECONDS = 120.0
# The earlier service's log event when it notices the later one, and how long before it the hand-over may have begun.
NOTICED, HAND_OVER_SECONDS = "taken_over", 5.0


class Arrivals:
    """Follows all partitions of the sink in a thread and records when each of them received new lines."""

    def __init__(self, job: Job) -> None:
        self._consumer = Consumer({**READER, "bootstrap.servers": job.bootstrap})
        self._consumer.assign([TopicPartition(job.sink, each, OFFSET_BEGINNING) for each in range(job.partitions)])
        self.times: dict[int, list[float]] = defaultdict(list)
        self.lines = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        while not self._ended.is_set():
            batch = self._consumer.consume(10_000, RESOLUTION_SECONDS)
            now = time.time()
            for partition in {message.partition() for message in batch}:
                self.times[partition or 0].append(now)
            self.lines += len(batch)
        self._consumer.close()

    def end(self) -> None:
        """Stop reading."""
        self._ended.set()
        self._thread.join()

    def longest_pause(self, begin: float, end: float) -> float:
        """Return the longest time in seconds without a new line in a partition."""
        seen = ([begin, *(at for at in list(times) if begin <= at <= end), end] for times in self.times.values())
        return max(later - earlier for times in seen for earlier, later in pairwise(times))


class Pauses(NamedTuple):
    """What readers saw of one take-over, in seconds."""

    before: float
    start: float
    hand_over: float
    took: float


def main() -> None:
    """Print a table with the longest pause before each take-over and in its two parts."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    options.add_argument("--per-second", type=float, default=100_000, help="records/s; default: %(default)s")
    options.add_argument("--times", type=int, default=3, help="default: %(default)s")
    options.add_argument("--cores", type=int, default=2, help="cores that all processes share; default: %(default)s")
    chosen = options.parse_args()
    keep_to(chosen.cores)
    with Broker() as broker, tempfile.TemporaryDirectory(prefix="winnow-bench-") as folder:
        source = broker.create_topic("raw", PARTITIONS)
        with prepared("takeover", broker, source, PARTITIONS, Path(folder)) as job:
            rows = measure(job, chosen.per_second, chosen.times)
    titles = ["take-over", "pause before", "while the later one starts", "at the hand-over", "it took"]
    print(markdown(titles, [[f"{n}", *(f"{each:.2f} s" for each in row)] for n, row in enumerate(rows, 1)]))


def measure(job: Job, per_second: float, times: int) -> list[Pauses]:
    """Start generation after generation while records flow."""
    running = later = start(job, 1)
    found = []
    arrivals = Arrivals(job)
    feeding = feed.start(job, feed.Pace(per_second), 3_600)
    try:
        wait_for(lambda: len(arrivals.times) == PARTITIONS)
        for generation in range(2, times + 2):
            time.sleep(2 * BEFORE_SECONDS)
            began = time.time()
            later = start(job, generation)
            wait_for(partial(has_ended, running))
            ended = time.time()
            if running.poll() != 0:
                raise RuntimeError(log(job, generation - 1).read_text()[-3_000:])
            time.sleep(AFTER_SECONDS)
            noticed = taken_over_at(log(job, generation - 1))
            pauses = Pauses(
                arrivals.longest_pause(began - BEFORE_SECONDS, began),
                arrivals.longest_pause(began, noticed - HAND_OVER_SECONDS),
                arrivals.longest_pause(noticed - HAND_OVER_SECONDS, ended + AFTER_SECONDS),
                ended - began,
            )
            say(f"{pauses}, {arrivals.lines:,} lines so far")
            found.append(pauses)
            running = later
    finally:
        feeding.terminate()
        for each in {running, later}:
            each.stop_and_wait()
        arrivals.end()
    return found


def start(job: Job, generation: int) -> ManagedProcess:
    """Start a service of this generation."""
    return ManagedProcess(service(job, {"generation": generation}), log(job, generation), cwd=job.folder)


def log(job: Job, generation: int) -> Path:
    """Return the path of a service's log."""
    return job.folder / f"log-{generation}"


def taken_over_at(log: Path) -> float:
    """Return when the earlier service noticed the later one, in seconds since the epoch."""
    events = (json.loads(line) for line in log.read_text().splitlines() if line.startswith("{"))
    return next(datetime.fromisoformat(each["timestamp"]).timestamp() for each in events if each["event"] == NOTICED)


def has_ended(process: ManagedProcess) -> bool:
    """Whether a service has ended."""
    return process.poll() is not None


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait for a condition; raise TimeoutError if it does not become true."""
    if not until(condition, PATIENCE_SECONDS):
        raise TimeoutError


if __name__ == "__main__":
    main()
