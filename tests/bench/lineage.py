"""
Measures the CPU cost of `lineage.headers` for one task and the broker, without Spark. Runs with and without it
alternate.

Usage: python -m tests.bench.lineage [--records N] [--runs N]
"""

from __future__ import annotations

import argparse
import time

import psutil

from app.demo.feed import load
from app.demo.lines import Recipe
from app.embedded.broker import Broker
from app.executor import task
from app.executor.parse import make_parser
from app.kafka.admin import AdminConnection
from app.kafka.clients import TaskClients
from app.kafka.topics import KafkaTopics
from app.model import Assignment, FilterRule, Guarantee, OffsetRange, Partition, Plugin, TaskConfig

SECONDS = 3_600.0
IDC = Plugin("idc-access-log")


def main() -> None:
    """Print a line for each run. The first run of each kind is a warm-up."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    options.add_argument("--records", type=int, default=500_000, help="default: %(default)s")
    options.add_argument("--runs", type=int, default=3, help="measured runs of each kind; default: %(default)s")
    chosen = options.parse_args()
    with Broker() as broker:
        load(broker.bootstrap, broker.create_topic("raw"), Recipe(1, chosen.records))
        for run in range(chosen.runs + 1):
            for lineage in (run % 2 == 0, run % 2 == 1):
                worker, server = measure(broker, chosen.records, f"{run}-{lineage}", lineage=lineage)
                what = "with headers" if lineage else "without"
                figures = f"task {worker:.2f}, broker {server:.2f} CPU-s per million records"
                print(f"{what:<13}{figures}{'' if run else ' (warm-up)'}", flush=True)


def measure(
    broker: Broker,
    records: int,
    name: str,
    *,
    source: str = "raw",
    parser: Plugin = IDC,
    filters: tuple[FilterRule, ...] = (),
    lineage: bool = False,
) -> tuple[float, float]:
    """Return the CPU-seconds per million records of this process, which runs the task, and of the broker."""
    kafka = {"bootstrap.servers": broker.bootstrap}
    topics = KafkaTopics(AdminConnection(kafka))
    sink, dead = (topics.destination(broker.create_topic(f"{role}-{name}")) for role in ("clean", "dead"))
    config = TaskConfig(
        name, Guarantee.EXACTLY_ONCE, sink, dead, "auto", parser, kafka, filters=filters, lineage=lineage
    )
    ranges = (OffsetRange(Partition(source, 0), None, 0, records),)
    ours, theirs = time.process_time(), server_seconds(broker)
    with TaskClients(config, ranges=ranges) as clients:
        task.run(Assignment(config, ranges, SECONDS, deadline=0), clients, make_parser(config), SECONDS)
    spent = time.process_time() - ours, server_seconds(broker) - theirs
    return spent[0] / records * 1e6, spent[1] / records * 1e6


def server_seconds(broker: Broker) -> float:
    """Return the CPU-seconds of the broker since its start."""
    servers = [child for pid in broker.pids for child in psutil.Process(pid).children(recursive=True)]
    return float(sum(times.user + times.system for times in (each.cpu_times() for each in servers)))


if __name__ == "__main__":
    main()
