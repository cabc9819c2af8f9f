"""A second attempt at some partitions while the first works on, as a speculative Spark would start it; a process."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from app import config
from app.driver.discover import Surveyor
from app.driver.observe import Observer
from app.driver.service import Service
from app.driver.stop import Stop
from app.executor import task
from app.executor.parse import make_parser
from app.kafka.admin import KafkaAdmin
from app.model import Assignment
from tests.chaos.failpoints import Failpoints
from tests.chaos.service import no_rounds
from tests.chaos.work import HonestClients


def main(file: str, seconds: float, partitions: set[int]) -> None:
    """Survey as the driver does, then work on these partitions."""
    settings = config.load(Path(file))
    kafka = KafkaAdmin(settings.kafka, settings.group_id)
    task_config = Service(settings, kafka, no_rounds, Stop())._task_config()
    ranges = Surveyor(settings, kafka, Observer()).survey().ranges
    mine = tuple(offset_range for partition, offset_range in ranges.items() if partition.number in partitions)
    with tempfile.TemporaryDirectory() as nothing_armed:
        clients = HonestClients(task_config, Failpoints(nothing_armed))
        task.run(
            Assignment(task_config, mine, seconds, time.time() + seconds), clients, make_parser(task_config), seconds
        )


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), {int(number) for number in sys.argv[3:]})
