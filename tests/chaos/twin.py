"""A second attempt at some partitions while the first works on, as a speculative Spark would start it; a process."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from app import config
from app.driver.observe import Observer
from app.driver.service import Service
from app.driver.stop import Stop
from app.driver.survey import Surveyor
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
    job = Service(settings, kafka, no_rounds, Stop())._job()
    shares = Surveyor(settings, kafka, Observer()).survey().shares
    mine = tuple(share for partition, share in shares.items() if partition.number in partitions)
    with tempfile.TemporaryDirectory() as nothing_armed:
        clients = HonestClients(job, Failpoints(nothing_armed))
        task.run(Assignment(job, mine, seconds, time.time() + seconds), clients, make_parser(job), seconds)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), {int(number) for number in sys.argv[3:]})
