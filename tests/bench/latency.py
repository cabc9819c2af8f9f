"""
Measures the latency from producer to read_committed reader of the sink, by commit interval and load.

Usage: python -m tests.bench.latency [--intervals S,S,...] [--loads PERCENT,...] [--seconds N] [--throughput N] [--cores N]

The load is a percentage of the throughput that Winnow sustains while it shares the cores with producer, broker and
reader. To stay cheap, the reader follows only one of eight partitions. Its resolution is 10 ms.
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
RESOLUTION_SECONDS = 0.01
START_SECONDS = 60.0
# Ignore the first seconds of a feed, while processes start and caches fill.
SETTLING_SECONDS = 3.0
QUIET_SECONDS = 3.0
PROBE_PER_SECOND = 5_000.0
UNBOUNDED_PER_SECOND = 1_000_000.0
MAX_LAG = 300_000
ROUND_SECONDS = 2.0
ADDED_PARTITIONS = 6
ADD_EVERY_SECONDS = 5.0


class NothingReceived(Exception):
    """The reader receives no records."""


@dataclass(slots=True)
class Received:
    """
    The batches that a reader received.

    Args:
        arrivals: when each batch arrived, in seconds since the epoch.
        due: for each batch, when its records were due at the source, in seconds since the epoch.
    """

    arrivals: list[float] = field(default_factory=list)
    due: list[list[float]] = field(default_factory=list)

    def since(self, moment: float) -> Received:
        """Return the batches that arrived after this time."""
        kept = [number for number, arrival in enumerate(self.arrivals) if arrival >= moment]
        return Received([self.arrivals[number] for number in kept], [self.due[number] for number in kept])

    def latencies(self) -> list[float]:
        """Return the seconds between due time and arrival, for each record."""
        pairs = zip(self.arrivals, self.due, strict=True)
        return [arrival - due for arrival, batch in pairs for due in batch]

    def gaps(self) -> list[float]:
        """Return the seconds between consecutive arrivals, longest first."""
        return sorted((later - one for one, later in zip(self.arrivals, self.arrivals[1:], strict=False)), reverse=True)

    def per_second(self) -> float:
        """Return how many records arrived per second."""
        return sum(map(len, self.due[1:])) / (self.arrivals[-1] - self.arrivals[0])


class ArrivalReader:
    """Follows one partition of the sink."""

    def __init__(self, job: Job) -> None:
        self._consumer = Consumer({**READER, "bootstrap.servers": job.bootstrap})
        self._consumer.assign([TopicPartition(job.sink, 0, OFFSET_BEGINNING)])

    def read_during(self, feed: BaseProcess) -> Received:
        """
        Read until the feed has ended and no more records arrive. The first record may take long if the service is still
        starting.

        Raises:
            NothingReceived: no record arrived in time.
        """
        received, last = Received(), time.time()
        while feed.is_alive() or not received.arrivals or time.time() - last < QUIET_SECONDS:
            if batch := self._consumer.consume(10_000, RESOLUTION_SECONDS):
                last = time.time()
                received.arrivals.append(last)
                received.due.append([message.timestamp()[1] / 1000 for message in batch if message.error() is None])
            if time.time() - last > START_SECONDS:
                message = f"nothing has arrived for {START_SECONDS:.0f} s"
                raise NothingReceived(message)
        return received


class Row(NamedTuple):
    """The result for one load at one commit interval."""

    interval: float
    load: float
    per_second: float
    latencies: list[float]


def main() -> int:
    """Print a table of latencies and one of the pauses at a rebalance."""
    options = parse_options()
    keep_to(options.cores)
    rows, pauses = [], []
    with Broker() as broker, tempfile.TemporaryDirectory(prefix="winnow-bench-") as folder:
        throughput = options.throughput or calibrated(broker, Path(folder))
        say(f"throughput: {throughput:,.0f} records/s")
        rates = {load: load / 100 * throughput for load in options.loads}
        for interval in options.intervals:
            rows += latencies(broker, Path(folder), interval, rates, options.seconds)
            pauses.append(rebalance_gap(broker, Path(folder), interval))
    print(f"Throughput, with producer and reader on the same cores: {throughput:,.0f} records/s\n")
    print(latency_table(rows), "\n")
    print(markdown(["commit interval", "rebalances", "usual gap", "gap at a rebalance", "longest"], pauses))
    return 0


def parse_options() -> argparse.Namespace:
    """Parse the command line."""
    options = argparse.ArgumentParser(prog="python -m tests.bench.latency", description=__doc__.splitlines()[1])
    options.add_argument("--intervals", type=numbers, default=[0.1, 0.5, 2.0], help="commit intervals, in seconds")
    options.add_argument("--loads", type=numbers, default=[10.0, 50.0, 80.0], help="in percent of the throughput")
    options.add_argument("--seconds", type=float, default=35.0, help="duration of each load; default: %(default)s")
    options.add_argument("--throughput", type=float, default=0.0, help="in records/s; by default it is measured first")
    options.add_argument("--cores", type=int, default=2, help="cores that all processes share; default: %(default)s")
    return options.parse_args()


def numbers(text: str) -> list[float]:
    """Parse numbers that are separated by commas."""
    return [float(number) for number in text.split(",")]


@contextmanager
def running(
    name: str, broker: Broker, folder: Path, settings: dict[str, object]
) -> Iterator[tuple[Job, ArrivalReader]]:
    """Run Winnow on new topics. The block starts once the first records are delivered."""
    source = broker.create_topic(f"{name}.raw", PARTITIONS)
    with prepared(name, broker, source, PARTITIONS, folder) as job:
        process = ManagedProcess(service(job, settings), log(job), cwd=job.folder)
        try:
            reader = ArrivalReader(job)
            reader.read_during(feed.start(job, feed.Pace(PROBE_PER_SECOND), SETTLING_SECONDS))
            yield job, reader
        finally:
            process.stop_and_wait()
    drop(broker, [source])


def log(job: Job) -> Path:
    """Return the path of Winnow's log."""
    return job.folder / "log"


def calibrated(broker: Broker, folder: Path, seconds: float = 15.0) -> float:
    """Return the throughput in records/s, measured on the same cores with a feed that stays slightly ahead."""
    with running("throughput", broker, folder, {}) as (job, reader):
        received = reader.read_during(feed.start(job, feed.Pace(UNBOUNDED_PER_SECOND, MAX_LAG), seconds))
    return PARTITIONS * received.since(received.arrivals[0] + SETTLING_SECONDS).per_second()


def latencies(broker: Broker, folder: Path, interval: float, rates: Mapping[float, float], seconds: float) -> list[Row]:
    """Return a row for each load. `rates` maps the load in percent to its records/s."""
    rows = []
    with running(f"interval-{interval}", broker, folder, {"commit.interval": f"{interval}s"}) as (job, reader):
        for load, rate in rates.items():
            received = reader.read_during(feed.start(job, feed.Pace(rate), seconds))
            counted = received.since(received.arrivals[0] + SETTLING_SECONDS)
            rows.append(Row(interval, load, PARTITIONS * counted.per_second(), counted.latencies()))
            say(" ".join(cells(rows[-1])))
    return rows


def rebalance_gap(broker: Broker, folder: Path, interval: float) -> list[str]:
    """Measure at a light load how long a reader waits when added partitions cause a rebalance."""
    settings: dict[str, object] = {"commit.interval": f"{interval}s", "round.interval": f"{ROUND_SECONDS}s"}
    with running(f"gap-{interval}", broker, folder, settings) as (job, reader):
        before = rounds(log(job))
        process = feed.start(job, feed.Pace(PROBE_PER_SECOND), (ADDED_PARTITIONS + 1) * ADD_EVERY_SECONDS)
        threading.Thread(target=add_partitions, args=(broker, job.source), daemon=True).start()
        gaps = reader.read_during(process).gaps()
        count = rounds(log(job)) - before
    usual = gaps[count : count + max(1, round(ADDED_PARTITIONS * ADD_EVERY_SECONDS / interval) - count)]
    between = gaps[:count]
    return [
        f"{interval:g} s",
        f"{count}",
        f"{percentile(usual, 50):.2f} s",
        f"{percentile(between, 50):.2f} s",
        f"{between[0]:.2f} s",
    ]


def add_partitions(broker: Broker, topic: str) -> None:
    """Add one empty partition every few seconds."""
    admin = broker.admin()
    for partitions in range(PARTITIONS + 1, PARTITIONS + 1 + ADDED_PARTITIONS):
        time.sleep(ADD_EVERY_SECONDS)
        admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(30)


def rounds(log: Path) -> int:
    """Return how many rounds have ended, from Winnow's log."""
    lines = [line for line in log.read_text().splitlines() if line.startswith("{")]
    return sum(json.loads(line).get("event") == "round" for line in lines)


def latency_table(rows: Sequence[Row]) -> str:
    """Return the latencies as a Markdown table of percentiles."""
    titles = ["commit interval", "load", "records/s", "p50", "p99", "p99.9", "longest"]
    return markdown(titles, [cells(row) for row in rows])


def cells(row: Row) -> list[str]:
    """Return the cells of a row."""
    seconds = [percentile(row.latencies, percent) for percent in (50, 99, 99.9, 100)]
    return [
        f"{row.interval:g} s",
        f"{row.load:.0f} %",
        f"{row.per_second:,.0f}",
        *(f"{each:.2f} s" for each in seconds),
    ]


if __name__ == "__main__":
    sys.exit(main())
