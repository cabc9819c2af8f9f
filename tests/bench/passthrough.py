"""Winnow's loop without parser and Spark, to show their cost: consume, produce and commit every value unchanged."""

from __future__ import annotations

import sys
from multiprocessing import get_context
from typing import cast

import numpy as np
import pyarrow as pa

from app.executor import task
from app.kafka.admin import AdminConnection
from app.kafka.clients import TaskClients
from app.kafka.topics import KafkaTopics
from app.model import Assignment, Guarantee, OffsetRange, Partition, Plugin, TaskConfig
from parsers.contract import Parsed

PROCESSES = 2
LONGEST_SECONDS = 600.0


class Passthrough:
    """A parser that accepts every value unchanged."""

    def parse(self, lines: pa.BinaryArray) -> Parsed:
        """Return all values as good lines; tombstones become empty values."""
        values = cast("pa.BinaryArray", lines.fill_null(b""))
        nothing = pa.array([], pa.string())
        return Parsed(values, np.arange(len(lines), dtype=np.int32), np.zeros(0, np.int32), nothing, nothing)


def work(assignment: Assignment) -> int:
    """Run one task; return how many records it processed."""
    receipts = task.run(assignment, TaskClients(assignment.config), Passthrough(), LONGEST_SECONDS)
    return sum(receipt.records for receipt in receipts)


def main(bootstrap: str, source: str, sink: str, dead_letters: str, group: str) -> None:
    """Copy a whole topic exactly once, in two processes."""
    topics = KafkaTopics(AdminConnection({"bootstrap.servers": bootstrap}))
    partitions = [Partition(source, n) for n in range(topics.source_topics([source], None)[source].partitions)]
    ends = {partition: marks.last_stable for partition, marks in topics.watermarks(partitions).items()}
    task_config = TaskConfig(
        group=group,
        guarantee=Guarantee.EXACTLY_ONCE,
        sink=topics.destination(sink),
        dead_letters=topics.destination(dead_letters),
        format="raw",
        parser=Plugin(""),
        kafka={"bootstrap.servers": bootstrap},
    )
    ranges = [OffsetRange(partition, None, 0, end) for partition, end in ends.items()]
    assignments = [Assignment(task_config, tuple(ranges[n::PROCESSES]), LONGEST_SECONDS, 0.0) for n in range(PROCESSES)]
    with get_context("spawn").Pool(PROCESSES) as processes:
        print("records:", sum(processes.map(work, assignments)))


if __name__ == "__main__":
    main(*sys.argv[1:])
