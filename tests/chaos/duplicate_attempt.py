"""A process that runs a second attempt of a task while the first still runs, as speculative execution would."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from app import config
from app.driver.discover import Discovery
from app.driver.task_config import task_config
from app.executor import task
from app.executor.parse import make_parser
from app.model import Assignment, latest
from app.offsets.metadata import OffsetMetadata
from app.start import clients
from tests.chaos.failpoints import Failpoints
from tests.chaos.work import HonestClients


def main(file: str, seconds: float, partitions: set[int]) -> int:
    """
    Discover the offset ranges as the driver does, then run a task on those of some partitions.

    Return the exit code: 1 if the attempt has committed nothing, for it has harmed nobody.
    """
    settings = config.load(Path(file))
    kafka = clients(settings)
    workload = Discovery(settings, kafka).discover()
    # A speculative attempt works for the run that planned it. One of a stranger would yield to that run.
    owner = latest(OffsetMetadata.of(each).owner for each in workload.committed.values())
    tasks = task_config(settings, kafka.destinations, owner)
    mine = tuple(each for partition, each in workload.ranges.items() if partition.number in partitions)
    with tempfile.TemporaryDirectory() as nothing_armed:
        assignment = Assignment(tasks, mine, seconds, time.time() + seconds)
        receipts = task.run(assignment, HonestClients(tasks, Failpoints(nothing_armed)), make_parser(tasks), seconds)
    return 0 if any(receipt.records for receipt in receipts) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], float(sys.argv[2]), {int(number) for number in sys.argv[3:]}))
