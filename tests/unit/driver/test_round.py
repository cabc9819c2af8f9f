"""How a round ends: by itself, or in timed steps. On a clock that only waiting moves."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import replace
from math import inf
from threading import Timer
from typing import Any

import pytest

from app.driver.discover import Discovery
from app.driver.round import MOST_PATIENCE, SUSPECT_SECONDS, Patience, Round, Suspects
from app.driver.tracker import StatusTracker
from app.errors import NotAllowed, NotUsable, SparkFailed, Unreachable
from app.model import Assignment, CommittedOffset, Owner, Partition, Receipt
from app.offsets.contract import TransactionalOffsetStore
from app.runtime import Timings
from app.status.snapshot import Ending, Phase, Snapshot
from tests.fakes.driver import DriverKafka, FakeRound, FakeRounds, Result, config, service, works
from tests.fakes.simulation import ImpatientStop, Inline, SimulatedStop, SimulatedTime

A, B, C = (Partition("raw", number) for number in range(3))
CONTROL, EVERY = [A, C], [A, B, C]
SECONDS = 60.0
TIMINGS = Timings()
OVERRUN = 4.2
"""The extra time of the larger task, which has two partitions."""
A_LOOK = 1.2
"""How late a due round is looked at, and a bit."""


class Tasks:
    """The tasks of a round, which end at a given time, or some time after some partitions are fenced."""

    done_tasks = 0

    def __init__(self, time: SimulatedTime, ends_at: float) -> None:
        self.time = time
        self.ends_at = ends_at
        self.after_fence: dict[int, float] = {}
        self.starved_at = inf
        self.lost_at: list[float] = []
        self.cancelled_at: float | None = None
        self.reachable = True
        self.fenced: list[tuple[float, list[Partition]]] = []

    @property
    def lost_tasks(self) -> int:
        return sum(at <= self.time.now for at in self.lost_at)

    @property
    def starved(self) -> bool:
        return self.starved_at <= self.time.now

    def wait(self, seconds: float) -> bool:
        self.time.pass_by(max(0.0, min(seconds, self.ends_at - self.time.now)))
        return self.ends_at <= self.time.now

    def cancel(self) -> None:
        self.cancelled_at = self.time.now

    def receipts(self) -> list[Receipt]:
        return []

    def fence(self, partitions: Iterable[Partition]) -> Collection[Partition]:
        self.fenced.append((self.time.now, sorted(partitions)))
        self.ends_at = min(self.ends_at, self.time.now + self.after_fence.get(len(self.fenced), inf))
        return self.fenced[-1][1] if self.reachable else ()

    def renew(self, partitions: Iterable[Partition], offsets: TransactionalOffsetStore) -> Collection[Partition]:
        raise NotUsable("nobody asks that of a running round")

    def refuse_forbidden_ids(self) -> None:
        """Allow them."""

    def refuse_short_transactions(self) -> None:
        raise NotUsable("nobody asks that of a running round")


class RoundHarness:
    """Two tasks, one with two partitions and one with one."""

    def __init__(self, ends_at: float = inf, stop_at: float = inf) -> None:
        self.time = SimulatedTime()
        self.time.pass_by(1_000)  # it does not matter when the process began
        self.tasks = Tasks(self.time, 1_000 + ends_at)
        self.stop = SimulatedStop(self.time, 1_000 + stop_at)
        self.published: list[Snapshot] = []
        self.tracker = StatusTracker("g", [lambda _, after: self.published.append(after)], self.time.runtime)
        workload = Discovery(config(), DriverKafka(p0=(0, 9), p1=(0, 9), p2=(0, 9)).clients).discover()
        self.tracker.discovered(workload)
        self.tracker.round_began(2, 2, list(workload.ranges.values()))
        self.assignments = [
            Assignment(None, tuple(workload.ranges[each] for each in task), SECONDS, 0.0)  # type: ignore[arg-type]  # not used
            for task in ([A, B], [C])
        ]
        self.checked_at: list[float] = []

    @property
    def now(self) -> float:
        return self.time.now - 1_000

    def watch(
        self,
        check: Callable[[], str] = lambda: "",
        *,
        has_fence: bool = True,
        checks: Executor | None = None,
        timings: Timings = TIMINGS,
    ) -> bool:
        self.round = Round(
            self.tasks,
            self.assignments,
            fence=self.tasks if has_fence else None,
            stop=self.stop,
            tracker=self.tracker,
            runtime=replace(self.time.runtime, timings=timings),
            checks=checks or Inline(),
        )

        def noted() -> str:
            self.checked_at.append(self.now)
            return check()

        return self.round.watch(noted, every=10.0)

    @property
    def fenced(self) -> list[Collection[Partition]]:
        return [partitions for _, partitions in self.tasks.fenced]

    @property
    def fenced_at(self) -> list[float]:
        return [at - 1_000 for at, _ in self.tasks.fenced]

    @property
    def ending(self) -> tuple[Ending | None, str]:
        assert self.tracker.snapshot.round is not None
        return self.tracker.snapshot.round.ending, self.tracker.snapshot.round.reason


def soon_after(moment: float) -> Any:
    """Matches a time shortly after a due one."""
    return pytest.approx(moment + A_LOOK / 2, abs=A_LOOK / 2)


def test_a_round_that_ends_by_itself_is_left_alone() -> None:
    """Its end is noticed at once; nothing is fenced or logged."""
    harness = RoundHarness(ends_at=35.0)

    assert not harness.watch()
    assert 35.0 == pytest.approx(harness.now)
    assert [] == harness.fenced
    assert (None, "") == harness.ending


def test_a_plan_is_looked_at_again_and_again() -> None:
    """The interval begins when the last check has ended, however long Kafka took to respond."""
    harness = RoundHarness(ends_at=50.0)

    def slowly() -> str:
        harness.time.pass_by(4.0)
        return ""

    assert not harness.watch(slowly)
    first, second, third = harness.checked_at
    assert [soon_after(10.0), soon_after(first + 14.0), soon_after(second + 14.0)] == [first, second, third]


def test_a_round_whose_plan_is_bad_ends_through_its_control_partitions() -> None:
    """Its tasks get the time for their last commits, end, and are not killed."""
    harness = RoundHarness()
    harness.tasks.after_fence = {1: OVERRUN - 0.2}

    assert not harness.watch(lambda: "the work has become uneven")
    assert [CONTROL] == harness.fenced
    assert (Ending.REBALANCE, "the work has become uneven") == harness.ending
    assert harness.tasks.cancelled_at is None


def test_tasks_that_missed_the_first_fence_get_a_second_one() -> None:
    """A task that opened after the fence of its control partition is fenced on all partitions, and not killed."""
    harness = RoundHarness()
    harness.tasks.after_fence = {2: TIMINGS.fence_all - 0.2}

    assert not harness.watch(lambda: "partitions were added or removed")
    assert [CONTROL, EVERY] == harness.fenced
    first, second = harness.fenced_at
    assert OVERRUN == pytest.approx(second - first, abs=0.2)
    assert harness.tasks.cancelled_at is None


def test_tasks_that_do_not_end_are_killed() -> None:
    """After both fences the job is cancelled. Another fence stops whatever still runs, and the status shows it."""
    harness = RoundHarness()

    assert harness.watch(lambda: "partitions were added or removed")
    assert [CONTROL, EVERY, EVERY] == harness.fenced
    _, second, third = harness.fenced_at
    assert harness.tasks.cancelled_at is not None
    assert second + TIMINGS.fence_all == pytest.approx(harness.tasks.cancelled_at - 1_000, abs=0.2)
    assert TIMINGS.kill == pytest.approx(third - (harness.tasks.cancelled_at - 1_000))
    assert harness.tracker.snapshot.round is not None
    assert harness.tracker.snapshot.round.killed


def test_a_fence_that_is_refused_has_not_reached_kafka() -> None:
    """A single refusal may pass, and a stop must end cleanly. The next discovery judges it."""
    harness = RoundHarness(stop_at=5.0)

    def refuse(_partitions: Iterable[Partition]) -> Collection[Partition]:
        raise NotAllowed("not authorized")

    harness.tasks.fence = refuse  # type: ignore[assignment, method-assign]

    assert harness.watch()
    assert harness.tasks.cancelled_at
    assert not harness.round.reached
    assert not harness.round.tasks_to_blame


def test_tasks_that_no_fence_reaches_are_killed_at_once() -> None:
    """Waiting is pointless while Kafka is unavailable."""
    harness = RoundHarness()
    harness.tasks.reachable = False

    assert harness.watch(lambda: "wrong password")
    assert CONTROL == harness.fenced[0]
    assert harness.fenced_at[0] == (harness.tasks.cancelled_at or 0) - 1_000


def test_a_round_that_overruns_its_deadline() -> None:
    """Its largest task has had time for its last commits, so all partitions are fenced, then the job is killed."""
    harness = RoundHarness()

    assert harness.watch()
    assert [EVERY, EVERY] == harness.fenced
    assert soon_after(SECONDS + OVERRUN) == harness.fenced_at[0]
    assert (Ending.OVERDUE, "") == harness.ending


def test_patience_lasts_as_long_as_rounds_need_it() -> None:
    """Otherwise every second round would be killed in vain where tasks start slowly."""
    patience, assignments = Patience(TIMINGS), RoundHarness().assignments

    for _ in range(3):
        patience.failed()
    assert TIMINGS.for_slow_tasks(8) == patience.timings
    patience.reported(assignments, late=2 * OVERRUN + 1)
    assert TIMINGS.for_slow_tasks(4) == patience.timings
    patience.reported(assignments, late=2 * OVERRUN + 1)
    assert TIMINGS.for_slow_tasks(4) == patience.timings
    patience.reported(assignments, late=-50)
    assert TIMINGS == patience.timings
    for _ in range(9):
        patience.failed()
    assert TIMINGS.for_slow_tasks(MOST_PATIENCE) == patience.timings


def test_a_task_without_a_slot_ends_the_round() -> None:
    """The others end as for a stop: an executor is missing, and its partitions are planned on the remaining ones."""
    harness = RoundHarness()
    harness.tasks.starved_at = 1_003.0

    assert harness.watch()
    assert [CONTROL, EVERY, EVERY] == harness.fenced
    assert soon_after(3.0) == harness.fenced_at[0]
    assert TIMINGS.control_fence == pytest.approx(harness.fenced_at[1] - harness.fenced_at[0], abs=0.2)
    assert (Ending.STARVED, "") == harness.ending


def test_lost_tasks_are_told_as_they_are_lost() -> None:
    """Each loss is published once."""
    harness = RoundHarness(ends_at=30.0)
    harness.tasks.lost_at = [1_002.0, 1_012.0, 1_013.0]
    before = len(harness.published)

    harness.watch()

    assert [1, 2, 3] == [each.round.lost_tasks for each in harness.published[before:] if each.round]


class TestStop:
    def test_a_stop_ends_the_round_at_once(self) -> None:
        """The control partitions are fenced within a tenth of a second, and the status says why."""
        harness = RoundHarness(stop_at=5.0)
        harness.tasks.after_fence = {1: 1.0}

        assert not harness.watch()
        assert [CONTROL] == harness.fenced
        assert 5.0 == pytest.approx(harness.fenced_at[0], abs=0.11)
        assert (Ending.STOPPED, "the simulation ends") == harness.ending
        assert (Phase.STOPPING, "the simulation ends") == (
            harness.tracker.snapshot.phase,
            harness.tracker.snapshot.cause,
        )

    def test_tasks_that_do_not_end_are_killed_within_ten_seconds(self) -> None:
        """Kubernetes waits for 30 s, so each step is limited."""
        harness = RoundHarness(stop_at=5.0)

        assert harness.watch()
        assert [CONTROL, EVERY, EVERY] == harness.fenced
        first, second, _ = harness.fenced_at
        assert TIMINGS.control_fence == pytest.approx(second - first, abs=0.2)
        assert TIMINGS.control_fence + TIMINGS.fence_all + TIMINGS.kill == pytest.approx(harness.now - first, abs=0.4)

    def test_a_round_that_has_ended_meanwhile_needs_no_fence(self) -> None:
        """A stop just as the round ends changes nothing."""
        harness = RoundHarness(ends_at=5.0, stop_at=5.0)

        assert not harness.watch()
        assert [] == harness.fenced
        assert Phase.RUNNING is harness.tracker.snapshot.phase

    def test_a_stop_does_not_wait_for_a_check(self) -> None:
        """Kafka may take long to respond."""
        harness = RoundHarness()
        harness.tasks.after_fence = {1: 1.0}

        class Unanswered(Future[str]):
            def result(self, timeout: float | None = None) -> str:
                pytest.fail("nothing to wait for")

        class Asking(Executor):
            def submit(self, *_: object, **__: object) -> Future[Any]:
                Timer(0.05, harness.stop.request, ["SIGTERM"]).start()
                return Unanswered()

        assert not harness.watch(checks=Asking(), timings=Timings(look=0.001))
        assert (Ending.STOPPED, "SIGTERM") == harness.ending


def test_without_a_fence_a_round_is_not_ended_for_a_better_plan() -> None:
    """With at-least-once, work since the last commit would be repeated; only a stop kills the tasks."""
    harness = RoundHarness(stop_at=30.0)

    assert harness.watch(lambda: "the work has become uneven", has_fence=False)
    assert [] == harness.checked_at
    assert harness.tasks.cancelled_at == pytest.approx(1_030.0, abs=0.11)
    assert [] == harness.fenced


def test_the_deadline_counts_from_the_beginning_of_the_round() -> None:
    """A longer round is overdue later."""
    harness = RoundHarness()
    harness.assignments = [replace(each, seconds=600.0) for each in harness.assignments]

    harness.watch()

    assert soon_after(600.0 + OVERRUN) == harness.fenced_at[0]


def test_a_round_that_is_watched_shows_that_the_service_is_alive() -> None:
    """The heartbeat continues every second while tasks work, and stops while a check hangs."""
    harness, seen = RoundHarness(ends_at=40.0), []

    def check() -> str:
        harness.time.pass_by(25.0)
        seen.append(harness.now - (harness.tracker.snapshot.alive - 1_000))
        return ""

    harness.watch(check)

    assert 25.0 <= seen[0] <= 26.0
    assert harness.now - 1.0 <= harness.tracker.snapshot.alive - 1_000 <= harness.now


@pytest.mark.parametrize(
    ("harness", "reachable", "to_blame"),
    [(RoundHarness(stop_at=5.5), True, False), (RoundHarness(), False, False), (RoundHarness(), True, True)],
    ids=["a stop", "Kafka is away", "the tasks hang"],
)
def test_who_is_to_blame_for_tasks_that_do_not_report(harness: RoundHarness, reachable: bool, to_blame: bool) -> None:
    """A record may be, unless a stop or an outage ended the round; a lost executor may, too."""
    harness.tasks.reachable = reachable

    assert harness.watch(lambda: "stalled")

    assert to_blame == harness.round.tasks_to_blame


class TestTakeover:
    LATER = Owner(1, "there", "clean", 1)

    def test_what_is_taken_over_is_not_fenced(self) -> None:
        """It would only disturb the new owner. Each task ends by the first partition that it still has."""
        harness = RoundHarness(stop_at=5.0)
        harness.tracker.taken_over({A: self.LATER})

        assert harness.watch()

        assert [[B, C], [B, C], [B, C]] == [fenced for _, fenced in harness.tasks.fenced]

    def test_tasks_that_have_nothing_left_are_killed_at_once(self) -> None:
        """Without traffic they would not notice that they have lost everything."""
        harness = RoundHarness()
        harness.tracker.taken_over(dict.fromkeys(EVERY, self.LATER))

        assert harness.watch(lambda: "all partitions were taken over")

        assert harness.tasks.cancelled_at is not None
        assert harness.tasks.cancelled_at - 1_000 < 10 + A_LOOK + 0.5
        assert all(not fenced for _, fenced in harness.tasks.fenced)


class TestSuspects:
    """Partitions that may hold a record that kills or hangs the workers."""

    def test_who_stood_still_although_records_wait(self) -> None:
        """A partition that made progress, or has nothing to read, is not one."""
        kafka = DriverKafka(p0=(0, 10), p1=(0, 10), p2=(0, 10))
        kafka.committed = {A: CommittedOffset(4), B: CommittedOffset(4), C: CommittedOffset(10)}
        discovery, suspects = Discovery(config(), kafka.clients), Suspects(lambda: 0.0)
        suspects.round_died(discovery.discover().offsets)
        kafka.committed[B] = CommittedOffset(5)

        assert {A} == suspects.among(discovery.discover())

    def test_a_suspicion_ends(self) -> None:
        """More such records may follow one, but not forever; what happened before another round is forgotten."""
        kafka, now = DriverKafka(p0=(0, 10)), [0.0]
        discovery, suspects = Discovery(config(), kafka.clients), Suspects(lambda: now[0])
        suspects.round_died(discovery.discover().offsets)

        assert {A} == suspects.among(discovery.discover())
        now[0] = SUSPECT_SECONDS - 1
        assert {A} == suspects.among(discovery.discover())
        now[0] = SUSPECT_SECONDS
        assert not suspects.among(discovery.discover())

    def test_the_next_round_isolates_the_parser_of_the_suspects(self) -> None:
        """Only for their tasks, because isolation has a small cost."""
        kafka = DriverKafka(p0=(0, 10), p1=(0, 10))
        act = works(kafka)

        def die_once(assignments: Sequence[Assignment]) -> Result:
            if len(rounds.rounds) == 1:
                kafka.committed[B] = CommittedOffset(5)
                return SparkFailed("a worker died too often")
            return act(assignments)

        rounds = FakeRounds(die_once)
        service(kafka, rounds, stop=ImpatientStop()).run(until_end=True)

        assert [{A: False, B: False}, {A: True, B: False}] == [
            {each.partition: task.isolate for task in round_ for each in task.ranges} for round_ in rounds.rounds
        ]

    def test_an_outage_acquits_all(self) -> None:
        """At least once, no round notices it: the tasks have waited for Kafka, as the driver does now."""
        kafka = DriverKafka(p0=(0, 10))
        act = works(kafka)

        def hang_once(assignments: Sequence[Assignment]) -> Result:
            if len(rounds.rounds) > 1:
                return act(assignments)
            kafka.troubles = [Unreachable("connection refused")]
            return SparkFailed("the tasks were killed")

        rounds = FakeRounds(hang_once)
        service(kafka, rounds, config("delivery.guarantee=at-least-once"), ImpatientStop()).run(until_end=True)

        assert [False, False] == [task.isolate for round_ in rounds.rounds for task in round_]

    def test_a_retry_without_time_left_acquits_nobody(self) -> None:
        """At least once, the watchdog ends the first attempt after the deadline, so the second reports no record."""
        kafka = DriverKafka(p0=(0, 10))
        kafka.committed[A] = CommittedOffset(4)
        act = works(kafka)

        class Lost(FakeRound):
            lost_tasks = 1

        def hang_once(assignments: Sequence[Assignment]) -> Result:
            return [Receipt(A, 4, 4)] if len(rounds.rounds) == 1 else act(assignments)

        rounds = FakeRounds(hang_once)
        rounds.kind = Lost
        service(kafka, rounds, config("delivery.guarantee=at-least-once"), ImpatientStop()).run(until_end=True)

        assert [False, True] == [task.isolate for round_ in rounds.rounds for task in round_]
