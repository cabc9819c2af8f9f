"""
Peace: `python -m tests.chaos peace`. Thousands of short tasks, one after the other on each partition, and no harm at all.

Each opens its partition, and so fences the one before, which has ended: nobody may ever be told that it was fenced.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from app.model import OffsetRange, Receipt, TaskConfig
from tests.chaos.alone import PARTITIONS, Stage, Worker, run_task, stage, told

LINES = 5
"""What a task finds to do."""
A_WORKER = 50
"""A worker process does so many tasks, then another takes its place."""


def run(tasks: int, folder: Path) -> tuple[Path, Counter[str]]:
    """Run so many tasks; return the path of the history, and how they ended."""
    each = -(-tasks // PARTITIONS)
    with stage(folder, arm="false-fences") as made, ThreadPoolExecutor(PARTITIONS) as threads:
        ended = threads.map(lambda partition: _row(made, partition, each), range(PARTITIONS))
        return folder / "history.jsonl.gz", sum(ended, Counter())


def _row(made: Stage, partition: int, tasks: int) -> Counter[str]:
    """Run the tasks of one partition."""
    ended: Counter[str] = Counter()
    for first in range(0, tasks, A_WORKER):
        start, ranges = made.written[partition], []
        for number in range(min(A_WORKER, tasks - first)):
            at = start + number * LINES
            ranges.append(made.offset_range(partition, at, at + LINES))
        made.write(partition, len(ranges) * LINES)
        receipts = Worker(run_tasks, made.task_config, ranges).result()
        ended.update(map(told, receipts or [None] * len(ranges)))
    return ended


def run_tasks(task_config: TaskConfig, ranges: list[OffsetRange]) -> list[Receipt]:
    """Do tasks one after the other, as a worker that Spark uses again."""
    with tempfile.TemporaryDirectory() as nothing_armed:
        return [run_task(task_config, offset_range, Path(nothing_armed)) for offset_range in ranges]
