"""
The harness's entry point of the service: `python -m tests.chaos.service CONFIG ARM POINTS`.

It differs from `winnow run` in the function that Spark's workers run and, in one control arm, in a driver that commits
offsets.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from app import config, log
from app.cli.options import reports_errors
from app.driver.clients import Rounds, RunningRound
from app.driver.stop import Stop
from app.kafka.settings import SILENT, common
from app.model import Assignment, Receipt
from app.spark import job, session
from app.spark.job import SparkRounds
from app.start import service
from tests.chaos.arms import arm_of
from tests.chaos.driver import FORKS
from tests.chaos.work import DRIVER_COMMITS, work
from tests.support.forked import ForkedRounds


@reports_errors
def main(file: str, arm: str, points: str) -> int:
    """Run the service until SIGTERM, and end as `winnow run` does."""
    arm_of(arm).in_driver()
    settings = config.load(Path(file))
    log.configure(settings.log_level)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

    forked = None
    if settings.spark.get("spark.master") == FORKS:
        job.work = partial(work, arm=arm, points=points)
        forked = ForkedRounds()

    def start_rounds() -> Rounds:
        if forked is not None:
            return forked
        context = session.start(settings.spark, submitted=False)
        rounds = SparkRounds(context, partial(work, arm=arm, points=points))
        return CommittingRounds(rounds, settings) if arm == DRIVER_COMMITS else rounds

    stop = Stop()
    stop.on_signals()
    return service(settings, start_rounds, stop).run(until_end=False)


class CommittingRounds:
    """Wrong: the driver commits the offsets of a round outside its transactions, after it has the receipts."""

    def __init__(self, rounds: Rounds, settings: config.Config) -> None:
        self._rounds = rounds
        own: dict[str, str | bool] = {"group.id": settings.group_id, "enable.auto.commit": False}
        self._consumer = Consumer(common(settings.kafka) | own, logger=SILENT)

    @property
    def slots(self) -> int:
        return self._rounds.slots

    def warm_up(self) -> None:
        self._rounds.warm_up()

    def submit(self, assignments: Sequence[Assignment]) -> RunningRound:
        return CommittedRound(self._rounds.submit(assignments), self._consumer)

    def stop(self) -> None:
        self._rounds.stop()


class CommittedRound:
    """A round whose offsets are committed when the driver takes its receipts."""

    def __init__(self, running: RunningRound, consumer: Consumer) -> None:
        self._running, self._consumer = running, consumer

    @property
    def lost_tasks(self) -> int:
        return self._running.lost_tasks

    @property
    def done_tasks(self) -> int:
        return self._running.done_tasks

    @property
    def starved(self) -> bool:
        return self._running.starved

    def wait(self, seconds: float) -> bool:
        return self._running.wait(seconds)

    def cancel(self) -> None:
        self._running.cancel()

    def receipts(self) -> Sequence[Receipt]:
        receipts = self._running.receipts()
        offsets = [TopicPartition(*receipt.partition, receipt.end) for receipt in receipts]
        self._consumer.commit(offsets=offsets, asynchronous=False)
        return receipts


if __name__ == "__main__":
    main(*sys.argv[1:])
