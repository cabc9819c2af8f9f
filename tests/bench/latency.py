"""
Measures the time from a producer to a read_committed reader of the sink, at parts of the throughput, per commit interval.

Usage: python -m tests.bench.latency [--intervals S,S,...] [--loads PERCENT,...] [--seconds N] [--throughput N] [--cores N]

Producer, broker, Winnow and reader share the cores; the throughput is what Winnow keeps up with under these conditions.
The reader follows one of eight partitions, so that its own work does not count; its clock has a grain of 10 ms.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from confluent_kafka.admin import NewPartitions  # type: ignore[attr-defined]  # not in its __all__

from app.embedded.broker import Broker
from app.embedded.process import ManagedProcess
from tests.bench import feed
from tests.bench.job import Job, drop, keep_to, prepared
from tests.bench.report import markdown, percentile, say
from tests.bench.systems import service

PARTITIONS = 8
READER: dict[str, str | int | float | bool] = {
    "group.id": "reader",  # never joined
    "log_level": 0,
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    "fetch.queue.backoff.ms": 2,
}
GRAIN_SECONDS = 0.01
START_SECONDS = 60.0
# A feed's first seconds are not counted: processes start, caches fill.
SETTLING_SECONDS = 3.0
QUIET_SECONDS = 3.0
PROBE_PER_SECOND = 5_000.0
UNBOUNDED_PER_SECOND = 1_000_000.0
AHEAD = 300_000
LOOK_SECONDS = 2.0
GROWTHS = 6
GROW_SECONDS = 5.0


class Never(Exception):
    """Nothing arrives at the reader."""


@dataclass(slots=True)
class Seen:
    """
    What a reader has seen.

    Args:
        arrivals: when each batch arrived, in seconds since the epoch.
        due: for each batch, when its records were due at the source, in seconds since the epoch.
    """

    arrivals: list[float] = field(default_factory=list)
    due: list[list[float]] = field(default_factory=list)

    def since(self, moment: float) -> Seen:
        """Return the batches that arrived after a moment."""
        kept = [number for number, arrival in enumerate(self.arrivals) if arrival >= moment]
        return Seen([self.arrivals[number] for number in kept], [self.due[number] for number in kept])

    def latencies(self) -> list[float]:
        """Return each record's seconds from being due to arriving."""
        pairs = zip(self.arrivals, self.due, strict=True)
        return [arrival - due for arrival, batch in pairs for due in batch]

    def silences(self) -> list[float]:
        """Return the seconds between arrivals, longest first."""
        return sorted((later - one for one, later in zip(self.arrivals, self.arrivals[1:], strict=False)), reverse=True)

    def per_second(self) -> float:
        """Return how many records arrived a second."""
        return sum(map(len, self.due[1:])) / (self.arrivals[-1] - self.arrivals[0])


class Reader:
    """Follows one partition of the sink."""

    def __init__(self, job: Job) -> None:
        self._consumer = Consumer({**READER, "bootstrap.servers": job.bootstrap})
        self._consumer.assign([TopicPartition(job.sink, 0, OFFSET_BEGINNING)])

    def read_during(self, feed: BaseProcess) -> Seen:
        """
        Read until the feed has ended and nothing more comes; at first the service may still have to start.

        Raises:
            Never: nothing came for too long.
        """
        seen, last = Seen(), time.time()
        while feed.is_alive() or not seen.arrivals or time.time() - last < QUIET_SECONDS:
            if batch := self._consumer.consume(10_000, GRAIN_SECONDS):
                last = time.time()
                seen.arrivals.append(last)
                seen.due.append([message.timestamp()[1] / 1000 for message in batch if message.error() is None])
            if time.time() - last > START_SECONDS:
                message = f"nothing has arrived for {START_SECONDS:.0f} s"
                raise Never(message)
        return seen


class Row(NamedTuple):
    """What one load has shown at one commit interval."""

    interval: float
    load: float
    per_second: float
    latencies: list[float]


def main() -> int:
    """Print a table of latencies, and one of the gaps between rounds."""
    options = parse_options()
    keep_to(options.cores)
    rows, gaps = [], []
    with Broker() as broker, tempfile.TemporaryDirectory(prefix="winnow-bench-") as folder:
        throughput = options.throughput or calibrated(broker, Path(folder))
        say(f"throughput: {throughput:,.0f} records/s")
        rates = {load: load / 100 * throughput for load in options.loads}
        for interval in options.intervals:
            rows += latencies(broker, Path(folder), interval, rates, options.seconds)
            gaps.append(gap(broker, Path(folder), interval))
    print(f"Throughput beside producer and reader: {throughput:,.0f} records/s\n")
    print(latency_table(rows), "\n")
    print(markdown(["commit interval", "planned anew", "usual silence", "silence when planned anew", "longest"], gaps))
    return 0


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    options = argparse.ArgumentParser(prog="python -m tests.bench.latency", description=__doc__.splitlines()[1])
    options.add_argument("--intervals", type=numbers, default=[0.1, 0.5, 2.0], help="commit intervals, in seconds")
    options.add_argument("--loads", type=numbers, default=[10.0, 50.0, 80.0], help="percent of the throughput")
    options.add_argument("--seconds", type=float, default=35.0, help="how long each load lasts")
    options.add_argument("--throughput", type=float, default=0.0, help="records/s; by default measured first")
    options.add_argument("--cores", type=int, default=2, help="cores for everything together")
    return options.parse_args()


def numbers(text: str) -> list[float]:
    """Read numbers with commas between them."""
    return [float(number) for number in text.split(",")]


@contextmanager
def running(name: str, broker: Broker, folder: Path, settings: dict[str, object]) -> Iterator[tuple[Job, Reader]]:
    """Run Winnow on fresh topics until it has delivered first records, and stop it in the end."""
    source = broker.create_topic(f"{name}.raw", PARTITIONS)
    with prepared(name, broker, source, PARTITIONS, folder) as job:
        process = ManagedProcess(service(job, settings), log(job), cwd=job.folder)
        try:
            reader = Reader(job)
            reader.read_during(feed.start(job, feed.Pace(PROBE_PER_SECOND), SETTLING_SECONDS))
            yield job, reader
        finally:
            process.end()
    drop(broker, [source])


def log(job: Job) -> Path:
    """Return the file that Winnow logs to."""
    return job.folder / "log"


def calibrated(broker: Broker, folder: Path, seconds: float = 15.0) -> float:
    """Measure the throughput: a feed that keeps a little ahead, on the same cores."""
    with running("throughput", broker, folder, {}) as (job, reader):
        seen = reader.read_during(feed.start(job, feed.Pace(UNBOUNDED_PER_SECOND, AHEAD), seconds))
    return PARTITIONS * seen.since(seen.arrivals[0] + SETTLING_SECONDS).per_second()


def latencies(broker: Broker, folder: Path, interval: float, rates: Mapping[float, float], seconds: float) -> list[Row]:
    """Measure at each load, in percent of the throughput, which is given in records/s."""
    rows = []
    with running(f"interval-{interval}", broker, folder, {"commit.interval": f"{interval}s"}) as (job, reader):
        for load, rate in rates.items():
            seen = reader.read_during(feed.start(job, feed.Pace(rate), seconds))
            counted = seen.since(seen.arrivals[0] + SETTLING_SECONDS)
            rows.append(Row(interval, load, PARTITIONS * counted.per_second(), counted.latencies()))
            say(" ".join(cells(rows[-1])))
    return rows


def gap(broker: Broker, folder: Path, interval: float) -> list[str]:
    """Measure how long a reader waits where a round is planned anew, because partitions are added: a light load."""
    settings: dict[str, object] = {"commit.interval": f"{interval}s", "round.interval": f"{LOOK_SECONDS}s"}
    with running(f"gap-{interval}", broker, folder, settings) as (job, reader):
        before = rounds(log(job))
        process = feed.start(job, feed.Pace(PROBE_PER_SECOND), (GROWTHS + 1) * GROW_SECONDS)
        threading.Thread(target=grow, args=(broker, job.source), daemon=True).start()
        silences = reader.read_during(process).silences()
        count = rounds(log(job)) - before
    usual = silences[count : count + max(1, round(GROWTHS * GROW_SECONDS / interval) - count)]
    between = silences[:count]
    return [
        f"{interval:g} s",
        f"{count}",
        f"{percentile(usual, 50):.2f} s",
        f"{percentile(between, 50):.2f} s",
        f"{between[0]:.2f} s",
    ]


def grow(broker: Broker, topic: str) -> None:
    """Add partitions, now and then one; nothing is written to them."""
    admin = broker.admin()
    for partitions in range(PARTITIONS + 1, PARTITIONS + 1 + GROWTHS):
        time.sleep(GROW_SECONDS)
        admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(30)


def rounds(log: Path) -> int:
    """Return how many rounds have ended."""
    lines = [line for line in log.read_text().splitlines() if line.startswith("{")]
    return sum(json.loads(line).get("event") == "round" for line in lines)


def latency_table(rows: Sequence[Row]) -> str:
    """Return the percentiles as a Markdown table."""
    titles = ["commit interval", "load", "records/s", "p50", "p99", "p99.9", "longest"]
    return markdown(titles, [cells(row) for row in rows])


def cells(row: Row) -> list[str]:
    """Return a row of the table."""
    told = [percentile(row.latencies, percent) for percent in (50, 99, 99.9, 100)]
    return [f"{row.interval:g} s", f"{row.load:.0f} %", f"{row.per_second:,.0f}", *(f"{each:.2f} s" for each in told)]


if __name__ == "__main__":
    sys.exit(main())
