"""
Runs thousands of short tasks without any fault: `python -m tests.chaos false-fences`.

On each partition, one task follows the other. Each fences its predecessor, which has already ended; so none of them
may ever report that it was fenced.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from app.model import OffsetRange, Outcome, Receipt, TaskConfig
from tests.chaos.alone import PARTITIONS, SLOW_COMMIT, Testbed, Worker, outcome, run_task, testbed

LINES = 5
"""In the offset range of each task."""
TASKS_PER_WORKER = 50
"""After these, another process runs the next tasks."""
EXPECTED = {Outcome.DONE.value, f"{Outcome.DONE.value}, reopened after: {SLOW_COMMIT}"}
"""How a task may end. On a busy machine a commit may be so slow that the task replaces its producer."""


def run(tasks: int, folder: Path) -> tuple[Path, Counter[str]]:
    """Run the tasks; return the path of the history, and how many tasks ended in which way."""
    each = -(-tasks // PARTITIONS)
    with testbed(folder, arm="false-fences") as bed, ThreadPoolExecutor(PARTITIONS) as threads:
        ended = threads.map(lambda partition: _run_partition(bed, partition, each), range(PARTITIONS))
        return folder / "history.jsonl.gz", sum(ended, Counter())


def _run_partition(bed: Testbed, partition: int, tasks: int) -> Counter[str]:
    """Run the tasks of one partition; return how they ended."""
    ended: Counter[str] = Counter()
    for first in range(0, tasks, TASKS_PER_WORKER):
        start, ranges = bed.written[partition], []
        for number in range(min(TASKS_PER_WORKER, tasks - first)):
            at = start + number * LINES
            ranges.append(bed.offset_range(partition, at, at + LINES))
        bed.write(partition, len(ranges) * LINES)
        receipts = Worker(run_tasks, bed.task_config, ranges).result()
        ended.update(map(outcome, receipts or [None] * len(ranges)))
    return ended


def run_tasks(task_config: TaskConfig, ranges: list[OffsetRange]) -> list[Receipt]:
    """Run tasks one after the other, as a Python worker does that Spark reuses."""
    with tempfile.TemporaryDirectory() as nothing_armed:
        return [run_task(task_config, offset_range, Path(nothing_armed)) for offset_range in ranges]
