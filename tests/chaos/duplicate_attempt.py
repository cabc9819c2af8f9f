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
from app.model import NOBODY, Assignment
from app.start import clients
from tests.chaos.failpoints import Failpoints
from tests.chaos.work import HonestClients


def main(file: str, seconds: float, partitions: set[int]) -> None:
    """Discover the offset ranges as the driver does, then run a task on those of some partitions."""
    settings = config.load(Path(file))
    # A speculative attempt works for the run that planned it, which only that knows; it is no other service.
    kafka = clients(settings)
    tasks = task_config(settings, kafka.destinations, NOBODY)
    ranges = Discovery(settings, kafka).discover().ranges
    mine = tuple(each for partition, each in ranges.items() if partition.number in partitions)
    with tempfile.TemporaryDirectory() as nothing_armed:
        assignment = Assignment(tasks, mine, seconds, time.time() + seconds)
        task.run(assignment, HonestClients(tasks, Failpoints(nothing_armed)), make_parser(tasks), seconds)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), {int(number) for number in sys.argv[3:]})
