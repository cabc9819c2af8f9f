"""
The service: survey, plan, run a round, observe; until told to stop, or until the end that was seen at the start.

A round goes on while its plan is good: readers of the sink notice only the end of one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from functools import partial
from typing import Protocol

import structlog

from app.config import Config
from app.driver.discover import Survey, Surveyor
from app.driver.observe import Observer
from app.driver.plan import plan
from app.driver.rebalance import Review
from app.driver.retry import Stopped, retry_until_available
from app.driver.stop import Stop
from app.errors import NotUsable, SparkFailed, Unreachable
from app.kafka.admin import KafkaAdmin
from app.model import Assignment, Guarantee, OffsetRange, Outcome, Partition, Receipt, TaskConfig

STOP_SECONDS = 0.1
# Asking Spark how its tasks do costs it and us some milliseconds.
LOOK_SECONDS = 1.0
# After the control partitions are fenced, tasks commit and report. Then all are fenced, then the job is killed.
CONTROL_FENCE_SECONDS = 2.5
FENCE_ALL_SECONDS = 2.0
KILL_SECONDS = 4.0
# For how many looks at its plan a round may go on. Idle partitions renew their offset with each. Without transactions
# there is no way to end a round early without doing work twice, so it is a short one.
LOOKS = {Guarantee.EXACTLY_ONCE: 60, Guarantee.AT_LEAST_ONCE: 3}
# Spark gives up a round in which one task is lost eight times.
MAX_LOST_TASKS = 4
# A task may take so long beyond its deadline to open and for its last commits, and so much more for each partition.
# Later it is stuck, or its machine is, and the partitions of all others wait for the next round.
OVERRUN_SECONDS = 4.0
OVERRUN_SECONDS_EACH = 0.1
FAILED_ROUNDS_IN_A_ROW = 5

log = structlog.get_logger()


class RunningRound(Protocol):
    """A round that is being worked on; see `app.spark.job`."""

    @property
    def lost_tasks(self) -> int:
        """How many attempts have failed."""
        ...

    @property
    def done_tasks(self) -> int:
        """How many tasks have reported."""
        ...

    @property
    def starved(self) -> bool:
        """Whether a task finds no slot."""
        ...

    def wait(self, seconds: float) -> bool:
        """Wait for its end; tell whether it has ended."""
        ...

    def cancel(self) -> None:
        """Kill its tasks."""
        ...

    def receipts(self) -> list[Receipt]:
        """Return what the tasks report."""
        ...


class Rounds(Protocol):
    """Whatever runs rounds; Spark, but for tests."""

    @property
    def slots(self) -> int:
        """How many tasks can run at once now."""
        ...

    def submit(self, assignments: Sequence[Assignment]) -> RunningRound:
        """Start a round."""
        ...

    def stop(self) -> None:
        """Free what it holds."""
        ...


class Service:
    """Runs rounds until it is told to stop."""

    def __init__(self, config: Config, kafka: KafkaAdmin, start_rounds: Callable[[], Rounds], stop: Stop) -> None:
        self._config = config
        self._kafka = kafka
        self._start_rounds = start_rounds
        self._stop = stop
        self.observer = Observer()
        self._surveyor = Surveyor(config, kafka, self.observer)
        self._arrived: dict[Partition, int] = {}
        self._failed_rounds = 0
        self._looks = ThreadPoolExecutor(1, "winnow-look")

    def run(self, *, until_end: bool) -> int:
        """
        Run; return 0 after a clean stop or when the end is reached, 1 if partitions were left because they are blocked.

        Raises:
            NotUsable: Kafka or Spark cannot be worked with; a person must act.
            AccountingError: records are missing in a receipt.
        """
        rounds: Rounds | None = None
        try:
            task_config, survey = retry_until_available(
                lambda: (self._task_config(), self._surveyor.survey()), self._stop
            )
            self._clear_leftovers(survey)
            rounds = self._start_rounds()
            self._stop.on_signals()
            return self._rounds(rounds, task_config, survey, until_end=until_end)
        except Stopped:
            return 0
        finally:
            log.info("stopped", cause=self._stop.cause or "done", **self._told())
            if rounds is not None:
                rounds.stop()

    def _told(self) -> dict[str, int]:
        totals = self.observer.totals
        return {"records": totals.records, "out": totals.out, "dead": totals.dead.total()}

    def _task_config(self) -> TaskConfig:
        config = self._config
        return TaskConfig(
            group=config.group_id,
            guarantee=config.delivery_guarantee,
            sink=self._kafka.destination(config.sink.topic),
            dead_letters=self._kafka.destination(config.dead_letters.topic),
            format=config.source.format,
            parser=config.parser.name,
            parser_options=config.parser.options,
            kafka=config.kafka,
            commit_seconds=config.commit_interval,
            transaction_seconds=config.transaction_timeout,
        )

    def _clear_leftovers(self, survey: Survey) -> None:
        """End what a crashed run left open, before Spark starts: it holds back every read_committed reader."""
        self._fence(survey.positions)

    def _rounds(self, rounds: Rounds, task_config: TaskConfig, survey: Survey, *, until_end: bool) -> int:
        ends = {partition: at.stable for partition, at in survey.positions.items()} if until_end else None
        while not self._stop.requested:
            ranges = _within(survey, ends)
            if ends is not None and not ranges:
                return 1 if survey.blocked else 0
            if ranges:
                self._round(rounds, task_config, survey, ranges)
            else:
                self._stop.wait(self._config.round_interval)
            if not self._stop.requested:
                task_config, survey = retry_until_available(
                    lambda: (self._task_config(), self._surveyor.survey()), self._stop
                )
        return 0

    def _round(self, rounds: Rounds, task_config: TaskConfig, survey: Survey, ranges: Sequence[OffsetRange]) -> None:
        loads = {
            offset_range.partition: survey.lag(offset_range) + self._arrived.get(offset_range.partition, 0)
            for offset_range in ranges
        }
        seconds, began = self._round_seconds, time.monotonic()
        deadline = time.time() + seconds
        assignments = [Assignment(task_config, task, seconds, deadline) for task in plan(ranges, loads, rounds.slots)]
        running = rounds.submit(assignments)
        review = Review([assignment.ranges for assignment in assignments], survey, began)
        killed = self._watch(running, assignments, partial(self._why_plan_anew, rounds, running, review))
        try:
            receipts = running.receipts()
        except SparkFailed as error:
            if not killed:
                self._round_failed(error)
            return
        self._failed_rounds = 0
        took = time.monotonic() - began
        looks = max(took, 1) / self._config.round_interval
        self._arrived = {receipt.partition: int(receipt.records / looks) for receipt in receipts}
        self.observer.round_ended(receipts, took, survey.total_lag)
        if took < 1 and any(receipt.outcome is not Outcome.DONE for receipt in receipts):
            self._stop.wait(1)

    @property
    def _round_seconds(self) -> float:
        """How long a round may go on."""
        return LOOKS[self._config.delivery_guarantee] * self._config.round_interval

    def _why_plan_anew(self, rounds: Rounds, running: RunningRound, review: Review) -> str:
        """Look at a round that goes on; say why it is to end, or nothing."""
        if running.lost_tasks >= MAX_LOST_TASKS:
            return "tasks were lost"
        if running.done_tasks:
            return "a task has nothing left to do"
        try:
            positions = self._surveyor.glance()
        except Unreachable as error:
            review.pause(time.monotonic())
            self.observer.cannot_look(str(error))
            return ""
        except NotUsable as error:  # the next survey raises it, when the tasks have come to a clean end
            return str(error)
        why = review.look(positions, rounds.slots, time.monotonic())
        self.observer.round_goes_on(review.records, review.dead, review.lag, review.seconds)
        return why

    def _round_failed(self, error: SparkFailed) -> None:
        self._failed_rounds += 1
        log.error("round failed; nothing is lost, the next one goes on from the committed offsets", error=str(error))
        if self._failed_rounds >= FAILED_ROUNDS_IN_A_ROW:
            raise error
        self._stop.wait(min(2.0**self._failed_rounds, 30))

    def _watch(self, running: RunningRound, assignments: Sequence[Assignment], look: Callable[[], str]) -> bool:
        """Wait for a round's end, and end it where it must not go on; tell whether its tasks had to be killed."""
        lost, began = 0, time.monotonic()
        overdue = began + self._round_seconds + _overrun(assignments)
        next_look = began + self._config.round_interval
        while not self._ended_or_stopped(running, LOOK_SECONDS):
            if running.lost_tasks > lost:
                lost = running.lost_tasks
                log.warning("a task was lost; Spark tries it again", lost=lost)
            if running.starved:
                log.warning("a task finds no slot; the round ends early and is planned anew")
                return self._end(running, assignments, CONTROL_FENCE_SECONDS)
            if time.monotonic() > overdue:
                log.warning("a task does not end; its round is ended and planned anew")
                return self._shut_out(running, (_everybody(assignments), FENCE_ALL_SECONDS))
            if self._can_fence and time.monotonic() > next_look:
                if why := self._unless_stopped(look):
                    log.info("the round ends and is planned anew", reason=why)
                    return self._end(running, assignments, _overrun(assignments))
                next_look = time.monotonic() + self._config.round_interval
        if self._stop.requested and not running.wait(0):
            log.info("stopping", cause=self._stop.cause)
            return self._end(running, assignments, CONTROL_FENCE_SECONDS)
        return False

    def _unless_stopped(self, look: Callable[[], str]) -> str:
        """Look, but do not keep a stop waiting: where Kafka does not answer, a look takes long."""
        looking = self._looks.submit(look)
        while not self._stop.requested:
            if wait([looking], STOP_SECONDS).done:
                return looking.result()
        return ""

    @property
    def _can_fence(self) -> bool:
        """Whether there are transactions, and so a way to end a round early without doing work twice."""
        return self._config.delivery_guarantee is Guarantee.EXACTLY_ONCE

    def _ended_or_stopped(self, running: RunningRound, seconds: float) -> bool:
        """Wait so long at most for the round's end or a request to stop; tell whether one of them came."""
        until = time.monotonic() + seconds
        # At least one look, however long this process was stopped itself: the round may have ended meanwhile.
        while not running.wait(STOP_SECONDS) and not self._stop.requested:
            if time.monotonic() > until:
                return False
        return True

    def _ends_within(self, running: RunningRound, seconds: float) -> bool:
        """Tell whether a round ends so soon; a stop waits for CONTROL_FENCE_SECONDS at most."""
        self._ended_or_stopped(running, seconds)
        return running.wait(min(seconds, CONTROL_FENCE_SECONDS) if self._stop.requested else 0)

    def _end(self, running: RunningRound, assignments: Sequence[Assignment], seconds: float) -> bool:
        """
        End a round before its deadline, in so many seconds; tell whether its tasks had to be killed.

        One fence per task is enough for a task that runs: it commits its other partitions and reports. A task that
        opened after the fence has fenced us back, so all partitions follow; what still runs then is killed.
        """
        control_partitions = [assignment.control_partition for assignment in assignments]
        return self._shut_out(running, (control_partitions, seconds), (_everybody(assignments), FENCE_ALL_SECONDS))

    def _shut_out(self, running: RunningRound, *steps: tuple[Collection[Partition], float]) -> bool:
        """Fence partitions, step by step, each with its time to end the round; tell whether it had to be killed."""
        for partitions, seconds in steps:
            if not self._fence(partitions):
                break
            if self._ends_within(running, seconds):
                return False
        log.info("tasks are killed; what they have not committed will be done again")
        running.cancel()
        running.wait(KILL_SECONDS)
        everybody, _ = steps[-1]
        self._fence(everybody)
        return True

    def _fence(self, partitions: Collection[Partition]) -> bool:
        """Shut out the owners of partitions; tell whether that could work at all."""
        return self._can_fence and self._kafka.fence(partitions, self._config.transaction_timeout)


def _everybody(assignments: Iterable[Assignment]) -> list[Partition]:
    return [offset_range.partition for assignment in assignments for offset_range in assignment.ranges]


def _overrun(assignments: Iterable[Assignment]) -> float:
    """Tell how long beyond its deadline a round may take: what its largest task needs for its last commits."""
    most = max((len(assignment.ranges) for assignment in assignments), default=0)
    return OVERRUN_SECONDS + OVERRUN_SECONDS_EACH * most


def _within(survey: Survey, ends: dict[Partition, int] | None) -> list[OffsetRange]:
    """
    Choose what to work on: everything, or what lies before the ends seen at the start.

    A start that differs from the group's offset is stored even where nothing is left to read: `latest` must not move on
    with every run.
    """
    if ends is None:
        return list(survey.ranges.values())
    return [
        replace(offset_range, end=max(offset_range.start, ends[offset_range.partition]))
        for offset_range in survey.ranges.values()
        if offset_range.partition in ends
        and (offset_range.start < ends[offset_range.partition] or offset_range.start != offset_range.committed)
    ]
