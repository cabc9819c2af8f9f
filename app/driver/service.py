"""
The service: discover, plan and run a round, until a stop is requested or the end seen at the start is reached.

A round runs while its plan is good, because readers of the sink notice every rebalance.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import TypeVar

from app.config import Config
from app.driver.clients import Clients, Rounds, RunningRound
from app.driver.discover import Discovery
from app.driver.plan import CHECKS, plan
from app.driver.preflight import Preflight, refuse
from app.driver.rebalance import Balance
from app.driver.renewal import Renewal
from app.driver.retry import Refusals, retry_until_available
from app.driver.round import Patience, Round, Suspects
from app.driver.stop import Stop, Stopped
from app.driver.takeover import LOOK_SECONDS, control_partitions_last
from app.driver.task_config import task_config
from app.driver.tracker import StatusTracker
from app.driver.workload import Workload
from app.errors import Blocked, NotAllowed, NotUsable, SparkFailed, Superseded, Unreachable
from app.events import Event
from app.model import Assignment, Attempt, Guarantee, OffsetRange, Outcome, Partition, TaskConfig, latest
from app.rates import Window
from app.runtime import REAL, Runtime
from app.status.snapshot import Step

T = TypeVar("T")
# Spark gives up on a round after one task has failed eight times.
MAX_LOST_TASKS = 4
FAILED_ROUNDS_IN_A_ROW = 5
BEAT_SECONDS = 10.0
NEW_OWNER_LOOK_SECONDS = 0.25


class Service:
    """Runs rounds until it is asked to stop, with the status page open."""

    def __init__(
        self,
        config: Config,
        clients: Clients,
        start_rounds: Callable[[], Rounds],
        *,
        stop: Stop,
        tracker: StatusTracker,
        page: AbstractContextManager[object] = nullcontext(),  # noqa: B008  # it holds nothing
        runtime: Runtime = REAL,
    ) -> None:
        self._config = config
        self._clients = clients
        self._start_rounds = start_rounds
        self._stop = stop
        self._tracker = tracker
        self._page = page
        self._runtime = runtime
        self._discovery = Discovery(config, clients, runtime)
        self._preflight = Preflight(config, clients, runtime)
        self._fence = clients.fence if config.delivery_guarantee is Guarantee.EXACTLY_ONCE else None
        self._checks = runtime.threads(1, "winnow-check")
        self._refusals = Refusals(runtime.monotonic)
        self._suspects = Suspects(runtime.monotonic)
        self._arrived: dict[Partition, int] = {}
        """The records of each partition between two checks of the last round."""
        self._allowances: dict[Partition, int] = {}
        self._windows: dict[Partition, Window] = {}
        self._reported_at = 0.0
        self._failed_rounds = 0
        self._idle_pause = 1.0
        """How many seconds to wait after another round that fails in every partition before a record is read."""
        self._patience = Patience(runtime.timings)
        self._renewal = Renewal(clients, runtime.monotonic, transactional=self._fence is not None)
        self._stand_by_seconds = min(config.round_interval, BEAT_SECONDS)
        """How often to look whether the other run is gone; a long `round.interval` must not delay the work."""
        self._beside_others = config.generation > 0
        """Whether a service of another generation may be active; its open transactions would delay stable reads."""

    def run(self, *, until_end: bool, stand_by: bool = False) -> int:
        """
        Run; return 0 after a clean stop or at the end, 1 if blocked partitions did not reach their end.

        Args:
            until_end: stop at the current ends of the partitions.
            stand_by: first wait until no other service of this generation works for the group.

        Raises:
            NotUsable: Kafka, Spark or the page's port is not usable; an operator must act.
            AccountingError: a receipt does not account for all records.
        """
        with self._page:
            return self._run(until_end=until_end, stand_by=stand_by)

    def _run(self, *, until_end: bool, stand_by: bool) -> int:
        rounds, failure = None, ""
        self._tracker.started(self._discovery.owner)
        try:
            warnings = self._as_soon_as_kafka_answers(lambda: refuse(self._preflight.rights()))
            self._tracker.waits_for(Step.SETTINGS)
            warnings += self._as_soon_as_kafka_answers(lambda: refuse(self._preflight.settings()))
            self._tracker.warned(warnings)
            # After the checks: if they waited after this look, it would miss what another service commits meanwhile.
            self._tracker.waits_for(Step.OFFSETS)
            config, workload = self._stand_by(for_equals=stand_by, refuse=until_end and not stand_by)
            takes_over = self._takes_over(workload.ranges)
            if not takes_over:
                self._tracker.waits_for(Step.FENCING)
                self._clear_leftovers(workload)
            self._as_soon_as_kafka_answers(self._renewal.learn)
            self._tracker.waits_for(Step.SPARK)
            # Starting Spark takes many seconds on a busy machine. If we stop first, its JVM ends with this process.
            rounds = self._stop.result(self._runtime.background(self._start_rounds), self._tracker.beat)
            if takes_over:
                self._tracker.waits_for(Step.WORKERS)
                self._await_workers(rounds)
                config, workload = self._discover()
            self._tracker.waits_for(Step.ROUND)
            return self._rounds(rounds, config, workload, until_end=until_end)
        except Stopped:
            return 0
        except Exception as error:
            if not (isinstance(error, Superseded) and self._stop.leaving):
                failure = str(error) or type(error).__name__
                raise
            self._stop.request(f"taken over: {error.cause}")
            return 0
        finally:
            self._clients.mirrors.close()
            self._clients.offsets.close()
            self._tracker.stopped(failure or self._stop.cause or "done")
            if rounds is not None:
                rounds.stop()

    def _await_workers(self, rounds: Rounds) -> None:
        """Wait until all slots have a worker. If none comes and the earlier generation leaves, renew its offsets."""
        gone = self._runtime.timings.gone
        look_at = self._runtime.monotonic() + gone

        def meanwhile() -> None:
            nonlocal look_at
            self._tracker.beat()
            if self._runtime.monotonic() >= look_at:
                self._discover()
                self._renew()
                look_at = self._runtime.monotonic() + gone

        self._stop.result(self._runtime.background(rounds.warm_up), meanwhile)

    def _discover(self, *, works: bool = False) -> tuple[TaskConfig, Workload]:
        config, workload = self._as_soon_as_kafka_answers(partial(self._discover_once, works=works))
        self._tracker.discovered(workload)
        self._tracker.taken_over(self._discovery.takeover.taken)
        self._beside_others = bool(self._tracker.snapshot.taken) or self._takes_over(workload.ranges)
        return config, workload

    def _discover_once(self, *, works: bool) -> tuple[TaskConfig, Workload]:
        stable = not (self._beside_others or self._discovery.owners.stands_by)
        try:
            config = task_config(self._config, self._clients.destinations, self._discovery.owner)
            return config, self._with_room(self._discovery.discover(stable=stable), works=works)
        except Unreachable:
            if works:  # only the source may be away, for as long as offsets are kept
                self._renew()
            raise

    def _with_room(self, workload: Workload, *, works: bool) -> Workload:
        """
        Make room for offsets on the sink's own cluster; block the partitions for which Kafka refuses that.

        Raises NotUsable if it refuses that for all partitions before any work began.
        """
        placeholders = self._clients.placeholders_for(self._clients.offsets)
        refused = placeholders.make_room(workload.ranges) if placeholders is not None else {}
        if refused and not works and refused.keys() == workload.committed.keys():
            raise next(iter(refused.values()))
        return workload.blocking({each: Blocked(each, why.cause, cure=why.cure) for each, why in refused.items()})

    def _as_soon_as_kafka_answers(self, call: Callable[[], T]) -> T:
        return retry_until_available(partial(self._ask, call), self._stop, self._tracker, self._runtime.monotonic)

    def _ask(self, call: Callable[[], T]) -> T:
        """Ask Kafka. While it does not respond, the silence of other runs, or of our tasks, means nothing."""
        began, sight = self._runtime.monotonic(), self._discovery.owners.sight
        try:
            answer = call()
        except (NotAllowed, Unreachable):
            sight.lose()
            self._suspects.acquit()
            raise
        sight.waited(since=began)
        return answer

    def _stand_by(self, *, for_equals: bool, refuse: bool) -> tuple[TaskConfig, Workload]:
        """
        Wait while a later generation is active, or with `for_equals` the same; then return configuration and workload.

        With `refuse`, an active run of the same generation is an error: a backfill must not stop the service.
        """
        owners = self._discovery.owners
        if for_equals or refuse:
            owners.look_before_work(self._config.commit_interval, refuse=refuse)
        config, workload = self._discover()
        while (behind := self._tracker.snapshot.taken or (owners.stands_by and owners.rival)) or owners.must_look:
            self._wait(self._stand_by_seconds if behind else NEW_OWNER_LOOK_SECONDS)
            if self._stop.requested:
                raise Stopped
            config, workload = self._discover()
        owners.work()
        return config, workload

    def _takes_over(self, partitions: Iterable[Partition]) -> bool:
        """Return whether an earlier generation, which may be active, still has one of these partitions."""
        return not self._discovery.takeover.to_take.isdisjoint(partitions)

    def _hands_over(self, workload: Workload) -> bool:
        """
        Leave the work to a later generation if there is one; return whether there is.

        This service ends when everything is taken. Another round before that would fence what was just taken.
        """
        if not self._tracker.snapshot.taken:
            return False
        if self._discovery.takeover.has_all(workload.committed.keys()):
            self._stop.request(f"taken over by {latest(self._tracker.snapshot.taken.values())}")
        else:
            self._wait(LOOK_SECONDS)
        return True

    def _clear_leftovers(self, workload: Workload) -> None:
        """Before Spark starts, end the transactions that a crash left open: they hold back read_committed readers."""
        if self._fence is not None:
            known = [*workload.offsets, *(workload.blocked.keys() - workload.offsets.keys())]
            self._as_soon_as_kafka_answers(partial(self._fence.fence, known))

    def _rounds(self, rounds: Rounds, config: TaskConfig, workload: Workload, *, until_end: bool) -> int:
        ends = workload.ends() if until_end else None
        self._stop.handover_seconds = 0 if until_end else self._config.handover_timeout
        while not self._stop.requested:
            ends = ends and workload.ends(ends)
            ranges = workload.within(ends)
            if ends is not None and not ranges:
                self._renew()
                return _exit_code(workload, ends)
            if not self._hands_over(workload):
                paused = self._is_paused()
                self._renew(() if paused else ranges)
                if ranges and not paused:
                    self._round(rounds, config, workload, ranges)
                else:
                    self._tracker.running()
                    self._wait(self._config.round_interval)
            config, workload = self._discover_new_owners()
        return 0

    def _discover_new_owners(self) -> tuple[TaskConfig, Workload]:
        """
        Discover. If another run has fenced our tasks, give it a moment to identify itself by a commit.

        Planning at once would fence it in turn, before we know who it is.
        """
        until = self._runtime.monotonic() + self._runtime.timings.sign_of_life
        config, workload = self._discover(works=True)
        unknown = None in workload.fenced.values()
        while unknown and not self._tracker.snapshot.taken and self._runtime.monotonic() < until:
            if self._stop.wait(NEW_OWNER_LOOK_SECONDS):
                break
            config, workload = self._discover(works=True)
        return config, workload

    def _is_paused(self) -> bool:
        pause = self._as_soon_as_kafka_answers(self._clients.pauses.read)
        self._tracker.paused(pause)
        return pause is not None

    def _renew(self, ranges: Iterable[OffsetRange] = ()) -> None:
        """Renew the offsets that are due. At first, leave those of these ranges to the tasks of the first round."""
        first = {each.partition for each in ranges} if self._tracker.next_round == 1 else set()
        paused = self._tracker.snapshot.paused is not None
        self._renewal.renew(self._discovery.partitions - first, self._discovery.at_rest, paused=paused)

    def _wait(self, seconds: float) -> None:
        """Wait with heartbeats, at most until a stop is requested or offsets must be renewed."""
        if seconds >= self._stand_by_seconds:  # asking takes a second
            self._tracker.aged(self._clients.ages)
        until = self._runtime.monotonic() + min(seconds, self._renewal.every)
        while not self._stop.requested and (left := until - self._runtime.monotonic()) > 0:
            self._tracker.leaving(self._stop.leaving)
            self._tracker.beat()
            self._stop.wait(min(left, BEAT_SECONDS))

    def _round(self, rounds: Rounds, config: TaskConfig, workload: Workload, ranges: Sequence[OffsetRange]) -> None:
        # At its end, idle partitions renew their offsets.
        seconds = min(CHECKS[self._config.delivery_guarantee] * self._config.round_interval, self._renewal.every)
        began, deadline = self._runtime.monotonic(), self._runtime.wall_clock() + seconds
        slots, partitions = rounds.slots, [each.partition for each in ranges]
        # An undeliverable partition is no load. As the last one in its task it also is not the control partition.
        work = [each for each in partitions if each not in workload.undeliverable]
        tasks = plan(ranges, {each: workload.lag(each) + self._arrived.get(each, 0) for each in work}, slots)
        number, takes_over = self._tracker.next_round, self._takes_over(partitions)
        if takes_over:
            tasks = [control_partitions_last(task, workload.offsets) for task in tasks]
        suspects = self._suspects.among(workload)
        windows = self._take_windows(began)
        assignments = [
            Assignment(
                config,
                task,
                seconds,
                deadline,
                Attempt(number, at),
                isolate=any(each.partition in suspects for each in task),
                takes_over=takes_over,
                allowances={p: self._allowances[p] for each in task if (p := each.partition) in self._allowances},
                windows={p: windows[p] for each in task if (p := each.partition) in windows},
            )
            for at, task in enumerate(tasks)
        ]
        timings = self._patience.timings
        running = rounds.submit(assignments)
        self._tracker.round_began(slots, len(tasks), ranges)
        self._tracker.aged(self._clients.ages)
        round_ = Round(
            running,
            assignments,
            fence=self._fence,
            stop=self._stop,
            tracker=self._tracker,
            runtime=replace(self._runtime, timings=timings),
            checks=self._checks,
        )
        balance = Balance(tasks, workload, began, commit_seconds=config.commit_seconds, timings=timings)
        check = partial(self._needs_rebalance, rounds, running, balance)
        killed = round_.watch(check, self._config.round_interval)
        late = self._runtime.monotonic() - began - seconds
        reported = self._take_receipts(running, began, killed=killed, fenced=round_.fenced)
        if reported:
            self._patience.reported(assignments, late)
        elif round_.tasks_to_blame:
            self._patience.failed()
        if round_.tasks_to_blame and (not reported or running.lost_tasks):  # a retry may have had no time to read
            self._suspects.round_died(balance.offsets)
        kafka_answers = round_.reached if self._fence else self._tracker.snapshot.outage is None
        if killed and self._stop.requested and kafka_answers:
            # Count what killed tasks committed: after a stop, no discovery follows that would do it.
            with contextlib.suppress(NotUsable, Unreachable):
                self._tracker.refreshed(self._discovery.refresh())

    def _take_windows(self, now: float) -> dict[Partition, Window]:
        """
        Return the breaker's windows for a round that begins now, older by the time since the last one.

        They serve one round: if its receipts are lost, nobody knows what to add, and they would block a good partition.
        """
        passed, windows, self._windows = now - self._reported_at, self._windows, {}
        return {
            each: tuple((age + passed, records, dead) for age, records, dead in window)
            for each, window in windows.items()
        }

    def _take_receipts(
        self, running: RunningRound, began: float, *, killed: bool, fenced: Collection[Partition]
    ) -> bool:
        """Record what the tasks report; return whether they reported."""
        took = self._runtime.monotonic() - began
        try:
            self._tracker.tasks_lost(running.lost_tasks)  # includes the last moment
            receipts = running.receipts()
        except SparkFailed as error:
            if killed:
                self._tracker.round_dropped(took)
                return False
            self._failed_rounds += 1
            self._tracker.round_lost(error, took)
            if self._failed_rounds >= FAILED_ROUNDS_IN_A_ROW:
                raise
            self._stop.wait(2.0**self._failed_rounds)
            return False
        self._failed_rounds = 0
        checks = max(took, 1) / self._config.round_interval
        self._arrived = {receipt.partition: int(receipt.records / checks) for receipt in receipts}
        self._allowances = {receipt.partition: most for receipt in receipts if (most := receipt.allowance) is not None}
        self._windows = {receipt.partition: receipt.window for receipt in receipts if receipt.window}
        self._reported_at = self._runtime.monotonic()
        self._renewal.renewed(  # a task commits its records, also those of a partition that we fence at the end
            each.partition
            for each in receipts
            if each.outcome is Outcome.DONE or (each.partition in fenced and each.records)
        )
        self._discovery.reported(receipts, fenced)
        self._tracker.round_ended(receipts, took)
        idle = all(receipt.outcome is Outcome.FAILED and not receipt.records for receipt in receipts)
        pause = min(self._idle_pause if idle else 1.0, self._config.round_interval)
        self._idle_pause = 2 * pause if idle else 1.0
        if took < pause and any(receipt.outcome is not Outcome.DONE for receipt in receipts):
            self._stop.wait(pause)
        return True

    def _needs_rebalance(self, rounds: Rounds, running: RunningRound, balance: Balance) -> str:
        if running.lost_tasks >= MAX_LOST_TASKS:
            return "tasks were lost"
        idle = "a task has no work left" if running.done_tasks else ""
        try:
            if self._ask(self._clients.pauses.read) is not None:
                return "the service is paused"
            found = self._ask(self._discovery.refresh)
        except (NotAllowed, Unreachable) as error:
            balance.pause(self._runtime.monotonic())
            self._tracker.kafka_is_away(error)
            return str(error) if self._refusals.are_final(error) else idle
        except NotUsable as error:  # the next discovery raises it, after the tasks have ended cleanly
            return str(error)
        self._refusals.over()
        self._tracker.refreshed(found)
        self._tracker.aged(self._clients.ages)
        self._tracker.taken_over(self._discovery.takeover.taken)
        if self._tracker.snapshot.taken:  # the tasks continue with their remaining partitions
            return "all partitions were taken over" if self._discovery.takeover.has_all(balance.partitions) else ""
        return idle or balance.needs_rebalance(found, rounds.slots, self._runtime.monotonic())


def _exit_code(workload: Workload, ends: Mapping[Partition, int | None]) -> int:
    if missing := workload.missing(ends):
        Event.PARTITIONS_MISSING.log(partitions=", ".join(map(str, sorted(missing))))
    return 1 if missing or workload.unfinished(ends) else 0
