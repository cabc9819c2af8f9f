"""The driver's loop with a fake Kafka and fake rounds: what it plans, when it ends, what it says."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Executor, Future
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from app.config import Config, load
from app.driver.service import FAILED_ROUNDS_IN_A_ROW, Service, _overrun
from app.driver.stop import Stop
from app.errors import AccountingError, ForeignMember, SparkFailed, TopicMissing, Unreachable
from app.kafka.admin import Topic
from app.model import Assignment, CommittedOffset, Destination, OffsetMetadata, OffsetRange, Outcome, Partition, Receipt

A, B = Partition("raw", 0), Partition("raw", 1)


def config(*assignments: str) -> Config:
    flags = ["group.id=g", "source.topics=raw", "sink.topic=clean", "dead.letters.topic=dead"]
    return load(None, [*flags, "kafka.bootstrap.servers=nowhere:9092", *assignments], {})


class Kafka:
    """What KafkaAdmin would say."""

    def __init__(self, **partitions: tuple[int, int]) -> None:
        self.watermark = {Partition("raw", int(name[1:])): ends for name, ends in partitions.items()}
        self.offsets: dict[Partition, CommittedOffset] = {}
        self.fenced: list[list[Partition]] = []
        self.troubles: list[Exception] = []
        self.topic_id = "id-1"
        self.topic_gone = False

    def topics(self, names: Collection[str], pattern: str | None, known: Collection[str]) -> dict[str, Topic]:
        if self.topic_gone and "raw" in known:
            return {}
        return {"raw": Topic("raw", self.topic_id, len(self.watermark))}

    def destination(self, name: str) -> Destination:
        if self.troubles:
            raise self.troubles.pop(0)
        return Destination(name, 2, 1_000_000)

    def watermarks(self, partitions: Iterable[Partition]) -> dict[Partition, tuple[int, int, int]]:
        ends = {partition: self.watermark[partition] for partition in partitions}
        return {partition: (low, high, high) for partition, (low, high) in ends.items()}

    def committed(self, partitions: Iterable[Partition], *, settled: bool) -> dict[Partition, CommittedOffset]:
        return dict(self.offsets)

    def offsets_at(self, partitions: Iterable[Partition], milliseconds: int) -> dict[Partition, int | None]:
        return dict.fromkeys(partitions, 5)

    def refuse_foreign_members(self) -> None:
        pass

    def fence(self, partitions: Iterable[Partition], seconds: float) -> bool:
        self.fenced.append(list(partitions))
        return True


Result = list[Receipt] | Exception


class Rounds:
    """Runs rounds by calling a function."""

    def __init__(self, act: Callable[[Sequence[Assignment]], Result], slots: int = 2, unending: bool = False) -> None:
        self.slots = slots
        self.unending = unending
        self.rounds: list[list[Assignment]] = []
        self.cancelled = self.stopped = False
        self._act = act

    def submit(self, assignments: Sequence[Assignment]) -> Round:
        self.rounds.append(list(assignments))
        return Round(self, self._act(assignments))

    def stop(self) -> None:
        self.stopped = True


class Round:
    lost_tasks = done_tasks = 0
    starved = False

    def __init__(self, rounds: Rounds, result: Result) -> None:
        self._rounds = rounds
        self._result = result

    def wait(self, seconds: float) -> bool:
        return not self._rounds.unending or self._rounds.cancelled

    def cancel(self) -> None:
        self._rounds.cancelled = True

    def receipts(self) -> list[Receipt]:
        if isinstance(self._result, Exception):
            raise self._result
        return self._result


def works(kafka: Kafka, then: Callable[[], object] = lambda: None) -> Callable[[Sequence[Assignment]], Result]:
    """Do all the work of a round at once, commit it, and do something else behind it."""

    def act(assignments: Sequence[Assignment]) -> Result:
        receipts = []
        for offset_range in (offset_range for assignment in assignments for offset_range in assignment.ranges):
            end = offset_range.end if offset_range.end is not None else kafka.watermark[offset_range.partition][1]
            metadata = OffsetMetadata(offset_range.topic_id, offset_range.start, end - offset_range.start, 0)
            kafka.offsets[offset_range.partition] = CommittedOffset(end, str(metadata))
            receipts.append(
                Receipt(
                    offset_range.partition, offset_range.start, end, end - offset_range.start, end - offset_range.start
                )
            )
        then()
        return receipts

    return act


def service(kafka: Kafka, rounds: Rounds, settings: Config | None = None, stop: Stop | None = None) -> Service:
    return Service(settings or config(), kafka, lambda: rounds, stop or Stop())  # type: ignore[arg-type]  # a fake Kafka


@pytest.fixture(autouse=True)
def _no_signal_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Stop, "on_signals", lambda self: None)


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CONTROL_FENCE_SECONDS", "FENCE_ALL_SECONDS"):
        monkeypatch.setattr(f"app.driver.service.{name}", 0.01)


class TestUntilEnd:
    def test_ends_when_the_ends_seen_at_the_start_are_reached(self) -> None:
        """A backfill ends with 0, its offsets stand at the ends, and the totals are told."""
        kafka = Kafka(p0=(0, 10), p1=(3, 7))
        rounds = Rounds(works(kafka))

        with capture_logs() as logs:
            code = service(kafka, rounds).run(until_end=True)

        assert 0 == code
        assert {A: 10, B: 7} == {partition: at.offset for partition, at in kafka.offsets.items()}
        assert 14 == logs[-1]["records"]
        assert rounds.stopped

    def test_what_arrives_later_is_left(self) -> None:
        """The ends are those of the start: a busy topic cannot keep a backfill from ending."""
        kafka = Kafka(p0=(0, 10))
        act = works(kafka)

        def act_while_more_arrives(assignments: Sequence[Assignment]) -> Result:
            kafka.watermark[A] = (0, 1_000)
            return act(assignments)

        service(kafka, Rounds(act_while_more_arrives)).run(until_end=True)

        assert 10 == kafka.offsets[A].offset

    def test_a_blocked_partition_does_not_stop_the_others_but_is_told(self) -> None:
        """Exit code 1, the others done, the lost range in the log."""
        kafka = Kafka(p0=(50, 100), p1=(0, 7))
        kafka.offsets[A] = CommittedOffset(10)

        with capture_logs() as logs:
            code = service(kafka, Rounds(works(kafka))).run(until_end=True)

        assert 1 == code
        assert 7 == kafka.offsets[B].offset
        assert any("offsets 10 to 49" in entry.get("error", "") for entry in logs)


class TestRounds:
    def test_each_task_gets_its_share_and_the_deadline(self) -> None:
        """Two slots, two tasks, every partition once."""
        kafka = Kafka(p0=(0, 10), p1=(0, 10))
        rounds = Rounds(works(kafka))

        service(kafka, rounds, config("round.interval=7s")).run(until_end=True)

        (assignments,) = rounds.rounds
        assert {A, B} == {assignment.control_partition for assignment in assignments}
        assert {60 * 7.0} == {assignment.seconds for assignment in assignments}
        assert {"id-1"} == {assignment.ranges[0].topic_id for assignment in assignments}

    def test_leftovers_of_a_crash_are_cleared_before_spark_starts(self) -> None:
        """Open transactions hold back readers: they are ended first, all of them."""
        kafka = Kafka(p0=(0, 10), p1=(0, 0))
        seen: list[int] = []

        def start() -> Rounds:
            seen.append(len(kafka.fenced))
            return Rounds(works(kafka))

        Service(config(), kafka, start, Stop()).run(until_end=True)  # type: ignore[arg-type]  # a fake Kafka

        assert [1] == seen
        assert [A, B] == sorted(kafka.fenced[0])

    def test_at_least_once_never_fences(self) -> None:
        """Without transactions there is nothing to fence."""
        kafka = Kafka(p0=(0, 10))

        service(kafka, Rounds(works(kafka)), config("delivery.guarantee=at-least-once")).run(until_end=True)

        assert [] == kafka.fenced

    def test_a_receipt_that_does_not_balance_stops_the_service(self) -> None:
        """A receipt with in ≠ out + dead letters is a bug that must not go on."""
        rounds = Rounds(lambda _: [Receipt(A, 0, 10, records=10, out=8, dead={"empty": 1})])

        with pytest.raises(AccountingError, match="10 records came in, 8 went out, 1"):
            service(Kafka(p0=(0, 10)), rounds).run(until_end=True)

        assert rounds.stopped

    def test_a_failed_round_is_tried_again_but_not_for_ever(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A Spark that loses every round is told as such instead of being asked again and again."""
        monkeypatch.setattr(Stop, "wait", lambda self, seconds: False)
        rounds = Rounds(lambda _: SparkFailed("no worker starts"))

        with pytest.raises(SparkFailed, match="no worker starts"):
            service(Kafka(p0=(0, 10)), rounds).run(until_end=True)

        assert FAILED_ROUNDS_IN_A_ROW == len(rounds.rounds)

    def test_one_failed_round_costs_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The next round goes on from the committed offsets."""
        monkeypatch.setattr(Stop, "wait", lambda self, seconds: False)
        kafka = Kafka(p0=(0, 10))
        act, results = works(kafka), [SparkFailed("once")]

        code = service(kafka, Rounds(lambda a: results.pop() if results else act(a))).run(until_end=True)

        assert 0 == code
        assert 10 == kafka.offsets[A].offset

    def test_a_partition_that_failed_is_told(self) -> None:
        """A receipt's error reaches the log with topic, partition and offset."""
        kafka = Kafka(p0=(0, 10))
        act, failing = works(kafka), [[Receipt(A, 0, 0, outcome=Outcome.FAILED, error="raw-0@0: broken")]]

        with capture_logs() as logs:
            service(kafka, Rounds(lambda a: failing.pop() if failing else act(a))).run(until_end=True)

        (told,) = [entry for entry in logs if entry["event"].startswith("partition failed")]
        assert ("raw", 0, "raw-0@0: broken") == (told["topic"], told["partition"], told["error"])

    def test_an_offset_that_vanishes_while_we_run_blocks_its_partition(self) -> None:
        """The group's offset was there and is gone: no policy is applied silently."""
        kafka = Kafka(p0=(0, 10), p1=(0, 10))
        kafka.offsets[A] = CommittedOffset(5)
        rounds = Rounds(works(kafka, lambda: kafka.offsets.pop(A)))

        with capture_logs() as logs:
            assert 1 == service(kafka, rounds).run(until_end=True)

        assert any("vanished" in entry.get("error", "") for entry in logs)

    def test_a_topic_that_is_deleted_while_we_run_blocks_its_partitions(self) -> None:
        """The service goes on: there may be other topics, and this one may come back."""
        kafka = Kafka(p0=(0, 10), p1=(0, 10))
        rounds = Rounds(works(kafka, lambda: setattr(kafka, "topic_gone", True)))

        with capture_logs() as logs:
            assert 1 == service(kafka, rounds).run(until_end=True)

        assert [0, 1] == [entry["partition"] for entry in logs if "does not exist any more" in entry.get("error", "")]

    def test_a_topic_that_is_created_again_with_fewer_partitions(self) -> None:
        """The partition that is missing is told by what has happened, and what to do."""
        kafka = Kafka(p0=(0, 10), p1=(0, 10))
        rounds = Rounds(works(kafka, lambda: kafka.watermark.pop(B)))

        with capture_logs() as logs:
            assert 1 == service(kafka, rounds).run(until_end=True)

        assert [1] == [entry["partition"] for entry in logs if "fewer partitions" in entry.get("error", "")]

    def test_rounds_that_we_end_are_no_failures(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """However often a task finds no slot: an executor that is away is waited for."""
        monkeypatch.setattr(Stop, "wait", lambda self, seconds: False)
        kafka = Kafka(p0=(0, 10))
        act, starving = works(kafka), [SparkFailed("cancelled")] * 2 * FAILED_ROUNDS_IN_A_ROW
        rounds = Rounds(lambda assignments: starving.pop() if starving else act(assignments), unending=True)
        monkeypatch.setattr("app.driver.service.LOOK_SECONDS", 0.001)
        monkeypatch.setattr(Round, "starved", property(lambda self: bool(starving)))
        monkeypatch.setattr(Round, "wait", lambda self, seconds: not starving)

        assert 0 == service(kafka, rounds).run(until_end=True)
        assert 10 == kafka.offsets[A].offset


class TestStop:
    def test_a_stop_fences_the_leaders_then_everybody_then_kills(self) -> None:
        """A round that does not end by itself is ended in steps, and nobody is left who could still commit."""
        kafka, stop = Kafka(p0=(0, 10), p1=(0, 10)), Stop()
        rounds = Rounds(lambda _: SparkFailed("cancelled"), slots=1, unending=True)

        def submit(assignments: Sequence[Assignment], real: Any = rounds.submit) -> Round:
            stop.request("SIGTERM")
            return real(assignments)  # type: ignore[no-any-return]

        rounds.submit = submit  # type: ignore[method-assign]

        assert 0 == service(kafka, rounds, stop=stop).run(until_end=False)
        control_partitions, everybody, after = kafka.fenced[1:]
        assert 1 == len(control_partitions)
        assert [A, B] == sorted(everybody) == sorted(after)
        assert rounds.cancelled
        assert rounds.stopped

    def test_a_stop_before_the_first_round_is_clean(self) -> None:
        """A signal while Spark starts ends the service with 0 and no round."""
        kafka, stop = Kafka(p0=(0, 10)), Stop()
        rounds = Rounds(works(kafka))

        def start() -> Rounds:
            stop.request("SIGTERM")
            return rounds

        assert 0 == Service(config(), kafka, start, stop).run(until_end=False)  # type: ignore[arg-type]  # a fake Kafka
        assert [] == rounds.rounds


def test_a_round_that_does_not_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that is stuck beyond its deadline is shut out at once and killed; the next round follows without a pause."""
    monkeypatch.setattr("app.driver.service.OVERRUN_SECONDS", -1000)
    monkeypatch.setattr(Stop, "wait", lambda self, seconds: pytest.fail("nothing to wait for"))
    kafka = Kafka(p0=(0, 10), p1=(0, 10))
    act, stuck = works(kafka), [SparkFailed("cancelled")]
    rounds = Rounds(lambda assignments: stuck.pop() if stuck else act(assignments), slots=1, unending=True)

    with capture_logs() as logs:
        assert 0 == service(kafka, rounds).run(until_end=True)

    assert rounds.cancelled
    assert 2 == len(rounds.rounds)
    assert [A, B] == sorted(kafka.fenced[1])
    assert any("does not end" in entry["event"] for entry in logs)


def test_a_round_that_ended_while_the_driver_slept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that was stopped beyond the deadline looks at the round first: it has ended, and nobody is shut out."""
    clock = iter(range(0, 1_000_000, 1_000))
    monkeypatch.setattr("app.driver.service.time", SimpleNamespace(monotonic=lambda: next(clock), time=lambda: 0.0))
    kafka = Kafka(p0=(0, 10))

    with capture_logs() as logs:
        assert 0 == service(kafka, Rounds(works(kafka))).run(until_end=True)

    assert [[A]] == kafka.fenced  # what was left open before the start
    assert not any("does not end" in entry["event"] for entry in logs)


def test_a_round_is_given_time_for_its_last_commits() -> None:
    """A task with many partitions may take longer beyond its deadline than one with few, before it counts as stuck."""
    few, many = (
        Assignment(config=None, ranges=(OffsetRange(A, 0, 0),) * count, seconds=1, deadline=0)  # type: ignore[arg-type]  # not looked at
        for count in (1, 1_000)
    )

    assert 4 < _overrun([few]) < 5
    assert 100 < _overrun([few, many]) < 110


class TestKafkaTrouble:
    def test_an_outage_is_waited_for_and_said_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """However many tries it takes, the log has one line for the outage and one for its end."""
        monkeypatch.setattr(Stop, "wait", lambda self, seconds: False)
        kafka = Kafka(p0=(0, 10))
        kafka.troubles = [Unreachable("connection refused")] * 20

        with capture_logs() as logs:
            assert 0 == service(kafka, Rounds(works(kafka))).run(until_end=True)

        events = [entry["event"] for entry in logs]
        assert 1 == events.count("waiting for Kafka")
        assert 1 == events.count("Kafka is back")

    def test_a_stop_ends_the_wait_for_kafka(self) -> None:
        """A service that waits for a broker still listens to SIGTERM."""
        kafka, stop = Kafka(p0=(0, 10)), Stop()
        kafka.troubles = [Unreachable("connection refused")] * 1_000

        def wait(seconds: float) -> bool:
            stop.request("SIGTERM")
            return True

        stop.wait = wait  # type: ignore[method-assign]

        assert 0 == service(kafka, Rounds(works(kafka)), stop=stop).run(until_end=False)

    @pytest.mark.parametrize("error", [TopicMissing("topic 'dead' does not exist"), ForeignMember("somebody")])
    def test_what_waiting_does_not_heal_is_told_at_once(self, error: Exception) -> None:
        """A missing topic or a foreign member is an error, not an outage."""
        kafka = Kafka(p0=(0, 10))
        kafka.troubles = [error]

        with pytest.raises(type(error)):
            service(kafka, Rounds(works(kafka))).run(until_end=False)


class AtOnce(Executor):
    """Runs what others run beside."""

    def __init__(self, *_: object) -> None:
        """Need no threads."""

    def submit(self, call: Callable[..., Any], *args: Any, **named: Any) -> Future[Any]:  # type: ignore[override]
        future: Future[Any] = Future()
        future.set_result(call(*args, **named))
        return future


class TestLooks:
    """A round that goes on, on a clock that moves by itself: every question for the time takes a tenth of a second."""

    @pytest.fixture(autouse=True)
    def _clock(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0

        def monotonic() -> float:
            self.now += 0.1
            return self.now

        monkeypatch.setattr("app.driver.service.time", SimpleNamespace(monotonic=monotonic, time=lambda: 0.0))
        monkeypatch.setattr("app.driver.service.ThreadPoolExecutor", AtOnce)

    def run(
        self, kafka: Kafka, monkeypatch: pytest.MonkeyPatch, *settings: str, seconds: float = 200, **round_: object
    ) -> tuple[Rounds, list[Any]]:
        """Run a service whose tasks go on until the control_partitions are fenced, for so long; return its rounds and its log."""
        stop, waits, at_start = Stop(), count(), 1
        rounds = Rounds(works(kafka), slots=2)

        def wait(running: Round, at_most: float) -> bool:
            if next(waits) > 10 * seconds:
                stop.request("SIGTERM")
            return len(kafka.fenced) - at_start >= len(rounds.rounds)

        monkeypatch.setattr(Round, "wait", wait)
        for name, value in round_.items():
            monkeypatch.setattr(Round, name, value)
        with capture_logs() as logs:
            assert 0 == service(kafka, rounds, config("round.interval=5s", *settings), stop).run(until_end=False)
        return rounds, logs

    def test_a_round_goes_on_while_its_plan_is_good(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """One round, many looks, and only the stop fences: readers of the sink notice nothing."""
        kafka = Kafka(p0=(0, 10), p1=(0, 10))

        rounds, logs = self.run(kafka, monkeypatch)

        assert 1 == len(rounds.rounds)
        assert 5 < sum(entry["event"] == "progress" for entry in logs)
        assert 20 == next(entry["records"] for entry in logs if entry["event"] == "progress")

    def test_a_new_partition_ends_the_round_by_its_leaders(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The tasks commit, report and are planned anew, with the partition."""
        kafka = Kafka(p0=(0, 10), p1=(0, 10))
        glances = count()

        def grow(partitions: Iterable[Partition]) -> dict[Partition, tuple[int, int, int]]:
            if next(glances) == 3:
                kafka.watermark[Partition("raw", 2)] = (0, 5)
            ends = {partition: kafka.watermark[partition][1] for partition in partitions}
            return {partition: (0, end, end) for partition, end in ends.items()}

        kafka.watermarks = grow  # type: ignore[method-assign]
        rounds, logs = self.run(kafka, monkeypatch)

        assert [2, 3] == [sum(len(task.ranges) for task in round_) for round_ in rounds.rounds]
        assert [A, B] == sorted(kafka.fenced[1])
        assert any("partitions came or went" in entry.get("reason", "") for entry in logs)

    def test_a_task_that_has_reported_ends_the_round(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Its slot would stay empty."""
        rounds, logs = self.run(Kafka(p0=(0, 10)), monkeypatch, seconds=20, done_tasks=1)

        assert 1 < len(rounds.rounds)
        assert any("a task has nothing left to do" == entry.get("reason") for entry in logs)

    def test_lost_tasks_end_the_round_before_spark_gives_it_up(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A few are borne; Spark counts them by round, and fails a round with too many."""
        few, _ = self.run(Kafka(p0=(0, 10)), monkeypatch, seconds=20, lost_tasks=3)
        many, _ = self.run(Kafka(p0=(0, 10)), monkeypatch, seconds=20, lost_tasks=4)

        assert 1 == len(few.rounds)
        assert 1 < len(many.rounds)

    def test_tasks_go_on_while_kafka_does_not_answer_the_driver(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """It may answer them; and it is no reason to end anything."""
        kafka = Kafka(p0=(0, 10))
        kafka.refuse_foreign_members = _raising_after_the_first(Unreachable("no answer"))  # type: ignore[method-assign]

        rounds, logs = self.run(kafka, monkeypatch)

        assert 1 == len(rounds.rounds)
        assert 1 == sum("the tasks go on" in entry["event"] for entry in logs)

    def test_what_needs_a_person_is_raised_when_the_tasks_have_ended(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A foreign member that joins while a round goes on ends the service, but not before its tasks have committed."""
        kafka = Kafka(p0=(0, 10))
        kafka.refuse_foreign_members = _raising_after_the_first(ForeignMember("somebody"))  # type: ignore[method-assign]

        with pytest.raises(ForeignMember, match="somebody"):
            self.run(kafka, monkeypatch)

        assert [[A], [A]] == kafka.fenced

    def test_a_stop_does_not_wait_for_a_round_that_is_being_ended(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Hundreds of partitions may take a minute for their last commits; a stop has seconds, and fences all."""
        kafka = Kafka(**{f"p{number}": (0, 10) for number in range(500)})
        stop, stopped = Stop(), list[float]()
        rounds = Rounds(works(kafka), slots=2)

        def wait_(running: Round, at_most: float) -> bool:
            if len(kafka.fenced) > 1 and not stop.requested:
                stop.request("SIGTERM")
                stopped.append(self.now)
            self.now += at_most
            return rounds.cancelled

        monkeypatch.setattr(Round, "wait", wait_)
        monkeypatch.setattr(Round, "done_tasks", 1)

        assert 0 == service(kafka, rounds, config("round.interval=5s"), stop).run(until_end=False)
        assert [2, 500] == [len(fenced) for fenced in kafka.fenced[1:3]]
        assert self.now - stopped[0] < 10

    def test_at_least_once_is_not_ended_early(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """There is no fence, so a round is short instead, and looked at when it is over."""
        kafka = Kafka(p0=(0, 10))
        kafka.refuse_foreign_members = _raising_after_the_first(ForeignMember("somebody"))  # type: ignore[method-assign]

        rounds, _ = self.run(kafka, monkeypatch, "delivery.guarantee=at-least-once", seconds=10)

        ((assignment,),) = rounds.rounds
        assert 15.0 == assignment.seconds


def _raising_after_the_first(error: Exception) -> Callable[[], None]:
    calls = count()

    def refuse() -> None:
        if next(calls):
            raise error

    return refuse
