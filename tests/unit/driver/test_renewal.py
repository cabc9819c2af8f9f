"""Offsets that no task renews: the driver keeps brokers from deleting them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs

from app.driver.renewal import RENEW_SECONDS, SHARE, Renewal
from app.errors import NotAllowed, SparkFailed, Unreachable, WinnowError
from app.model import CommittedOffset, Outcome, Owner, Partition, Pause
from app.offsets.metadata import OffsetMetadata
from tests.fakes.driver import DriverKafka, FakeRound, FakeRounds, SimulatedRounds, config, service, works
from tests.fakes.pauses import PAUSE, PausedFor
from tests.fakes.simulation import ImpatientStop, SimulatedStop, SimulatedTime
from tests.support.logs import of_event

A, B = Partition("raw", 0), Partition("raw", 1)


class RenewalHarness:
    def __init__(self, *, transactional: bool = True) -> None:
        self.kafka = DriverKafka(p0=(0, 10), p1=(0, 10))
        self.kafka.committed = {A: CommittedOffset(4, "winnow/2 in=4"), B: CommittedOffset(-1, corrupt="rubbish")}
        self.now = 0.0
        self.renewal = Renewal(self.kafka.clients, lambda: self.now, transactional=transactional)

    def renew(self, *partitions: Partition, paused: bool = False) -> None:
        self.renewal.renew(partitions, lambda: partitions, paused=paused)


@pytest.mark.parametrize(("transactional", "fenced"), [(True, [[A, B]]), (False, [])])
def test_it_changes_nothing(transactional: bool, fenced: Sequence[Sequence[Partition]]) -> None:
    """Offset and metadata stay the same, invalid offsets are skipped, and the partitions are fenced first if possible."""
    harness = RenewalHarness(transactional=transactional)
    before = dict(harness.kafka.committed)

    harness.renew(A, B)

    assert before == harness.kafka.committed
    assert [A] == harness.kafka.renewed
    assert fenced == harness.kafka.fenced


def test_it_is_done_at_once_and_then_when_it_is_time() -> None:
    """A service that runs for a few minutes a day renews them, too."""
    harness = RenewalHarness()
    for harness.now in (0, RENEW_SECONDS - 1, RENEW_SECONDS, 2 * RENEW_SECONDS - 1):
        harness.renew(A)

    assert [A, A] == harness.kafka.renewed


@pytest.mark.parametrize(
    ("retention", "every"), [(None, RENEW_SECONDS), (60.0, 60 / SHARE), (604_800.0, RENEW_SECONDS)]
)
def test_brokers_that_forget_soon_are_told_often(retention: float | None, every: float) -> None:
    """Without the right to ask, Kafka's default of 7 days is assumed."""
    harness = RenewalHarness()
    harness.kafka.keeps_offsets = retention

    harness.renewal.learn()

    assert every == harness.renewal.every


def test_without_a_fence_nothing_is_committed() -> None:
    """
    If Kafka is unavailable, a task might be alive; the driver retries at the next look.

    At-least-once has no fence, but its stores refuse to go back.
    """
    harness, unfenced = RenewalHarness(), RenewalHarness(transactional=False)
    harness.kafka.reachable = unfenced.kafka.reachable = False

    for each in (harness, unfenced):
        each.renew(A)

    assert [] == harness.kafka.renewed
    assert [A] == unfenced.kafka.renewed
    harness.kafka.reachable = True
    harness.renew(A)
    assert [A] == harness.kafka.renewed


def test_only_what_is_fenced_is_committed() -> None:
    """A task believed dead may still commit the others; renewing an older offset after that would repeat records."""
    harness = RenewalHarness()
    harness.kafka.committed[B] = CommittedOffset(7)
    harness.kafka.unfenced = {B}

    harness.renew(A, B)
    assert [A] == harness.kafka.renewed
    harness.kafka.unfenced = set()
    harness.renew(A, B)

    assert [A, B] == harness.kafka.renewed


def test_what_a_task_has_renewed_is_due_later() -> None:
    """Each partition has a time of its own."""
    harness = RenewalHarness()
    harness.kafka.committed[B] = CommittedOffset(7)
    for harness.now, done in (0, []), (1, [A]), (RENEW_SECONDS, []), (RENEW_SECONDS + 1, []):
        harness.renewal.renewed(done)
        harness.renew(A, B)

    assert [A, B, B, A] == harness.kafka.renewed


def test_a_partition_that_is_gone_is_forgotten() -> None:
    """Topics may come and go for ever; one that comes back is another one."""
    harness = RenewalHarness()
    for existing in (A, B), (B,), (A, B):
        harness.renew(*existing)

    assert [A, A] == harness.kafka.renewed


def test_an_outage_is_no_error() -> None:
    """The driver retries at the next look what it could not renew, here the mark of a pause."""
    harness, tried = RenewalHarness(), list[Pause]()

    def away_once() -> None:
        tried.append(PAUSE)
        if len(tried) == 1:
            raise Unreachable("away")

    harness.kafka.pauses.renew = away_once  # type: ignore[method-assign]

    for _ in range(3):
        harness.renew(A, paused=True)

    assert [PAUSE, PAUSE] == tried
    assert [A] == harness.kafka.renewed


def test_a_blocked_partition_keeps_its_offset() -> None:
    """No task works on it, so the driver renews its offset; tasks renew the others."""
    kafka = DriverKafka(p0=(0, 10), p1=(5, 10))
    kafka.committed[B] = CommittedOffset(2)

    assert 1 == service(kafka, FakeRounds(works(kafka)), stop=ImpatientStop()).run(until_end=True)

    assert [B] == kafka.renewed


def test_a_partition_without_a_leader_keeps_its_offset() -> None:
    """The group has the offset anyway, and brokers delete it like any other."""
    kafka = DriverKafka(p0=(0, 10), p1=(0, 10))
    kafka.committed[B] = CommittedOffset(2)
    kafka.leaderless.add(1)

    assert 1 == service(kafka, FakeRounds(works(kafka)), stop=ImpatientStop()).run(until_end=True)

    assert [B] == kafka.renewed


def test_a_backfill_renews_what_it_has_nothing_to_do_for() -> None:
    """An occasional run may be all that idle partitions get."""
    kafka = DriverKafka(p0=(0, 10), p1=(0, 10))
    kafka.committed = {A: CommittedOffset(10), B: CommittedOffset(4)}

    assert 0 == service(kafka, FakeRounds(works(kafka))).run(until_end=True)

    assert [A] == kafka.renewed


@pytest.mark.parametrize("paused", [True, False])
def test_a_wait_is_no_longer_than_an_offset_may_wait(paused: bool) -> None:
    """A paused or blocked service renews in time also where it looks again only after the offsets have expired."""
    kafka, time = DriverKafka(p0=(0, 10) if paused else (5, 10)), SimulatedTime()
    kafka.committed[A], kafka.keeps_offsets, kafka.pauses = CommittedOffset(2), 60.0, PausedFor(100 if paused else 0)
    stop = SimulatedStop(time, at=60)

    service(kafka, FakeRounds(works(kafka)), config("round.interval=1h"), stop, runtime=time.runtime).run(
        until_end=False
    )

    assert [A] * SHARE == kafka.renewed


def test_a_round_is_no_longer_than_an_offset_may_wait() -> None:
    """A round's tasks renew the offsets of idle partitions when they end."""
    kafka = DriverKafka(p0=(0, 10))
    kafka.keeps_offsets = 60.0
    rounds = FakeRounds(works(kafka))

    service(kafka, rounds, config("round.interval=10s")).run(until_end=True)

    assert 60.0 / SHARE == rounds.rounds[0][0].seconds


class TestTasksThatDoNot:
    """Tasks that cannot commit renew nothing, so the driver does. Offsets are kept for an hour."""

    def run(self, kafka: DriverKafka, rounds: FakeRounds, time: SimulatedTime) -> Counter[Partition]:
        kafka.keeps_offsets = 3_600.0
        kafka.committed = {A: CommittedOffset(10), B: CommittedOffset(4)}
        service(kafka, rounds, stop=SimulatedStop(time, 4_500.0), runtime=time.runtime).run(until_end=False)
        return Counter(kafka.renewed)

    def test_no_executor_comes(self) -> None:
        """Each round is killed because its tasks find no slot. The first round gets the chance to commit."""
        kafka, time = DriverKafka(p0=(0, 10), p1=(0, 10)), SimulatedTime()

        class Starving(FakeRound):
            starved, killed = True, False

            def wait(self, seconds: float) -> bool:
                time.pass_by(10 * seconds)
                return self.killed

            def cancel(self) -> None:
                self.killed = True

        rounds = FakeRounds(lambda _: SparkFailed("cancelled"))
        rounds.kind = Starving

        assert dict.fromkeys([A, B], 1 + SHARE) == self.run(kafka, rounds, time)

    def test_no_round_succeeds(self) -> None:
        """A broken parser ends each run of the driver after a minute, and its restarts may go on for a week."""
        kafka, time = DriverKafka(p0=(0, 10), p1=(0, 10)), SimulatedTime()
        rounds = FakeRounds(lambda _: SparkFailed("a task failed too often"))

        with pytest.raises(SparkFailed):
            self.run(kafka, rounds, time)

        assert {A: 1, B: 1} == Counter(kafka.renewed)

    @pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.FENCED])
    def test_a_partition_that_fails_in_each_round(self, outcome: Outcome) -> None:
        """Its sink partition has no leader, say; the task renews the others. After a recovery it renews this one, too."""
        kafka, time = DriverKafka(p0=(0, 10), p1=(0, 10)), SimulatedTime()

        rounds = SimulatedRounds(kafka, time)
        rounds.outcomes[B] = outcome
        kafka.when_asked = lambda: rounds.outcomes.clear() if time.now > 2_500 else None

        assert {B: 2} == self.run(kafka, rounds, time)

    @pytest.mark.parametrize(("offset", "renewed"), [(4, []), (10, [A])])
    def test_a_partition_that_is_fenced_to_end_the_round(self, offset: int, renewed: Sequence[Partition]) -> None:
        """If it has committed records, it is due later: fencing it again would only make readers wait."""
        kafka, time = DriverKafka(p0=(0, 10)), SimulatedTime()
        kafka.committed[A] = CommittedOffset(offset)
        rounds = SimulatedRounds(kafka, time)
        rounds.outcomes[A] = Outcome.FENCED

        def grow() -> None:
            if time.now > 20:
                kafka.watermark[B] = (0, 10)

        kafka.when_asked = grow

        service(kafka, rounds, stop=SimulatedStop(time, 60.0), runtime=time.runtime).run(until_end=False)

        assert 2 == len(rounds.rounds)
        assert renewed == kafka.renewed


class SourceOutage:
    """
    A service whose source does not respond from some time on, though the cluster that keeps its offsets does.

    Offsets are kept for an hour. The first round ends after ten minutes.
    """

    AWAY = "Kafka is not responding while listing topics"

    def __init__(self, *, begins: float = 300.0) -> None:
        self.time = SimulatedTime()
        self.kafka = DriverKafka(p0=(0, 10), p1=(0, 10))
        self.kafka.keeps_offsets, self.kafka.when_asked = 3_600.0, self.answer
        self.begins = begins
        self.on_look: dict[float, Callable[[], object]] = {}
        """What happens at the first look from some time on."""

    def answer(self) -> None:
        for at in [at for at in self.on_look if at <= self.time.now]:
            self.on_look.pop(at)()
        if self.time.now >= self.begins:
            raise Unreachable(self.AWAY)

    def run(self, until: float = 4_300.0) -> set[object]:
        """Return the causes that were logged."""
        rounds, stop = SimulatedRounds(self.kafka, self.time), SimulatedStop(self.time, until)
        with capture_logs() as logs:
            assert 0 == service(self.kafka, rounds, stop=stop, runtime=self.time.runtime).run(until_end=False)
        return {each["reason"] for each in of_event(logs, "kafka_unavailable")}


class TestSourceOutage:
    """With two clusters, the source may be away for longer than the sink's cluster keeps offsets."""

    @pytest.mark.parametrize("begins", [300, math.inf])
    def test_offsets_are_renewed(self, begins: float) -> None:
        """No discovery has seen their commits, which the first round made. A source without leaders is away, too."""
        flow = SourceOutage(begins=begins)
        flow.on_look[300] = lambda: flow.kafka.leaderless.update((0, 1) if begins == math.inf else ())

        flow.run()

        assert dict.fromkeys([A, B], SHARE) == Counter(flow.kafka.renewed)

    def test_a_pause_is_renewed(self) -> None:
        """Kafka would delete its mark like any offset."""
        flow, pauses = SourceOutage(), PausedFor(100)
        flow.kafka.pauses = pauses

        flow.run()

        assert [PAUSE] * (1 + SHARE) == pauses.renewed

    @pytest.mark.parametrize("trouble", [Unreachable("no coordinator"), NotAllowed("denied")])
    def test_a_renewal_that_fails_hides_nothing(self, trouble: WinnowError) -> None:
        """It is tried again with the next look at the source."""
        flow = SourceOutage()
        real = flow.kafka.load

        def load(*args: Any, **named: Any) -> dict[Partition, CommittedOffset]:
            if 300 < flow.time.now < 1_600:
                raise trouble
            return real(*args, **named)

        flow.kafka.load = load  # type: ignore[method-assign]

        causes = flow.run(until=1_610)

        assert {SourceOutage.AWAY} == causes
        assert dict.fromkeys([A, B], 1) == Counter(flow.kafka.renewed)

    @pytest.mark.parametrize(("generation", "begins"), [(0, 300), (1, 300), (1, 610)])
    def test_another_run_renews_what_it_has_taken(self, generation: int, begins: float) -> None:
        """Only this run may be cut off from the source: to renew would fence the tasks of the other one."""
        flow, other = SourceOutage(begins=begins), Owner(0, "there", "clean", generation)
        taken = CommittedOffset(10, str(OffsetMetadata("id-1", 0, owner=other)))
        flow.on_look[590] = lambda: flow.kafka.committed.update({A: taken})

        flow.run()

        assert {B: SHARE} == Counter(flow.kafka.renewed)
        assert taken == flow.kafka.committed[A]
