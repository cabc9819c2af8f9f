"""
The service: discover, plan, run a round; until somebody asks it to stop, or until the end that was seen at the start.

A round goes on while its plan is good: readers of the sink notice only a rebalance.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from app.config import Config
from app.driver.clients import Clients, Rounds, RunningRound
from app.driver.discover import Discovery, Workload, refuse_compacted
from app.driver.plan import plan
from app.driver.rebalance import Balance
from app.driver.retry import Refusals, retry_until_available
from app.driver.round import Round
from app.driver.stop import Stop, Stopped
from app.driver.tracker import StatusTracker
from app.errors import NotAllowed, NotUsable, SparkFailed, Unreachable
from app.model import Assignment, Guarantee, OffsetRange, Outcome, Partition, TaskConfig
from app.runtime import REAL, Runtime

T = TypeVar("T")
# For how many checks a round may go on. Idle partitions renew their offset with each round. Without transactions there
# is no way to end a round early without doing work twice, so it is a short one.
CHECKS = {Guarantee.EXACTLY_ONCE: 60, Guarantee.AT_LEAST_ONCE: 3}
# Spark gives up a round in which one task is lost eight times.
MAX_LOST_TASKS = 4
FAILED_ROUNDS_IN_A_ROW = 5


class Service:
    """
    Runs rounds until it is asked to stop.

    Args:
        config: the configuration.
        clients: Kafka, as the driver sees it.
        start_rounds: starts Spark.
        stop: the request to stop.
        tracker: takes in what happens.
        runtime: clocks and threads.
    """

    def __init__(
        self,
        config: Config,
        clients: Clients,
        start_rounds: Callable[[], Rounds],
        *,
        stop: Stop,
        tracker: StatusTracker,
        runtime: Runtime = REAL,
    ) -> None:
        self._config = config
        self._clients = clients
        self._start_rounds = start_rounds
        self._stop = stop
        self._tracker = tracker
        self._runtime = runtime
        self._discovery = Discovery(config, clients, runtime)
        self._fence = clients.fence if config.delivery_guarantee is Guarantee.EXACTLY_ONCE else None
        self._checks = runtime.threads(1, "winnow-check")
        self._refusals = Refusals(runtime.monotonic)
        self._arrived: dict[Partition, int] = {}
        self._failed_rounds = 0

    def run(self, *, until_end: bool) -> int:
        """
        Run; return 0 after a clean stop or at the end, 1 if the end was reached except in blocked partitions.

        Raises:
            NotUsable: Kafka or Spark cannot be worked with; a person must act.
            AccountingError: records are missing in a receipt.
        """
        rounds: Rounds | None = None
        try:
            config, workload = self._discover()
            refuse_compacted(config.dead_letters)
            self._clear_leftovers(workload)
            # Spark takes many seconds on a busy machine. Where it is not up yet, its JVM ends with this process.
            rounds = self._stop.result(self._runtime.background(self._start_rounds))
            return self._rounds(rounds, config, workload, until_end=until_end)
        except Stopped:
            return 0
        finally:
            self._clients.mirrors.close()
            self._tracker.stopped(self._stop.cause or "done")
            if rounds is not None:
                rounds.stop()

    def _discover(self) -> tuple[TaskConfig, Workload]:
        """Return what the next round works with and on, as soon as Kafka answers."""
        found = self._as_soon_as_kafka_answers(self._look)
        self._tracker.discovered(found[1])
        return found

    def _look(self) -> tuple[TaskConfig, Workload]:
        config, workload = self.task_config(), self._discovery.discover()
        if self._clients.placeholders is not None:
            self._clients.placeholders.make_room(workload.ranges)
        return config, workload

    def _as_soon_as_kafka_answers(self, call: Callable[[], T]) -> T:
        return retry_until_available(call, self._stop, self._tracker, self._runtime.monotonic)

    def task_config(self) -> TaskConfig:
        """Return what all tasks have in common; sink and dead letters are looked up, because they may grow."""
        config = self._config
        return TaskConfig(
            group=config.group_id,
            guarantee=config.delivery_guarantee,
            sink=self._clients.destinations.destination(config.sink.topic),
            dead_letters=self._clients.destinations.destination(config.dead_letters.topic),
            format=config.source.format,
            parser=config.parser.plugin,
            kafka=config.kafka,
            sink_kafka=config.sink.kafka,
            placeholder=config.placeholder,
            owner=self._discovery.owner,
            offset_store=config.offsets.store.plugin,
            mirrors=config.mirrors,
            commit_seconds=config.commit_interval,
            transaction_seconds=config.transaction_timeout,
            flume_headers=config.source.flume_headers,
            sink_key=config.sink.key,
            sink_partitioner=config.sink.partitioner,
            log_level=config.log_level,
        )

    def _clear_leftovers(self, workload: Workload) -> None:
        """End the transactions that a crash left open, before Spark starts: they hold back read_committed readers."""
        if self._fence is not None:
            self._as_soon_as_kafka_answers(self._fence.refuse_short_transactions)
            self._fence.fence([*workload.offsets, *(workload.blocked.keys() - workload.offsets.keys())])

    def _rounds(self, rounds: Rounds, config: TaskConfig, workload: Workload, *, until_end: bool) -> int:
        ends = _ends(workload) if until_end else None
        while not self._stop.requested:
            ends = ends and _with_ends_seen(ends, workload)
            ranges = _within(workload, ends)
            if ends is not None and not ranges:
                return 1 if workload.blocked else 0
            if ranges:
                self._round(rounds, config, workload, ranges)
            else:
                self._stop.wait(self._config.round_interval)
            config, workload = self._discover()
        return 0

    def _round(self, rounds: Rounds, config: TaskConfig, workload: Workload, ranges: Sequence[OffsetRange]) -> None:
        """Plan a round, watch it to its end, and take its receipts in."""
        seconds, began = self._round_seconds, self._runtime.monotonic()
        slots = rounds.slots
        deadline = self._runtime.wall_clock() + seconds
        tasks = plan(ranges, self._loads(workload, ranges), slots)
        assignments = [Assignment(config, task, seconds, deadline) for task in tasks]
        running = rounds.submit(assignments)
        self._tracker.round_began(slots, len(tasks), ranges)
        round_ = Round(
            running,
            assignments,
            fence=self._fence,
            stop=self._stop,
            tracker=self._tracker,
            runtime=self._runtime,
            checks=self._checks,
        )
        balance = Balance(tasks, workload, began, commit_seconds=config.commit_seconds)
        check = partial(self._needs_rebalance, rounds, running, balance)
        killed = round_.watch(check, self._config.round_interval)
        self._take_receipts(running, began, killed=killed, fenced=round_.fenced)
        if killed and self._stop.requested and round_.reached:
            self._count_what_was_committed()

    def _loads(self, workload: Workload, ranges: Sequence[OffsetRange]) -> dict[Partition, int]:
        """Return what each partition is expected to bring: its lag, and what arrived between two checks before."""
        # What nobody takes is no work; and by being last in its task, it is not the control partition.
        partitions = [each.partition for each in ranges if each.partition not in workload.undeliverable]
        return {partition: workload.lag(partition) + self._arrived.get(partition, 0) for partition in partitions}

    def _take_receipts(
        self, running: RunningRound, began: float, *, killed: bool, fenced: Collection[Partition]
    ) -> None:
        took = self._runtime.monotonic() - began
        try:
            receipts = running.receipts()
        except SparkFailed as error:
            if killed:
                self._tracker.round_dropped(took)
            else:
                self._round_failed(error, took)
            return
        self._failed_rounds = 0
        checks = max(took, 1) / self._config.round_interval
        self._arrived = {receipt.partition: int(receipt.records / checks) for receipt in receipts}
        self._discovery.reported(receipts, fenced)
        self._tracker.round_ended(receipts, took)
        if took < 1 and any(receipt.outcome is not Outcome.DONE for receipt in receipts):
            self._stop.wait(1)

    def _count_what_was_committed(self) -> None:
        """Take in what killed tasks have committed: the next discovery would, but after a stop there is none."""
        with contextlib.suppress(NotUsable, Unreachable):
            self._tracker.refreshed(self._discovery.refresh())

    @property
    def _round_seconds(self) -> float:
        """How long a round may go on."""
        return CHECKS[self._config.delivery_guarantee] * self._config.round_interval

    def _needs_rebalance(self, rounds: Rounds, running: RunningRound, balance: Balance) -> str:
        """Return why a running round must end; empty if it need not."""
        if running.lost_tasks >= MAX_LOST_TASKS:
            return "tasks were lost"
        if running.done_tasks:
            return "a task has nothing left to do"
        try:
            found = self._discovery.refresh()
        except (NotAllowed, Unreachable) as error:
            balance.pause(self._runtime.monotonic())
            self._tracker.kafka_is_away(error)
            return str(error) if self._refusals.are_final(error) else ""
        except NotUsable as error:  # the next discovery raises it, when the tasks have come to a clean end
            return str(error)
        self._refusals.over()
        self._tracker.refreshed(found)
        return balance.needs_rebalance(found, rounds.slots, self._runtime.monotonic())

    def _round_failed(self, error: SparkFailed, took: float) -> None:
        self._failed_rounds += 1
        self._tracker.round_lost(error, took)
        if self._failed_rounds >= FAILED_ROUNDS_IN_A_ROW:
            raise error
        self._stop.wait(2.0**self._failed_rounds)


def _ends(workload: Workload) -> dict[Partition, int | None]:
    """Return where each partition ends now; None where that cannot be read yet."""
    unread = dict.fromkeys(workload.blocked)
    return unread | {each: at.watermarks.last_stable for each, at in workload.offsets.items()}


def _with_ends_seen(ends: Mapping[Partition, int | None], workload: Workload) -> dict[Partition, int | None]:
    """Return the ends, with those of partitions that answer for the first time."""
    now = _ends(workload)
    return {each: now.get(each) if end is None else end for each, end in ends.items()}


def _within(workload: Workload, ends: Mapping[Partition, int | None] | None) -> list[OffsetRange]:
    """
    Return what to work on: everything, or what lies before the ends seen at the start.

    A start that differs from the committed offset is stored even where nothing is left to read: `latest` must not move
    on with every run.
    """
    if ends is None:
        return list(workload.ranges.values())
    agreed = ((each, ends.get(each.partition)) for each in workload.ranges.values())
    return [
        replace(each, end=max(each.start, end))
        for each, end in agreed
        if end is not None and (each.start < end or each.start != each.committed)
    ]
