"""A take-over as seen by both services: who owns what, when the later one acts, and how both end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

import pytest
from structlog.testing import capture_logs

from app.config import Config
from app.driver.life import Sight
from app.driver.renewal import SHARE
from app.driver.service import Service
from app.driver.starting_offsets import PartitionOffsets
from app.driver.takeover import Takeover, control_partitions_last
from app.driver.tracker import StatusTracker
from app.errors import ServiceRuns, SparkFailed, Unreachable
from app.model import (
    NOBODY,
    Assignment,
    Attempt,
    CommittedOffset,
    OffsetRange,
    Outcome,
    Owner,
    Partition,
    Receipt,
    Watermarks,
)
from app.offsets.metadata import OffsetMetadata
from app.offsets.times import NO_TIME, TaskReport
from app.runtime import REAL
from app.status import log
from app.status.snapshot import Step
from tests.fakes.driver import DriverKafka, FakeRound, FakeRounds, Result, config, works
from tests.fakes.simulation import SimulatedStop, SimulatedTime
from tests.support.logs import of_event

T = TypeVar("T")
A, B, C = Partition("raw", 0), Partition("raw", 1), Partition("raw", 2)
EARLIER, ME = Owner(9_000, "there", "clean", 1), Owner(5_000, "here", "clean", 2)
GONE_SECONDS = REAL.timings.gone
OURS = Owner(0, REAL.host, "clean", 2)
"""The service itself, on simulated time."""
OTHER = Owner(0, "~", "clean", 2)
"""A service of the same generation that started at the same time; its host comes after ours."""
LATER, LATEST = Owner(1_000, "there", "clean", 3), Owner(500, "there", "clean", 4)


class TakeoverHarness:
    """A take-over on a clock of its own."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.sight = Sight(lambda: self.now)
        self.takeover = Takeover(ME, self.sight, GONE_SECONDS)

    def look(self, moved: Mapping[Partition, Owner]) -> None:
        self.sight.opens()
        self.takeover.observe(moved)


class TestTakeover:
    def test_the_last_commit_says_whose_a_partition_is(self) -> None:
        """A larger number is a later generation, whenever it started."""
        harness = TakeoverHarness()

        harness.look({A: EARLIER, B: LATER})

        assert {A} == harness.takeover.to_take
        assert {B: LATER} == harness.takeover.taken
        harness.look({A: ME, B: ME})
        assert not harness.takeover.to_take
        assert not harness.takeover.taken

    def test_an_offset_that_a_person_set_is_nobodys(self) -> None:
        """There is no service to take it over from."""
        harness = TakeoverHarness()

        harness.look({A: NOBODY})

        assert not harness.takeover.to_take

    def test_a_later_generation_that_shows_no_sign_of_life_has_nothing(self) -> None:
        """Its partitions are ours again after a minute; a single commit shows that it is back."""
        harness = TakeoverHarness()
        harness.look({A: LATER, B: LATER})

        harness.now += GONE_SECONDS - 1
        assert {A, B} == harness.takeover.taken.keys()
        harness.now += 1
        assert not harness.takeover.taken
        harness.look({B: LATER})
        assert {A, B} == harness.takeover.taken.keys()

    def test_an_active_generation_holds_all_its_partitions(self) -> None:
        """One offset that moves is enough, because the others may be idle. Those of the first look may be old."""
        harness = TakeoverHarness()
        for moved, held in (({A: EARLIER, B: EARLIER}, set()), ({A: EARLIER}, {A, B}), ({C: LATER}, {A, B, C})):
            harness.look(moved)
            assert held == harness.takeover.held

        harness.now += GONE_SECONDS

        assert not harness.takeover.held

    def test_everything_is_taken_when_each_partition_is(self) -> None:
        """Partitions that we do not work on do not matter."""
        harness = TakeoverHarness()
        assert not harness.takeover.has_all([])

        harness.look({A: LATER})

        assert harness.takeover.has_all([A])
        assert not harness.takeover.has_all([A, B])

    def test_what_a_later_generation_leaves_for_a_minute_is_not_wanted(self) -> None:
        """A partition may need an operator there; the earlier service must not wait forever."""
        harness = TakeoverHarness()
        for _ in range(3):
            harness.look({A: LATER})
            assert not harness.takeover.has_all([A, B])
            harness.now += GONE_SECONDS / 3
        assert not harness.takeover.has_all([A, B])  # it has been silent since, perhaps for ever
        harness.look({A: LATER})

        assert harness.takeover.has_all([A, B])

    def test_a_later_generation_that_dies_in_between_has_not_had_its_minute(self) -> None:
        """Otherwise the earlier service would end although nobody works. A run after a crash has a minute of its own."""
        harness = TakeoverHarness()
        for _ in range(2):
            harness.look({A: LATER})
            harness.now += GONE_SECONDS / 2
        harness.look({})
        assert not harness.takeover.has_all([A, B])

        harness.look({A: LATER._replace(started=LATER.started + 1)})

        assert A in harness.takeover.taken
        assert not harness.takeover.has_all([A, B])

    def test_an_outage_counts_for_nothing(self) -> None:
        """It is neither silence of the later generation nor time in which that could have taken partitions."""
        harness = TakeoverHarness()
        harness.look({A: LATER})

        harness.sight.lose()
        harness.now += 90
        assert {A} == harness.takeover.taken.keys()
        harness.look({})

        assert {A} == harness.takeover.taken.keys()
        assert not harness.takeover.has_all([A, B])

    def test_a_second_attempt_has_its_own_minute(self) -> None:
        """A later generation that restarts after a crash gets the full time again."""
        harness = TakeoverHarness()
        harness.look({A: LATER})
        harness.now += 2 * GONE_SECONDS

        harness.look({A: LATER})

        assert not harness.takeover.has_all([A, B])


def owned(offset: int, owner: Owner) -> CommittedOffset:
    return CommittedOffset(offset, str(OffsetMetadata("id-1", 0, owner=owner)))


class SimulatedService:
    """A service of generation 2 among others, on simulated time."""

    def __init__(self, kafka: DriverKafka, rounds: FakeRounds, *, seconds: float = 500.0) -> None:
        self.kafka, self.rounds, self.time = kafka, rounds, SimulatedTime()
        self.stop = SimulatedStop(self.time, seconds)
        self.tracker = StatusTracker("g", [log.write], self.time.runtime)
        self.started_after: list[int] = []

    def run(
        self, settings: Config | None = None, *, until_end: bool = False, stand_by: bool = False
    ) -> list[Mapping[str, object]]:
        def start() -> FakeRounds:
            self.started_after.append(len(self.kafka.fenced))
            return self.rounds

        made = Service(
            settings or config("generation=2"),
            self.kafka.clients,
            start,
            stop=self.stop,
            tracker=self.tracker,
            runtime=self.time.runtime,
        )
        with capture_logs() as logs:
            assert 0 == made.run(until_end=until_end, stand_by=stand_by)
        return list(logs)


def test_the_control_partition_of_the_other_service_comes_last() -> None:
    """Fencing it would end the other task, and leave its remaining partitions idle before they are taken over."""
    report = TaskReport(Attempt(1, 0), NO_TIME)
    texts = {
        A: str(OffsetMetadata("id-1", 0, owner=EARLIER, report=report)),
        B: str(OffsetMetadata(owner=EARLIER)),
        C: "",
    }
    marks = Watermarks(0, 9, 9)
    offsets = {
        each: PartitionOffsets(each, "id-1", marks, CommittedOffset(5, text) if text else None)
        for each, text in texts.items()
    }
    task = [OffsetRange(each, None, 0) for each in (A, B, C)]

    assert [B, C, A] == [each.partition for each in control_partitions_last(task, offsets)]


class TestTheLater:
    def test_it_is_ready_before_it_fences_anything(self) -> None:
        """Spark and its workers are up. The driver itself fences nothing; each task does, partition by partition."""
        kafka = DriverKafka(p0=(0, 10), p1=(0, 10))
        kafka.committed = {A: owned(3, EARLIER), B: owned(4, ME)}
        rounds = FakeRounds(works(kafka))

        SimulatedService(kafka, rounds).run(until_end=True)

        assert rounds.warm
        assert [] == kafka.fenced
        assert [True] * len(rounds.rounds[0]) == [each.takes_over for each in rounds.rounds[0]]

    @pytest.mark.parametrize(
        ("owner", "last"), [(EARLIER, [Step.SPARK, Step.WORKERS]), (ME, [Step.FENCING, Step.SPARK])]
    )
    def test_a_start_says_what_it_waits_for(self, owner: Owner, last: list[Step]) -> None:
        """Each step begins when the one before has ended; only a take-over waits for workers instead of a fence."""
        kafka, seen = DriverKafka(p0=(0, 10)), []
        kafka.committed = {A: owned(3, owner)}
        flow = SimulatedService(kafka, FakeRounds(works(kafka)))
        flow.tracker = StatusTracker(
            "g", [lambda _, after: seen.append((after.step, after.step_since))], flow.time.runtime
        )

        flow.run(until_end=True)

        steps = [step for step, _ in dict.fromkeys(seen)]
        assert [Step.RIGHTS, Step.SETTINGS, Step.OFFSETS, *last, Step.ROUND] == steps
        assert sorted(since for _, since in seen) == [since for _, since in seen]

    @pytest.mark.parametrize("owner", [ME, Owner(1, "there", "clean", 2)])
    def test_a_restart_takes_nothing_over(self, owner: Owner) -> None:
        """If all offsets are of its own generation, leftovers of a crash are ended before Spark starts."""
        kafka = DriverKafka(p0=(0, 10))
        kafka.committed = {A: owned(3, owner)}
        rounds = FakeRounds(works(kafka))
        flow = SimulatedService(kafka, rounds)

        flow.run(until_end=True)

        assert [1] == flow.started_after
        assert not rounds.warm
        assert [[False]] == [[each.takes_over for each in tasks] for tasks in rounds.rounds]

    def test_later_rounds_open_their_partitions_side_by_side(self) -> None:
        """Once its tasks have committed everything in its name, there is no one left to take over from."""
        kafka = DriverKafka(p0=(0, 10))
        kafka.committed = {A: owned(3, EARLIER)}
        seen: list[bool] = []

        def act(assignments: Sequence[Assignment]) -> Result:
            seen.extend(each.takes_over for each in assignments)
            kafka.committed[A] = owned(5, OURS)
            flow.time.pass_by(2)
            return []

        flow = SimulatedService(kafka, FakeRounds(act), seconds=5)
        flow.run()

        assert [True, False] == seen[:2]

    def test_a_service_of_an_earlier_generation_is_no_rival(self) -> None:
        """It ends by itself, so no action is needed."""
        kafka = DriverKafka(p0=(0, 10))
        kafka.committed = {A: owned(3, ME)}
        offsets = iter(range(4, 10_000))

        def act(_: Sequence[Assignment]) -> Result:
            kafka.committed[A] = owned(next(offsets), EARLIER)
            flow.time.pass_by(2)
            return []

        flow = SimulatedService(kafka, FakeRounds(act), seconds=30)
        flow.run()

        assert flow.tracker.snapshot.rival is None


class LateWorkers(SimulatedStop):
    """No executor comes for as long as the simulation lasts."""

    tracker: StatusTracker

    def result(self, future: Future[T], meanwhile: Callable[[], object] = lambda: None) -> T:
        """Let time pass until the stop where the service waits for workers."""
        while self.tracker.snapshot.step is Step.WORKERS and not self.wait(1.0):
            meanwhile()
        return super().result(future, meanwhile)


class TestNoExecutorComes:
    """The earlier generation leaves after `handover.timeout`, and nobody else renews the offsets. They are kept an hour."""

    def run(self, *, leaves: float, away: tuple[float, float] = (0.0, 0.0)) -> list[tuple[float, Partition]]:
        """Return the time of each renewal. The earlier run commits in one of its two partitions until it leaves."""
        kafka = Occupied(EARLIER, until=leaves)
        kafka.away, kafka.recovers = away, 5.0
        kafka.watermark[B], kafka.committed[B], kafka.keeps_offsets = (0, 10), owned(4, EARLIER), 3_600.0
        flow, renewed = SimulatedService(kafka, FakeRounds(works(kafka))), list[tuple[float, Partition]]()
        kafka.time = flow.time
        kafka.save = lambda each, *_: renewed.append((flow.time.now, each))  # type: ignore[method-assign]
        flow.stop = LateWorkers(flow.time, 3_700.0)
        flow.stop.tracker = flow.tracker

        flow.run()

        assert [] == flow.rounds.rounds
        return renewed

    def test_the_later_renews_what_nobody_works_on(self) -> None:
        """A driver that is restarted again and again must do so soon."""
        renewed = self.run(leaves=0)

        assert [GONE_SECONDS, GONE_SECONDS + 900] == sorted({at for at, _ in renewed})[:2]
        assert dict.fromkeys([A, B], 1 + SHARE) == Counter(each for _, each in renewed)

    def test_the_later_fences_nothing_while_the_earlier_works(self) -> None:
        """That would cost the earlier service a rebalance, even for an idle partition."""
        renewed = self.run(leaves=1_800)

        assert 1_800 <= min(at for at, _ in renewed) <= 1_800 + 2 * GONE_SECONDS
        assert {A, B} == {each for _, each in renewed}

    def test_the_silence_of_an_outage_is_not_that_of_the_earlier(self) -> None:
        """Kafka is away at the first look, and the earlier run needs a moment to commit again."""
        renewed = self.run(leaves=1_800, away=(GONE_SECONDS / 2, 2 * GONE_SECONDS))

        assert 1_800 <= min(at for at, _ in renewed)


class Beside(FakeRounds):
    """A round that runs until it is killed, while others commit."""

    def __init__(
        self,
        kafka: DriverKafka,
        time: Callable[[], SimulatedTime],
        commits: Mapping[float, Mapping[Partition, CommittedOffset]],
    ) -> None:
        super().__init__(lambda _: SparkFailed("cancelled"), unending=True)
        self.kafka, self._time, self._commits = kafka, time, dict(commits)

    def submit(self, assignments: Sequence[Assignment]) -> FakeRound:
        made = super().submit(assignments)
        real = made.wait

        def wait(seconds: float) -> bool:
            self._time().pass_by(seconds)
            for at in [at for at in self._commits if at <= self._time().now]:
                self.kafka.committed |= self._commits.pop(at)
            return real(seconds)

        made.wait = wait  # type: ignore[method-assign]
        return made


class TestTheEarlier:
    def test_it_ends_with_0_and_names_who_took_over(self) -> None:
        """Its tasks are killed when they have nothing left, and nothing that others own is fenced."""
        kafka = DriverKafka(p0=(0, 10), p1=(0, 10))
        kafka.committed = {A: owned(3, ME), B: owned(3, ME)}
        rounds = Beside(kafka, lambda: flow.time, {45.0: {A: owned(4, LATER)}, 65.0: {B: owned(4, LATER)}})
        flow = SimulatedService(kafka, rounds)

        logs = flow.run()

        assert rounds.cancelled
        assert 1 == len(rounds.rounds)
        assert 1 == len([fenced for fenced in kafka.fenced if fenced])  # before Spark started
        assert 65 < flow.time.now < 85
        handed = of_event(logs, "taken_over")
        assert [(1, 2), (2, 2)] == [(each["taken"], each["partitions"]) for each in handed]
        assert f"taken over by {LATER}" == logs[-1]["cause"]
        assert "of generation 3 on there that started at 1970-01-01T00:00:01" in str(LATER)

    def test_it_goes_on_with_what_it_still_has(self) -> None:
        """While only a part is taken, its round does not end, even if the work is uneven or done."""
        kafka = DriverKafka(p0=(0, 10), p1=(0, 10))
        kafka.committed = {A: owned(3, ME), B: owned(3, ME)}
        alive = {float(at): {A: owned(at, LATER)} for at in range(40, 80, 5)}
        rounds = Beside(kafka, lambda: flow.time, alive)
        flow = SimulatedService(kafka, rounds, seconds=85)

        flow.run()

        assert 1 == len(rounds.rounds)
        assert [A] not in kafka.fenced
        assert all(A not in fenced for fenced in kafka.fenced[1:])

    def test_when_the_later_one_is_gone_it_works_on_everything_again(self) -> None:
        """After a crash in the middle of a take-over, one service must still work."""
        kafka = DriverKafka(p0=(0, 10), p1=(0, 10))
        kafka.committed = {A: owned(3, ME), B: owned(3, ME)}

        def act(assignments: Sequence[Assignment]) -> Result:
            if len(rounds.rounds) == 3:
                kafka.committed[A] = owned(4, LATER)
            flow.time.pass_by(2)
            return []

        rounds = FakeRounds(act)
        flow = SimulatedService(kafka, rounds, seconds=80)

        logs = flow.run()

        assert 3 < len(rounds.rounds)
        assert {A, B} == {each.partition for task in rounds.rounds[3] for each in task.ranges}
        events = [each["event"] for each in logs]
        assert "takeover_abandoned" in events

    def test_what_it_cannot_read_is_still_its_own(self) -> None:
        """It waits for who is to take it: the later one may die before the partition has a leader again."""
        kafka = DriverKafka(p0=(0, 10), p1=(0, 10))
        kafka.committed = {A: owned(3, ME), B: owned(3, ME)}

        def act(_: Sequence[Assignment]) -> Result:
            if len(rounds.rounds) == 3:
                kafka.committed[A], kafka.leaderless = owned(4, LATER), {B.number}
            flow.time.pass_by(2)
            return []

        rounds = FakeRounds(act)
        flow = SimulatedService(kafka, rounds, seconds=80)

        flow.run()

        assert {A} == {each.partition for task in rounds.rounds[3] for each in task.ranges}

    def test_whoever_fences_its_tasks_has_a_moment_to_say_who_they_are(self) -> None:
        """A new round at once would fence the later run before its first commit, and so on."""
        kafka = DriverKafka(p0=(0, 10))
        kafka.committed = {A: owned(3, OURS)}

        def act(assignments: Sequence[Assignment]) -> Result:
            commits.append(flow.time.now + 1)
            return [Receipt(A, 3, 3, outcome=Outcome.FENCED)]

        def load(*args: Any, **named: Any) -> dict[Partition, CommittedOffset]:
            if commits and flow.time.now >= commits[0]:
                kafka.committed[A] = owned(3, LATER)
            return real(*args, **named)

        commits: list[float] = []
        rounds = FakeRounds(act)
        flow = SimulatedService(kafka, rounds)
        real = kafka.load
        kafka.load = load  # type: ignore[method-assign]

        logs = flow.run()

        assert 1 == len(rounds.rounds)
        assert f"taken over by {LATER}" == logs[-1]["cause"]

    def test_a_fence_by_nobody_who_commits_costs_a_moment(self) -> None:
        """Then the partitions are planned again, as after any fence."""
        kafka = DriverKafka(p0=(0, 10))
        kafka.committed = {A: owned(3, OURS)}
        began: list[float] = []

        def act(assignments: Sequence[Assignment]) -> Result:
            began.append(flow.time.now)
            return [Receipt(A, 3, 3, outcome=Outcome.FENCED)]

        flow = SimulatedService(kafka, FakeRounds(act), seconds=20)
        flow.run()

        assert 3 <= began[1] - began[0] < 6

    @pytest.mark.parametrize("interval", ["10s", "1h"])
    def test_one_that_starts_beside_a_later_one_stands_by(self, interval: str) -> None:
        """Kubernetes restarts it after its end; it takes nothing back, nor starts Spark, until it must."""
        kafka = DriverKafka(p0=(0, 10))
        kafka.committed = {A: owned(3, LATER)}
        flow = SimulatedService(kafka, FakeRounds(works(kafka)))

        logs = flow.run(config("generation=2", f"round.interval={interval}"), until_end=True)

        assert 1 == len(flow.rounds.rounds)
        assert GONE_SECONDS <= flow.time.now < GONE_SECONDS + 20
        said = [each["event"] for each in logs]
        assert "standing_by" == said[0]

    def test_of_several_the_last_generation_is_named(self) -> None:
        """Two may take over at the same time; only the last one continues."""
        kafka = DriverKafka(p0=(0, 10), p1=(0, 10))
        kafka.committed = {A: owned(3, ME), B: owned(3, ME)}
        rounds = Beside(kafka, lambda: flow.time, {45.0: {A: owned(4, LATER), B: owned(4, LATEST)}})
        flow = SimulatedService(kafka, rounds)

        assert f"taken over by {LATEST}" == flow.run()[-1]["cause"]


class Occupied(DriverKafka):
    """Kafka with one partition on which another run commits once a second until it is gone or fenced."""

    def __init__(self, owner: Owner, until: float) -> None:
        super().__init__(p0=(0, 10))
        self.committed = {A: owned(3, owner)}
        self.owner, self.until = owner, until
        self.time: Callable[[], float] = lambda: 0.0
        self.away = (0.0, 0.0)
        """The start and end of an outage."""
        self.recovers = 0.0
        """How long after the outage the run commits again."""
        self.before_load: Callable[[], object] = lambda: None
        self.before_check: Callable[[], object] = lambda: None

    def refuse_short_transactions(self) -> None:
        self.before_check()

    def load(self, partitions: Iterable[Partition], *, stable: bool) -> dict[Partition, CommittedOffset]:
        self.before_load()
        began, ended = self.away
        if began <= self.time() < ended:
            raise Unreachable("away")
        works = 0 < self.time() < self.until and not began <= self.time() < ended + self.recovers
        if works and not self.fenced:
            report = TaskReport(Attempt(int(self.time()), 0), NO_TIME)
            self.committed[A] = CommittedOffset(3, str(OffsetMetadata("id-1", 0, owner=self.owner, report=report)))
        return super().load(partitions, stable=stable)


def beside(other: Owner, until: float) -> tuple[Occupied, SimulatedService]:
    """Return a service on simulated time, and its Kafka, on which another run commits until then."""
    kafka = Occupied(other, until)
    flow = SimulatedService(kafka, FakeRounds(works(kafka)))
    kafka.time = flow.time
    return kafka, flow


class TestUntilEnd:
    """A backfill while the group's service may run."""

    def test_it_refuses_beside_a_service_that_works(self) -> None:
        """It fences nothing, and Spark does not start."""
        kafka, flow = beside(Owner(0, "!", "clean", 2), until=100)

        with pytest.raises(ServiceRuns, match=r"the service of generation 2 on ! .* works for group 'g'"):
            flow.run(until_end=True)

        assert [] == flow.started_after
        assert [] == kafka.fenced
        assert flow.time.now < 3

    def test_it_works_where_the_other_one_is_gone(self) -> None:
        """A second cron run finds the commits of the first one standing still."""
        kafka, flow = beside(Owner(0, "!", "clean", 2), until=0)

        flow.run(until_end=True)

        assert 10 == kafka.committed[A].offset
        assert 3 <= flow.time.now < 4

    def test_a_later_generation_takes_over(self) -> None:
        """This is the purpose of generations."""
        _, flow = beside(EARLIER, until=3)

        flow.run(until_end=True)

        assert flow.rounds.rounds[0][0].takes_over


class TestStandBy:
    """A driver that restarts itself must not take the work back from its replacement."""

    @pytest.mark.parametrize("interval", ["5s", "10s", "1h"])
    @pytest.mark.parametrize("host", ["!", "~"])
    def test_it_waits_for_another_service_of_its_generation(self, host: str, interval: str) -> None:
        """Even if the other one started earlier, it fences nothing before that is gone."""
        kafka, flow = beside(Owner(0, host, "clean", 2), until=100)

        settings = config("generation=2", f"round.interval={interval}")
        logs = flow.run(settings, until_end=True, stand_by=True)

        assert 1 == len(flow.rounds.rounds)
        assert [[A]] == kafka.fenced
        assert 100 + GONE_SECONDS - 10 <= flow.time.now < 100 + GONE_SECONDS + 20
        assert "standing_by" == logs[0]["event"]
        assert "nothing to do" in str(logs[0]["rival"])

    @pytest.mark.parametrize(("interval", "least"), [("500ms", 3), ("15s", 30)])
    def test_it_works_soon_where_there_is_none(self, interval: str, least: float) -> None:
        """An offset that stands still for two commits is no sign of life."""
        _, flow = beside(OTHER, until=0)

        flow.run(config("generation=2", f"commit.interval={interval}"), until_end=True, stand_by=True)

        assert 1 == len(flow.rounds.rounds)
        assert least <= flow.time.now < least + 1

    def test_the_wait_for_an_answer_is_no_look(self) -> None:
        """The other run may have waited for the same coordinator."""
        (kafka, flow), slow = beside(OTHER, until=0), iter([2.0, 2.0])
        kafka.before_load = lambda: flow.time.pass_by(next(slow, 0.0))

        flow.run(config("generation=2"), until_end=True, stand_by=True)

        assert 7 <= flow.time.now < 8

    def test_it_waits_for_no_earlier_generation(self) -> None:
        """That one is waiting to be taken over."""
        _, flow = beside(EARLIER, until=2.9)

        flow.run(until_end=True, stand_by=True)

        assert flow.rounds.rounds[0][0].takes_over
        assert 3 <= flow.time.now < 10

    def test_an_outage_of_its_own_is_no_silence_of_the_other(self) -> None:
        """After 90 s without Kafka it waits until the other has been silent for a minute, and fences nothing before."""
        kafka, flow = beside(OTHER, until=50)
        kafka.away = (50.0, 140.0)

        flow.run(until_end=True, stand_by=True)

        assert [[A]] == kafka.fenced
        assert 140 + GONE_SECONDS <= flow.time.now < 140 + GONE_SECONDS + 20

    def test_an_outage_at_its_start_shows_nobody(self) -> None:
        """It has seen nothing when Kafka responds; then it sees the other run and leaves the work to it."""
        kafka, flow = beside(OTHER, until=100)
        kafka.away = (0.0, 20.0)

        flow.run(until_end=True, stand_by=True)

        assert [[A]] == kafka.fenced
        assert 100 + GONE_SECONDS - 10 <= flow.time.now

    def test_it_looks_last(self) -> None:
        """In a new group no offset names the other run, which commits first while the check of settings waits."""
        (kafka, flow), slow = beside(OTHER, until=100), iter([20.0])
        kafka.committed = {}
        kafka.before_check = lambda: flow.time.pass_by(next(slow, 0.0))

        flow.run(until_end=True, stand_by=True)

        assert 100 + GONE_SECONDS - 10 <= flow.time.now

    def test_a_look_that_took_long_is_old(self) -> None:
        """In a new group no offset names the other run, which commits first while the answer about the ends is late."""
        kafka, flow = beside(OTHER, until=100)
        kafka.committed, late, real = {}, iter([5.0]), kafka.watermarks

        def watermarks(partitions: Iterable[Partition]) -> dict[Partition, Watermarks]:
            flow.time.pass_by(next(late, 0.0))
            return real(partitions)

        kafka.watermarks = watermarks  # type: ignore[method-assign]

        flow.run(until_end=True, stand_by=True)

        assert 100 + GONE_SECONDS - 10 <= flow.time.now

    def test_while_its_source_is_away_it_renews_no_offset(self) -> None:
        """That would fence the other run, which may be idle."""
        kafka, flow = beside(OTHER, until=50)
        kafka.keeps_offsets = 60.0

        def answer() -> None:
            if 50 <= flow.time.now < 250:
                raise Unreachable("away")

        kafka.when_asked = answer

        flow.run(until_end=True, stand_by=True)

        assert [[A]] == kafka.fenced
        assert 250 + GONE_SECONDS <= flow.time.now

    def test_it_can_be_stopped(self) -> None:
        """This works even before Spark has started."""
        kafka = Occupied(OTHER, until=1_000)
        flow = SimulatedService(kafka, FakeRounds(works(kafka)), seconds=90)
        kafka.time = flow.time

        flow.run(stand_by=True)

        assert [] == flow.started_after
        assert [] == kafka.fenced
