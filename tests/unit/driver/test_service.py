"""The driver's loop with a fake Kafka and fake rounds: its plans, its exits, and its log."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import count, pairwise
from typing import Any

import pytest
from structlog.testing import capture_logs

from app import __version__
from app.driver.check import connected
from app.driver.clients import Rounds
from app.driver.destinations import Destinations
from app.driver.plan import plan
from app.driver.retry import REFUSALS_IN_A_ROW, REFUSED_SECONDS
from app.driver.round import overrun
from app.driver.service import FAILED_ROUNDS_IN_A_ROW, Service
from app.driver.stop import Stop
from app.driver.tracker import StatusTracker
from app.errors import (
    AccountingError,
    ForeignMember,
    NotAllowed,
    NotUsable,
    SparkFailed,
    Superseded,
    TopicMissing,
    Unreachable,
)
from app.model import (
    Assignment,
    CommittedOffset,
    FirstWaiting,
    OffsetRange,
    Outcome,
    Partition,
    Partitioner,
    Receipt,
    Topic,
    Watermarks,
)
from app.runtime import REAL, Runtime, Timings
from app.status.health import situation
from app.status.snapshot import Phase
from tests.fakes.driver import (
    IMPATIENT,
    DriverKafka,
    FakeCluster,
    FakeRound,
    FakeRounds,
    Result,
    config,
    service,
    works,
)
from tests.fakes.simulation import ImpatientStop, Inline, SimulatedStop, SimulatedTime
from tests.support.logs import of_event

A, B = Partition("raw", 0), Partition("raw", 1)


class TestUntilEnd:
    def test_ends_when_the_ends_seen_at_the_start_are_reached(self) -> None:
        """A backfill exits with 0, its committed offsets are the ends, and the totals are logged."""
        kafka = DriverKafka(p0=(0, 10), p1=(3, 7))
        rounds = FakeRounds(works(kafka))

        with capture_logs() as logs:
            code = service(kafka, rounds).run(until_end=True)

        assert 0 == code
        assert {A: 10, B: 7} == {partition: at.offset for partition, at in kafka.committed.items()}
        assert 14 == logs[-1]["records"]
        assert rounds.stopped

    def test_records_that_arrive_later_are_left(self) -> None:
        """The ends are fixed at the start, so a busy topic cannot keep a backfill from ending."""
        kafka = DriverKafka(p0=(0, 10))
        act = works(kafka)

        def act_while_more_arrives(assignments: Sequence[Assignment]) -> Result:
            kafka.watermark[A] = (0, 1_000)
            return act(assignments)

        service(kafka, FakeRounds(act_while_more_arrives)).run(until_end=True)

        assert 10 == kafka.committed[A].offset

    def test_a_start_is_stored_although_nothing_is_left_to_read(self) -> None:
        """`latest` must not move on with every run, so a task commits it once; then there is nothing to do."""
        kafka = DriverKafka(p0=(0, 10))
        rounds = FakeRounds(works(kafka))

        assert 0 == service(kafka, rounds, config("starting.offsets=latest")).run(until_end=True)
        assert 0 == service(kafka, rounds, config("starting.offsets=latest")).run(until_end=True)

        ((task,),) = rounds.rounds
        assert [OffsetRange(A, None, 10, 10, "id-1", backlog=10)] == list(task.ranges)

    def test_records_that_are_deleted_meanwhile_end_a_backfill(self) -> None:
        """If out.of.range continues past the agreed end, that offset is stored and nothing more is read."""
        kafka = DriverKafka(p0=(0, 100))
        act = works(kafka)

        def act_after_a_failure(assignments: Sequence[Assignment]) -> Result:
            if kafka.watermark[A] == (200, 300):
                return act(assignments)
            kafka.watermark[A] = (200, 300)
            kafka.committed[A] = CommittedOffset(50)
            return []

        rounds = FakeRounds(act_after_a_failure)
        assert 0 == service(kafka, rounds, config("out.of.range=earliest")).run(until_end=True)

        assert [(0, 100), (200, 200)] == [(each.start, each.end) for (task,) in rounds.rounds for each in task.ranges]

    def test_a_log_that_is_truncated_meanwhile_ends_a_backfill_earlier(self) -> None:
        """What was cut off will not come: a service that waited for it would never end."""
        kafka = DriverKafka(p0=(0, 100))
        act = works(kafka)

        def act_after_a_cut(assignments: Sequence[Assignment]) -> Result:
            if kafka.watermark[A] == (0, 40):
                return act(assignments)
            kafka.watermark[A] = (0, 40)
            kafka.committed[A] = CommittedOffset(30)
            return []

        rounds = FakeRounds(act_after_a_cut)
        assert 0 == service(kafka, rounds).run(until_end=True)

        assert [(0, 100), (30, 40)] == [(each.start, each.end) for (task,) in rounds.rounds for each in task.ranges]

    def test_a_backfill_waits_for_no_successor(self) -> None:
        """SIGTERM stops it at once, whatever `handover.timeout` says."""
        given: list[float] = []

        for until_end in (True, False):
            kafka, stop = DriverKafka(p0=(0, 10)), ImpatientStop()
            rounds = FakeRounds(works(kafka, lambda: stop.request("SIGTERM")))  # noqa: B023  # called in this pass
            service(kafka, rounds, config("handover.timeout=7s"), stop=stop).run(until_end=until_end)
            given.append(stop.handover_seconds)

        assert [0, 7] == given

    def test_a_leaderless_partition_that_heals_is_read_to_the_end_that_it_had_then(self) -> None:
        """A backfill does not exit with 0 before that; if the partition stays leaderless, it exits with 1."""
        for heals, code, rest in ((True, 0, {A: 10, B: 7}), (False, 1, {A: 10})):
            kafka = DriverKafka(p0=(0, 10), p1=(0, 7))
            kafka.leaderless = {1}
            heal = partial(kafka.leaderless.clear) if heals else (lambda: None)

            assert code == service(kafka, FakeRounds(works(kafka, heal))).run(until_end=True)
            assert rest == {partition: at.offset for partition, at in kafka.committed.items()}

    @pytest.mark.parametrize(("reached", "code"), [(7, 0), (6, 1)])
    def test_a_partition_may_lose_its_leader_behind_its_end(self, reached: int, code: int) -> None:
        """A broker restarts in the last moment. Only a partition that was not read to its end is reported."""
        kafka = DriverKafka(p0=(0, 10), p1=(0, 7))

        def restart() -> None:
            kafka.committed[B] = replace(kafka.committed[B], offset=reached)
            kafka.leaderless = {1}

        assert code == service(kafka, FakeRounds(works(kafka, restart))).run(until_end=True)

    @pytest.mark.parametrize(("reached", "code"), [(7, 0), (6, 1)])
    def test_retention_may_pass_a_partition_behind_its_end(self, reached: int, code: int) -> None:
        """Others take hours longer. What is deleted meanwhile was read, or the partition is reported."""
        kafka = DriverKafka(p0=(0, 10), p1=(0, 7))

        def expire() -> None:
            kafka.committed[B] = replace(kafka.committed[B], offset=reached)
            kafka.watermark[B] = (9, 20)

        assert code == service(kafka, FakeRounds(works(kafka, expire))).run(until_end=True)

    def test_a_topic_that_is_no_longer_listed_is_not_finished(self) -> None:
        """It was deleted, or may not be described for a moment. Nobody knows what was not read, so the log names it."""
        kafka = DriverKafka(p0=(0, 10))
        kafka.watermark[Partition("raw2", 0)] = (0, 100)
        clean, listed = kafka.source_topics, {"raw": Topic("raw", "id-1", 1), "raw2": Topic("raw2", "id-9", 1)}
        kafka.source_topics = (  # type: ignore[method-assign]
            lambda names, pattern, known: clean(names, pattern, known) if "clean" in names else listed
        )
        act = works(kafka)

        def lose(assignments: Sequence[Assignment]) -> Result:
            listed.pop("raw2", None)
            first = [
                replace(each, ranges=tuple(r for r in each.ranges if r.partition.topic == "raw"))
                for each in assignments
            ]
            return act(first)

        with capture_logs() as logs:
            settings = config("source.topics=[]", "source.topics.pattern=raw.*")
            code = service(kafka, FakeRounds(lose), settings).run(until_end=True)

        assert 1 == code
        assert ["raw2-0"] == [each["partitions"] for each in of_event(logs, "partitions_missing")]

    def test_a_partition_that_is_added_has_no_end(self) -> None:
        """It did not exist at the start, so the backfill is complete although it has no leader yet."""
        kafka = DriverKafka(p0=(0, 10))

        def grow() -> None:
            kafka.watermark[B], kafka.leaderless = (0, 7), {1}

        assert 0 == service(kafka, FakeRounds(works(kafka, grow))).run(until_end=True)

    def test_a_blocked_partition_does_not_stop_the_others_but_is_reported(self) -> None:
        """The exit code is 1, the other partitions are finished, and the log names the lost range."""
        kafka = DriverKafka(p0=(50, 100), p1=(0, 7))
        kafka.committed[A] = CommittedOffset(10)

        with capture_logs() as logs:
            code = service(kafka, FakeRounds(works(kafka))).run(until_end=True)

        assert 1 == code
        assert 7 == kafka.committed[B].offset
        assert any("offsets 10 to 49" in entry.get("error", "") for entry in logs)

    def test_a_partition_that_was_cut_stays_blocked_after_it_has_grown_again(self) -> None:
        """No round skips the records written at offsets that were already committed."""
        kafka = DriverKafka(p0=(0, 900), p1=(0, 7))
        kafka.committed[A] = CommittedOffset(1_000)
        grow = {A: (0, 1_100)}

        with capture_logs() as logs:
            code = service(kafka, FakeRounds(works(kafka, lambda: kafka.watermark.update(grow)))).run(until_end=True)

        assert 1 == code
        assert {A: 1_000, B: 7} == {partition: at.offset for partition, at in kafka.committed.items()}
        (blocked,) = [entry["error"] for entry in of_event(logs, "partition_blocked")]
        assert "raw-0@1000: the partition was truncated to 900" in blocked

    @pytest.mark.parametrize(
        ("policy", "committed", "event", "start", "end"),
        [
            ("nearest", 10, "offsets_skipped", 10, 50),
            ("nearest", 150, "offsets_reread", 100, 150),
            ("earliest", 150, "offsets_reread", 50, 150),
        ],
    )
    def test_every_skip_and_every_rewind_is_logged(
        self, policy: str, committed: int, event: str, start: int, end: int
    ) -> None:
        """Whatever out.of.range does to an offset, the log names the affected offsets."""
        kafka = DriverKafka(p0=(50, 100))
        kafka.committed[A] = CommittedOffset(committed)

        with capture_logs() as logs:
            assert 0 == service(kafka, FakeRounds(works(kafka)), config(f"out.of.range={policy}")).run(until_end=True)

        moved = [entry for entry in logs if entry["event"] in ("offsets_skipped", "offsets_reread")]
        assert [(event, "raw", 0, start, end)] == [
            (each["event"], each["topic"], each["partition"], each["start"], each["end"]) for each in moved
        ]


class TestTwoClusters:
    def test_there_is_room_for_offsets_before_the_tasks_begin(self) -> None:
        """The sink's cluster rejects offsets of unknown topics or partitions, so no task could commit."""
        kafka = DriverKafka(p0=(0, 5), p1=(0, 5))
        kafka.room = {"raw.offsets": 1}
        found: list[dict[str, int]] = []
        work = works(kafka)

        def act(assignments: Sequence[Assignment]) -> Result:
            found.append(dict(kafka.room or {}))
            return work(assignments)

        assert 0 == service(kafka, FakeRounds(act)).run(until_end=True)

        assert [{"raw.offsets": 2}] == found

    def test_a_placeholder_that_cannot_grow_blocks_only_what_it_lacks(self) -> None:
        """A source got a partition that the sink's user may not add to the placeholder. It is read once there is room."""
        kafka, stop = DriverKafka(p0=(0, 5), p1=(0, 5)), ImpatientStop()
        kafka.room, kafka.no_room = {"raw.offsets": 1}, {B: NotAllowed("Kafka denied access", "add partitions")}

        with capture_logs() as logs:
            assert 1 == service(kafka, FakeRounds(works(kafka))).run(until_end=True)

        assert [A] == list(kafka.committed)
        (blocked,) = [each["error"] for each in of_event(logs, "partition_blocked")]
        assert "raw-1: Kafka denied access: add partitions" == blocked

        def grow() -> None:
            kafka.no_room.clear()
            if B in kafka.committed:
                stop.request("done")

        assert 0 == service(kafka, FakeRounds(works(kafka, grow)), stop=stop).run(until_end=False)
        assert [A, B] == list(kafka.committed)

    def test_a_service_without_any_placeholder_does_not_start(self) -> None:
        """Nothing can be read. Once it works, not even that ends it: an operator may mend it without a restart."""
        kafka, stop = DriverKafka(p0=(0, 5)), ImpatientStop()
        kafka.room, kafka.no_room = {}, {A: NotUsable("a policy forbids it", "create it")}

        with pytest.raises(NotUsable, match="a policy forbids it: create it"):
            service(kafka, FakeRounds(works(kafka))).run(until_end=False)

        lost, refusal = kafka.no_room, dict(kafka.no_room)
        lost.clear()

        def lose(assignments: Sequence[Assignment]) -> Result:
            lost.update({} if kafka.committed else refusal)
            return works(kafka)(assignments)

        rounds = FakeRounds(lose)
        assert 1 == service(kafka, rounds, stop=stop).run(until_end=True)
        assert 1 == len(rounds.rounds)

    def test_another_store_needs_no_placeholder(self) -> None:
        """Its offsets are not on the sink's cluster, where nobody may create a topic."""
        kafka, settings = DriverKafka(p0=(0, 5)), config("delivery.guarantee=at-least-once")
        kafka.room, kafka.transactional = {}, False
        kafka.no_room = {A: NotAllowed("Kafka denied access", "create it")}

        assert 0 == service(kafka, FakeRounds(works(kafka)), settings).run(until_end=True)
        assert {} == kafka.room

    def test_offsets_are_renewed_while_placeholders_cannot_be_asked_for(self) -> None:
        """The sink's controller may be away for longer than offsets are kept."""
        kafka = DriverKafka(p0=(0, 5), p1=(0, 5))
        kafka.room, kafka.committed[B] = {}, CommittedOffset(5)
        events: list[str] = []
        answer = kafka.make_room

        def make_room(partitions: Iterable[Partition]) -> dict[Partition, NotUsable]:
            if A in kafka.committed and "away" not in events:
                events.append("away")
                raise Unreachable("no controller")
            return answer(partitions)

        kafka.make_room = make_room  # type: ignore[method-assign]
        running = service(kafka, FakeRounds(works(kafka)), stop=ImpatientStop())
        running._renewal.renew = lambda *_, **__: events.append("renewal")  # type: ignore[method-assign]

        assert 0 == running.run(until_end=True)
        assert ["renewal", "away", "renewal", "renewal"] == events

    def test_tasks_know_both_clusters(self) -> None:
        """They read from one and write to the other."""
        kafka = DriverKafka(p0=(0, 5))
        rounds = FakeRounds(works(kafka))

        service(kafka, rounds, config("sink.kafka.bootstrap.servers=centre:1")).run(until_end=True)

        task_config = rounds.rounds[0][0].config
        assert "nowhere:9092" == task_config.kafka["bootstrap.servers"]
        assert {"bootstrap.servers": "centre:1"} == task_config.output_kafka
        assert "{topic}.winnow-offsets" == task_config.placeholder


class TestRounds:
    def test_each_task_gets_its_ranges_and_the_deadline(self) -> None:
        """Two slots get two tasks, and every partition is in exactly one of them."""
        kafka = DriverKafka(p0=(0, 10), p1=(0, 10))
        rounds = FakeRounds(works(kafka))

        service(kafka, rounds, config("round.interval=7s")).run(until_end=True)

        (assignments,) = rounds.rounds
        assert {A, B} == {assignment.control_partition() for assignment in assignments}
        assert {60 * 7.0} == {assignment.seconds for assignment in assignments}
        assert {"id-1"} == {assignment.ranges[0].topic_id for assignment in assignments}

    def test_leftovers_of_a_crash_are_cleared_before_spark_starts(self) -> None:
        """Open transactions hold back readers of the sink, so all of them are ended before Spark starts."""
        kafka = DriverKafka(p0=(0, 10), p1=(0, 0))
        seen: list[int] = []

        def start() -> FakeRounds:
            seen.append(len(kafka.fenced))
            return FakeRounds(works(kafka))

        service(kafka, FakeRounds(works(kafka)), start=start).run(until_end=True)

        assert [1] == seen
        assert [A, B] == sorted(kafka.fenced[0])

    def test_a_refusal_of_that_passes(self) -> None:
        """A broker that restarts may refuse once. Only refusals that persist end the service, here as elsewhere."""
        time, kafka = SimulatedTime(), DriverKafka(p0=(0, 10))
        fence, refusals = kafka.fence, [NotAllowed("not yet")]

        def refused_once(partitions: Iterable[Partition]) -> set[Partition]:
            if refusals:
                raise refusals.pop()
            return fence(partitions)

        kafka.fence = refused_once  # type: ignore[method-assign]

        assert 0 == service(kafka, FakeRounds(works(kafka)), runtime=time.runtime).run(until_end=True)
        assert [A] == kafka.fenced[0]

    def test_at_least_once_never_fences(self) -> None:
        """Without transactions there is nothing to fence."""
        kafka = DriverKafka(p0=(0, 10))

        service(kafka, FakeRounds(works(kafka)), config("delivery.guarantee=at-least-once")).run(until_end=True)

        assert [] == kafka.fenced

    def test_a_receipt_that_does_not_balance_stops_the_service(self) -> None:
        """A receipt with in ≠ out + dead letters is a bug, so the service stops."""
        rounds = FakeRounds(lambda _: [Receipt(A, 0, 10, records=10, out=8, dead={"empty": 1})])

        with pytest.raises(AccountingError, match="10 records in, but 8 out, 1 dead letters and 0 filtered"):
            service(DriverKafka(p0=(0, 10)), rounds).run(until_end=True)

        assert rounds.stopped

    def test_a_failed_round_is_tried_again_but_not_for_ever(self) -> None:
        """After several failed rounds in a row the service ends with Spark's error."""
        rounds = FakeRounds(lambda _: SparkFailed("no worker starts"))

        with pytest.raises(SparkFailed, match="no worker starts"):
            service(DriverKafka(p0=(0, 10)), rounds, stop=ImpatientStop()).run(until_end=True)

        assert FAILED_ROUNDS_IN_A_ROW == len(rounds.rounds)

    def test_one_failed_round_costs_nothing(self) -> None:
        """The next round continues from the committed offsets."""
        kafka = DriverKafka(p0=(0, 10))
        act, results = works(kafka), [SparkFailed("once")]

        rounds = FakeRounds(lambda a: results.pop() if results else act(a))
        code = service(kafka, rounds, stop=ImpatientStop()).run(until_end=True)

        assert 0 == code
        assert 10 == kafka.committed[A].offset

    def test_a_failed_partition_is_logged(self) -> None:
        """The error of a receipt is logged with topic, partition and offset."""
        kafka = DriverKafka(p0=(0, 10))
        act, failing = works(kafka), [[Receipt(A, 0, 0, outcome=Outcome.FAILED, error="raw-0@0: broken")]]

        with capture_logs() as logs:
            rounds = FakeRounds(lambda a: failing.pop() if failing else act(a))
            service(kafka, rounds, stop=ImpatientStop()).run(until_end=True)

        (failure,) = of_event(logs, "partition_failed")
        assert ("raw", 0, "raw-0@0: broken") == (failure["topic"], failure["partition"], failure["error"])

    def test_an_offset_that_vanishes_while_we_run_blocks_its_partition(self) -> None:
        """If the group had an offset and it is gone, no policy is applied silently."""
        kafka = DriverKafka(p0=(0, 10), p1=(0, 10))
        kafka.committed[A] = CommittedOffset(5)
        rounds = FakeRounds(works(kafka, lambda: kafka.committed.pop(A)))

        with capture_logs() as logs:
            assert 1 == service(kafka, rounds).run(until_end=True)

        assert any("vanished" in entry.get("error", "") for entry in logs)

    def test_a_topic_that_is_recreated_under_a_task_blocks_its_partition(self) -> None:
        """The receipt holds the last committed offset, even if the driver never read that offset itself."""
        kafka = DriverKafka(p0=(0, 10), p1=(0, 10))

        def recreate() -> None:
            kafka.topic_id = "id-2"
            kafka.committed.pop(A)

        rounds = FakeRounds(works(kafka, recreate))

        with capture_logs() as logs:
            assert 1 == service(kafka, rounds).run(until_end=True)

        assert any("deleted and recreated" in entry.get("error", "") for entry in logs)

    def test_a_topic_that_is_deleted_while_we_run_blocks_its_partitions(self) -> None:
        """The service continues, because there may be other topics and this one may be recreated."""
        kafka = DriverKafka(p0=(0, 10), p1=(0, 10))
        rounds = FakeRounds(works(kafka, lambda: setattr(kafka, "topic_gone", True)))

        with capture_logs() as logs:
            assert 1 == service(kafka, rounds).run(until_end=True)

        assert [0, 1] == [entry["partition"] for entry in logs if "no longer exists" in entry.get("error", "")]

    def test_a_topic_that_is_created_again_with_fewer_partitions(self) -> None:
        """The error names the missing partition, the cause and the cure."""
        kafka = DriverKafka(p0=(0, 10), p1=(0, 10))
        rounds = FakeRounds(works(kafka, lambda: kafka.watermark.pop(B)))

        with capture_logs() as logs:
            assert 1 == service(kafka, rounds).run(until_end=True)

        assert [1] == [entry["partition"] for entry in logs if "fewer partitions" in entry.get("error", "")]

    def test_rounds_that_we_end_are_no_failures(self) -> None:
        """However often a task has no slot, the service waits for the missing executor."""
        kafka = DriverKafka(p0=(0, 10))
        act, starving = works(kafka), [SparkFailed("cancelled")] * 2 * FAILED_ROUNDS_IN_A_ROW
        rounds = FakeRounds(lambda assignments: starving.pop() if starving else act(assignments), unending=True)

        class Starving(FakeRound):
            starved = property(lambda _: bool(starving))

            def wait(self, seconds: float) -> bool:
                return not starving

        rounds.kind = Starving
        runtime = Runtime(timings=IMPATIENT._replace(watch=0.001))
        assert 0 == service(kafka, rounds, stop=ImpatientStop(), runtime=runtime).run(until_end=True)
        assert 10 == kafka.committed[A].offset


class TestPace:
    """What follows a round, and when. Time passes only during work and waits."""

    def run(
        self,
        kafka: DriverKafka,
        rounds: Sequence[tuple[float, Result]],
        *settings: str,
        kind: type[FakeRound] = FakeRound,
    ) -> tuple[list[float], FakeRounds]:
        """Run rounds of this duration and ending; return the pause before each but the first."""
        time = SimulatedTime()
        stop, script = SimulatedStop(time, at=100_000), iter(rounds)
        began, ended = list[float](), list[float]()

        def act(_: Sequence[Assignment]) -> Result:
            began.append(time.now)
            seconds, result = next(script, (0.0, None))
            if result is None:
                stop.request("the script has ended")
                return []
            time.pass_by(seconds)
            ended.append(time.now)
            return result

        fakes = FakeRounds(act)
        fakes.kind = kind
        service(kafka, fakes, config(*settings), stop, runtime=time.runtime).run(until_end=False)
        return [later - one for one, later in zip(ended, began[1:], strict=True)], fakes

    def test_a_task_that_is_lost_at_the_end_of_a_round_is_told(self) -> None:
        """A task may be lost, and the round end, between two looks."""

        class LosesOne(FakeRound):
            lost_tasks = 1

        with capture_logs() as logs:
            self.run(DriverKafka(p0=(0, 10)), [(0.5, [])], kind=LosesOne)

        assert 1 in {entry["lost"] for entry in of_event(logs, "task_lost")}

    def test_a_plan_expects_what_waits_and_what_arrives(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A partition's load is its lag plus the arrivals between two checks of the last round, of whatever length."""
        loads: list[Mapping[Partition, int]] = []

        def watched(ranges: Iterable[OffsetRange], of: Mapping[Partition, int], slots: int) -> Any:
            loads.append(of)
            return plan(ranges, of, slots)

        monkeypatch.setattr("app.driver.service.plan", watched)
        kafka = DriverKafka(p0=(0, 10_000), p1=(0, 500))
        a_minute: Result = [Receipt(A, 0, 0, records=6_000, out=6_000), Receipt(B, 0, 0)]
        a_moment: Result = [Receipt(A, 0, 0), Receipt(B, 0, 0, records=300, out=300)]

        self.run(kafka, [(60.0, a_minute), (0.5, a_moment)], "round.interval=10s")

        assert [{A: 10_000, B: 500}, {A: 11_000, B: 500}, {A: 10_000, B: 3_500}] == loads

    def test_a_task_learns_how_slow_the_sink_was_in_the_last_round(self) -> None:
        """Otherwise the first transaction of each round would be as large as before the sink was known to be slow."""
        slow: Result = [Receipt(A, 0, 0, allowance=100_000), Receipt(B, 0, 0)]
        quick: Result = [Receipt(A, 0, 0), Receipt(B, 0, 0)]

        _, rounds = self.run(DriverKafka(p0=(0, 10), p1=(0, 10)), [(20.0, slow), (20.0, quick)])

        learned = [{**first.allowances, **second.allowances} for first, second in rounds.rounds]
        assert [{}, {A: 100_000}, {}] == learned

    def test_a_breakers_window_grows_older_between_rounds(self) -> None:
        """It serves one round: after one whose receipts are lost, nobody knows what else was in it."""
        failed = Receipt(A, 0, 0, outcome=Outcome.FAILED, window=((10.0, 5, 1), (2.0, 7, 3)))
        kafka, lost = DriverKafka(p0=(0, 10), p1=(0, 10)), SparkFailed("no worker starts")

        pauses, rounds = self.run(kafka, [(0.5, [failed, Receipt(B, 0, 0)]), (5.0, lost)])

        begins = [{**first.windows, **second.windows} for first, second in rounds.rounds]
        assert [{}, {A: ((11.0, 5, 1), (3.0, 7, 3))}, {}] == begins
        assert 1 == pauses[0]

    def test_rounds_that_fail_at_once_become_rarer(self) -> None:
        """Files of the clients may stay wrong for hours, and each partition is logged in each round."""
        failed: Result = [Receipt(A, 0, 0, outcome=Outcome.FAILED), Receipt(B, 0, 0, outcome=Outcome.FAILED)]
        quick: Result = [Receipt(A, 0, 0, 5, 5), Receipt(B, 0, 0, outcome=Outcome.FAILED)]
        kafka = DriverKafka(p0=(0, 10), p1=(0, 10))

        pauses, _ = self.run(kafka, [(0.5, failed)] * 6 + [(0.5, quick), (0.5, failed)])

        assert [1, 2, 4, 8, 10, 10, 1, 1] == pauses

    def test_a_round_ends_at_its_deadline(self) -> None:
        """It runs for sixty checks; the deadline is its start by the wall clock plus that time."""
        _, rounds = self.run(DriverKafka(p0=(0, 10)), [(50.0, []), (20.0, [])], "round.interval=5s")

        assert [300.0, 350.0, 370.0] == [task.deadline for (task,) in rounds.rounds]

    @pytest.mark.parametrize(
        ("outcomes", "seconds", "pause"),
        [
            ((Outcome.DONE, Outcome.DONE), 0.5, 0),
            ((Outcome.DONE, Outcome.FAILED), 0.5, 1),
            ((Outcome.FENCED, Outcome.DONE), 0.5, 1 + Timings().sign_of_life),
            ((Outcome.FAILED, Outcome.FAILED), 1.0, 0),
        ],
    )
    def test_a_partition_that_fails_at_once_is_not_tried_without_a_pause(
        self, outcomes: Sequence[Outcome], seconds: float, pause: float
    ) -> None:
        """Otherwise rounds would begin and end many times a second. A round that worked for a while needs no pause."""
        result: Result = [
            Receipt(partition, 0, 0, outcome=outcome) for partition, outcome in zip((A, B), outcomes, strict=True)
        ]

        pauses, _ = self.run(DriverKafka(p0=(0, 10), p1=(0, 10)), [(seconds, result)])

        assert [pause] == pauses

    def test_failed_rounds_are_tried_again_after_longer_and_longer_pauses(self) -> None:
        """Spark may need time to replace what it lost; a successful round resets the pause."""
        failed, good = (0.0, SparkFailed("no worker starts")), (5.0, list[Receipt]())

        pauses, _ = self.run(DriverKafka(p0=(0, 10)), [*[failed] * 4, good, failed])

        assert [2, 4, 8, 16, 0, 2] == pauses

    def test_a_round_without_receipts_gives_the_next_one_longer(self) -> None:
        """
        If a machine is so slow that tasks hardly start in the usual time, rounds that are killed in vain never end.

        A round without slots tells nothing about the tasks.
        """
        time, began = SimulatedTime(), list[float]()
        script = [*["stuck"] * 6, "", "stuck", *["starved"] * 5, "stuck", ""]
        stop = SimulatedStop(time, at=100_000)

        class Stuck(FakeRound):
            starved = property(lambda self: str(self._result) == "starved")

            def __init__(self, rounds: FakeRounds, result: Result) -> None:
                super().__init__(rounds, result)
                began.append(time.now)
                self._cancelled = False

            def wait(self, seconds: float) -> bool:
                time.pass_by(seconds)
                return self._cancelled or not isinstance(self._result, Exception)

            def cancel(self) -> None:
                self._cancelled = True

        def act(_: Sequence[Assignment]) -> Result:
            how = script.pop(0)
            if not script:
                stop.request("enough")
            return SparkFailed(how) if how else []

        rounds = FakeRounds(act)
        rounds.kind = Stuck
        settings = config("round.interval=10s", "delivery.guarantee=at-least-once")
        runtime = replace(time.runtime, timings=IMPATIENT._replace(overrun=10.0, overrun_each=0.0, kill=0.0))
        service(DriverKafka(p0=(0, 10)), rounds, settings, stop, runtime=runtime).run(until_end=False)

        took = [later - one for one, later in pairwise(began)]
        assert [40, 50, 70, 110, 190, 190, 0, 40, *[0] * 5, 50] == pytest.approx(took, abs=4)

    def test_a_round_is_logged_with_its_time(self) -> None:
        """The log has the time that its tasks had, and their work in that time."""
        result: Result = [Receipt(A, 0, 0, records=6_000, out=5_000, dead={"empty": 1_000})]

        with capture_logs() as logs:
            self.run(DriverKafka(p0=(0, 10_000)), [(60.0, result), (0.0, [])])

        ended = of_event(logs, "round")[0]
        assert (60.0, 6_000, 100, 1_000) == tuple(ended[key] for key in ("seconds", "records", "per_second", "dead"))
        assert 10_000 == ended["lag_before"]

    @pytest.mark.parametrize("killed", [True, False])
    def test_an_outage_after_a_round_that_reported_nothing(self, killed: bool) -> None:
        """No task continues after it. If Spark gave up, its reason is logged; if we ended the round, it is no failure."""
        timings = IMPATIENT._replace(overrun=-1_000 if killed else 0)
        kafka, time = DriverKafka(p0=(0, 10)), SimulatedTime()
        stop = SimulatedStop(time, at=1_000)

        def act(_: Sequence[Assignment]) -> Result:
            kafka.troubles = [Unreachable("connection refused") for _ in range(1_000)]
            return SparkFailed("too many tasks were lost")

        class Passing(FakeRound):
            def wait(self, seconds: float) -> bool:
                time.pass_by(seconds)
                return not killed

        with capture_logs() as logs:
            rounds = FakeRounds(act, unending=killed)
            rounds.kind = Passing
            service(kafka, rounds, stop=stop, runtime=replace(time.runtime, timings=timings)).run(until_end=False)

        events = [entry["event"] for entry in logs]
        assert "kafka_unavailable" in events
        assert killed == ("tasks_killed" in events)
        assert (["too many tasks were lost"] if not killed else []) == [
            entry["reason"] for entry in of_event(logs, "round_failed")
        ]

    def test_a_service_without_work_looks_again_after_an_interval(self) -> None:
        """All partitions are blocked, so no round runs; an operator may set an offset at any time."""
        kafka, time = DriverKafka(p0=(50, 100)), SimulatedTime()
        kafka.committed[A] = CommittedOffset(10)
        began = list[float]()

        def mended() -> None:
            if time.now >= 65:
                kafka.committed[A] = CommittedOffset(50)

        def act(_: Sequence[Assignment]) -> Result:
            began.append(time.now)
            stop.request("enough")
            return []

        kafka.when_asked = mended
        stop = SimulatedStop(time, at=1_000)
        service(kafka, FakeRounds(act), config("round.interval=10s"), stop, runtime=time.runtime).run(until_end=False)

        assert [70.0] == began

    @pytest.mark.parametrize(("watermark", "word"), [({A: (50, 100)}, "blocked"), ({}, "ok")])
    def test_a_service_without_work_is_ready(self, watermark: dict[Partition, tuple[int, int]], word: str) -> None:
        """Its partitions are blocked, or a pattern matches nothing yet. It does not say that it starts."""
        kafka, time = DriverKafka(), SimulatedTime()
        kafka.watermark, kafka.committed = watermark, {A: CommittedOffset(10)}
        tracker, stop = StatusTracker("g", runtime=time.runtime), SimulatedStop(time, at=45)
        seen = list[tuple[str, bool]]()

        def look() -> None:
            now = situation(tracker.snapshot, time.now)
            seen.append((now.word, now.ready))
            stop.leaving = "SIGTERM" if time.now >= 30 else ""

        kafka.when_asked = look
        rounds = FakeRounds(works(kafka))
        service(kafka, rounds, config("round.interval=10s"), stop, runtime=time.runtime, tracker=tracker).run(
            until_end=False
        )

        assert [] == rounds.rounds
        assert [("starting", False), *[(word, True)] * 3, ("handing over", True)] == seen


class TestStop:
    def test_a_spark_that_does_not_start_is_the_error(self) -> None:
        """The operator reads Spark's own words."""

        def start() -> FakeRounds:
            raise SparkFailed("no executor")

        with pytest.raises(SparkFailed, match="no executor"):
            service(DriverKafka(p0=(0, 10)), FakeRounds(works), start=start).run(until_end=True)  # type: ignore[arg-type]  # never runs

    def test_a_stop_does_not_wait_for_a_spark_that_starts(self) -> None:
        """Its JVM takes many seconds on a busy machine, and would have to end at once."""
        kafka, stop, up = DriverKafka(p0=(0, 10)), Stop(), threading.Event()

        def start() -> FakeRounds:
            stop.request("SIGTERM")
            assert up.wait(60)
            raise SparkFailed("nobody reads this")

        assert 0 == service(kafka, FakeRounds(works(kafka)), stop=stop, start=start).run(until_end=False)
        up.set()

    @pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
    @pytest.mark.parametrize(("trouble", "counted"), [(None, 10), (TopicMissing("no topic"), 0)])
    def test_what_killed_tasks_have_committed_counts(
        self, trouble: NotUsable | None, counted: int, guarantee: str
    ) -> None:
        """They report nothing, so the driver looks once more before it stops, ignoring errors."""
        kafka, stop = DriverKafka(p0=(0, 10)), Stop()
        act = works(kafka)

        def commit_and_hang(assignments: Sequence[Assignment]) -> Result:
            act(assignments)
            kafka.sink_gone = trouble
            stop.request("SIGTERM")
            return SparkFailed("cancelled")

        with capture_logs() as logs:
            rounds = FakeRounds(commit_and_hang, unending=True)
            code = service(kafka, rounds, config(f"delivery.guarantee={guarantee}"), stop).run(until_end=False)

        assert 0 == code
        assert counted == logs[-1]["records"]

    def test_a_stop_fences_the_control_partitions_then_all_then_kills(self) -> None:
        """A round that does not end by itself is ended in steps, and no task remains that could still commit."""
        kafka, stop = DriverKafka(p0=(0, 10), p1=(0, 10)), Stop()
        rounds = FakeRounds(lambda _: SparkFailed("cancelled"), slots=1, unending=True)

        def submit(assignments: Sequence[Assignment], real: Any = rounds.submit) -> FakeRound:
            stop.request("SIGTERM")
            return real(assignments)  # type: ignore[no-any-return]

        rounds.submit = submit  # type: ignore[method-assign]

        assert 0 == service(kafka, rounds, stop=stop).run(until_end=False)
        control_partitions, everybody, after = kafka.fenced[1:]
        assert 1 == len(control_partitions)
        assert [A, B] == sorted(everybody) == sorted(after)
        assert rounds.cancelled
        assert rounds.stopped

    def test_where_kafka_is_away_a_stop_fences_once_and_kills(self) -> None:
        """If one fence fails to reach Kafka, so would the next, and the stop must not take longer."""
        kafka, stop = DriverKafka(p0=(0, 10), p1=(0, 10)), Stop()
        rounds = FakeRounds(lambda _: SparkFailed("cancelled"), slots=1, unending=True)

        def submit(assignments: Sequence[Assignment], real: Any = rounds.submit) -> FakeRound:
            kafka.reachable = False
            stop.request("SIGTERM")
            return real(assignments)  # type: ignore[no-any-return]

        rounds.submit = submit  # type: ignore[method-assign]

        assert 0 == service(kafka, rounds, stop=stop).run(until_end=False)
        assert 2 == len(kafka.fenced)  # the clean-up before Spark starts, and the control partition
        assert rounds.cancelled

    def test_a_stop_before_the_first_round_is_clean(self) -> None:
        """A signal while Spark starts ends the service with 0, and no round runs."""
        kafka, stop = DriverKafka(p0=(0, 10)), Stop()
        rounds = FakeRounds(works(kafka))

        def start() -> FakeRounds:
            stop.request("SIGTERM")
            return rounds

        assert 0 == service(kafka, rounds, stop=stop, start=start).run(until_end=False)
        assert [] == rounds.rounds


def test_a_round_begins_although_a_sink_partition_has_no_leader() -> None:
    """An undeliverable partition is planned, too, but never as a control partition; its lane recovers by itself."""
    kafka = DriverKafka(p0=(0, 5), p1=(0, 5))
    kafka.sink_leaderless.add(0)
    rounds = FakeRounds(works(kafka), slots=1)

    assert 0 == service(kafka, rounds).run(until_end=True)

    ((assignment,),) = rounds.rounds
    assert [B, A] == [each.partition for each in assignment.ranges]
    assert B == assignment.control_partition()


def test_a_sink_partition_with_too_few_replicas_in_sync_takes_nothing() -> None:
    """The error has the actual and the required number; a partition with enough replicas accepts lines."""
    kafka = DriverKafka(p0=(0, 5), p1=(0, 5))
    kafka.sink_behind = {0: 1, 1: 2}

    found = Destinations(config(), kafka.clients.destinations).undeliverable([A, B])

    (error,) = found.values()
    assert {A} == found.keys()
    assert "its output cannot be delivered: clean-0 has 1 in-sync replicas but min.insync.replicas is 2" == error.cause


def test_lines_that_go_by_their_key_may_need_any_sink_partition() -> None:
    """If one of them has no leader, no source partition can deliver. Tasks get key and partitioner."""
    kafka = DriverKafka(p0=(0, 5), p1=(0, 5))
    kafka.sink_leaderless.add(0)
    rounds = FakeRounds(works(kafka))
    settings = config("sink.key=houseid", "sink.partitioner=key")

    found = Destinations(settings, kafka.clients.destinations).undeliverable([A, B])
    service(kafka, rounds, settings).run(until_end=True)

    assert dict.fromkeys((A, B), "its output cannot be delivered: clean-0 has no leader") == {
        partition: error.cause for partition, error in found.items()
    }
    ((assignment, *_), *_) = rounds.rounds
    assert ("houseid", Partitioner.KEY) == (assignment.config.sink_key, assignment.config.sink_partitioner)


def test_a_round_that_does_not_end_is_ended() -> None:
    """A task that overruns its deadline is fenced at once and killed; the next round follows without a pause."""

    class NoWait(Stop):
        def wait(self, seconds: float) -> bool:
            pytest.fail("nothing to wait for")

    runtime = Runtime(timings=IMPATIENT._replace(overrun=-1000, watch=0.001))
    kafka = DriverKafka(p0=(0, 10), p1=(0, 10))
    act, stuck = works(kafka), [SparkFailed("cancelled")]
    rounds = FakeRounds(lambda assignments: stuck.pop() if stuck else act(assignments), slots=1, unending=True)

    with capture_logs() as logs:
        assert 0 == service(kafka, rounds, stop=NoWait(), runtime=runtime).run(until_end=True)

    assert rounds.cancelled
    assert 2 == len(rounds.rounds)
    assert [A, B] == sorted(kafka.fenced[1])
    assert of_event(logs, "task_overdue")


def test_a_round_that_ended_while_the_driver_slept() -> None:
    """A driver that slept past the deadline first checks whether the round has ended; if so, it fences nothing."""
    clock = iter(range(0, 1_000_000, 1_000))
    runtime = replace(REAL, monotonic=lambda: float(next(clock)))
    kafka = DriverKafka(p0=(0, 10))

    with capture_logs() as logs:
        assert 0 == service(kafka, FakeRounds(works(kafka)), runtime=runtime).run(until_end=True)

    assert [[A]] == kafka.fenced  # the clean-up before Spark starts
    assert not of_event(logs, "task_overdue")


def test_a_round_is_given_time_for_its_last_commits() -> None:
    """A task with many partitions may overrun its deadline by more than one with few before it counts as stuck."""
    few, many = (
        Assignment(config=None, ranges=(OffsetRange(A, 0, 0),) * count, seconds=1, deadline=0)  # type: ignore[arg-type]  # not used
        for count in (1, 1_000)
    )

    assert 4 < overrun([few], Timings()) < 5
    assert 100 < overrun([few, many], Timings()) < 110


class TestKafkaTrouble:
    def test_an_outage_is_waited_for_and_logged_once(self) -> None:
        """However many attempts it takes, the log has one line for the outage and one for its end."""
        kafka = DriverKafka(p0=(0, 10))
        kafka.troubles = [Unreachable("connection refused")] * 20

        with capture_logs() as logs:
            assert 0 == service(kafka, FakeRounds(works(kafka)), stop=ImpatientStop()).run(until_end=True)

        events = [entry["event"] for entry in logs]
        assert 1 == events.count("kafka_unavailable")
        assert 1 == events.count("kafka_available")

    def test_a_compacted_dead_letter_topic_ends_the_service_before_spark_starts(self) -> None:
        """It would reject or delete dead letters."""
        kafka = DriverKafka(p0=(0, 10))
        kafka.compacted = {"dead"}
        rounds = FakeRounds(works(kafka))

        with pytest.raises(NotUsable, match=r"kafka-configs .* --topic dead --add-config cleanup\.policy=delete"):
            service(kafka, rounds).run(until_end=True)

        assert [] == rounds.rounds

    def test_a_refusal_that_lasts_ends_the_service(self) -> None:
        """A wrong password needs an operator, so the service ends within seconds; the log names the error before."""
        time, kafka = SimulatedTime(), DriverKafka(p0=(0, 10))
        kafka.troubles = [NotAllowed("wrong password", "correct it") for _ in range(1_000)]
        stop = SimulatedStop(time, at=3_600)

        with capture_logs() as logs, pytest.raises(NotAllowed, match="wrong password: correct it"):
            service(kafka, FakeRounds(works(kafka)), stop=stop, runtime=time.runtime).run(until_end=False)

        assert REFUSED_SECONDS <= time.now <= 15
        assert ["wrong password: correct it"] == [each["reason"] for each in of_event(logs, "kafka_unavailable")]

    def test_a_refusal_that_passes_is_waited_for(self) -> None:
        """Restarting brokers may refuse now and then; only refusals in a row count."""
        time, kafka = SimulatedTime(), DriverKafka(p0=(0, 10))
        refused = [NotAllowed("not yet")] * (REFUSALS_IN_A_ROW - 1)
        kafka.troubles = [*refused, Unreachable("restarting")] * 5
        stop = SimulatedStop(time, at=3_600)

        assert 0 == service(kafka, FakeRounds(works(kafka)), stop=stop, runtime=time.runtime).run(until_end=True)
        assert [] == kafka.troubles

    def test_a_long_wait_is_logged_each_minute(self) -> None:
        """Silence would look as if all were well."""
        time, kafka = SimulatedTime(), DriverKafka(p0=(0, 10))
        kafka.troubles = [Unreachable("connection refused") for _ in range(1_000)]
        stop = SimulatedStop(time, at=301)

        with capture_logs() as logs:
            service(kafka, FakeRounds(works(kafka)), stop=stop, runtime=time.runtime).run(until_end=False)

        events = [each["event"] for each in logs]
        assert 1 + 5 == events.count("kafka_unavailable")

    @pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
    def test_transactions_that_the_brokers_do_not_allow(self, guarantee: str) -> None:
        """No task could ever open, so the service ends before Spark starts. Without transactions it does not matter."""
        kafka = DriverKafka(p0=(0, 10))
        kafka.short_transactions = NotUsable("transaction.timeout is too long", "lower it")
        run = service(kafka, FakeRounds(works(kafka)), config(f"delivery.guarantee={guarantee}"))

        if guarantee == "at-least-once":
            assert 0 == run.run(until_end=True)
            return
        with pytest.raises(NotUsable, match="too long: lower it"):
            run.run(until_end=True)
        assert [] == kafka.fenced

    def test_rights_that_are_missing_end_the_service_before_spark_starts(self) -> None:
        """Each of them is named, in the words of `winnow check --connect`."""
        time, kafka = SimulatedTime(), DriverKafka(p0=(0, 10))
        kafka.clusters = FakeCluster()
        kafka.clusters.rights = {
            "raw": frozenset({"DescribeConfigs"}),
            "clean": frozenset({"Describe", "Read", "DescribeConfigs"}),
        }
        kafka.forbidden = NotAllowed("no transactional id", "allow it")
        rounds, stop = FakeRounds(works(kafka)), SimulatedStop(time, at=3_600)
        said: list[str] = []

        with pytest.raises(NotAllowed) as raised:
            service(kafka, rounds, stop=stop, runtime=time.runtime).run(until_end=True)
        connected(config(), kafka.clients, lambda _, what: said.append(str(what)))

        assert said == str(raised.value).splitlines()
        assert 3 == len(said)
        assert REFUSED_SECONDS <= time.now <= 15
        assert [] == [*rounds.rounds, *kafka.fenced]

    def test_a_warning_of_the_preflight_is_logged(self) -> None:
        """It is logged once, at the start, and the service runs."""
        kafka = DriverKafka(p0=(0, 10))
        kafka.clusters = FakeCluster()
        kafka.clusters.settings = {"raw": {"cleanup.policy": "compact"}}

        with capture_logs() as logs:
            assert 0 == service(kafka, FakeRounds(works(kafka))).run(until_end=True)

        first, *_ = [each["finding"] for each in of_event(logs, "preflight_warning")]
        assert first.startswith("the source 'raw' is compacted")

    def test_a_stop_ends_the_wait_for_kafka(self) -> None:
        """A service that waits for a broker still stops on SIGTERM."""
        kafka, stop = DriverKafka(p0=(0, 10)), Stop()
        kafka.troubles = [Unreachable("connection refused")] * 1_000

        def wait(seconds: float) -> bool:
            stop.request("SIGTERM")
            return True

        stop.wait = wait  # type: ignore[method-assign]

        assert 0 == service(kafka, FakeRounds(works(kafka)), stop=stop).run(until_end=False)

    @pytest.mark.parametrize("error", [TopicMissing("topic 'dead' does not exist"), ForeignMember("somebody")])
    def test_an_error_that_waiting_does_not_cure_is_raised_at_once(self, error: Exception) -> None:
        """A missing topic or a foreign member is an error, not an outage."""
        kafka = DriverKafka(p0=(0, 10))
        kafka.troubles = [error]

        with pytest.raises(type(error)):
            service(kafka, FakeRounds(works(kafka))).run(until_end=False)


class TestChecks:
    """A long round with a fake clock, which each reading advances by a tenth of a second."""

    @pytest.fixture(autouse=True)
    def _clock(self) -> None:
        self.now = 0.0

        def monotonic() -> float:
            self.now += 0.1
            return self.now

        self.runtime = Runtime(monotonic, lambda: 0.0, Inline, timings=IMPATIENT)

    def run(
        self,
        kafka: DriverKafka,
        *settings: str,
        seconds: float = 200,
        act: Callable[[Sequence[Assignment]], Result] | None = None,
        stop: Stop | None = None,
        **round_: object,
    ) -> tuple[FakeRounds, list[Any]]:
        """
        Run a service this long, with tasks that end when their control partitions are fenced; return rounds and log.

        Args:
            act: the work of a round, by default all that there is.
            round_: attributes of each round.
        """
        stop, waits, fences = stop or Stop(), count(), dict[FakeRound, int]()
        rounds = FakeRounds(act or works(kafka), slots=2)

        def wait(running: FakeRound, at_most: float) -> bool:
            if next(waits) > 10 * seconds:
                stop.request("SIGTERM")
            return len(kafka.fenced) > fences.setdefault(running, len(kafka.fenced))

        rounds.kind = type("Checked", (FakeRound,), {"wait": wait, **round_})
        with capture_logs() as logs:
            assert 0 == service(kafka, rounds, config("round.interval=5s", *settings), stop, runtime=self.runtime).run(
                until_end=False
            )
        return rounds, logs

    def test_a_round_goes_on_while_its_plan_is_good(self) -> None:
        """There is one round with many checks, and only the stop fences, so readers of the sink notice nothing."""
        kafka = DriverKafka(p0=(0, 10), p1=(0, 10))

        rounds, logs = self.run(kafka)

        assert 1 == len(rounds.rounds)
        assert 5 < len(of_event(logs, "progress"))
        assert 20 == of_event(logs, "progress")[0]["records"]

    def test_a_new_partition_ends_the_round_through_its_control_partitions(self) -> None:
        """The tasks commit and return receipts, and the next plan includes the new partition."""
        kafka = DriverKafka(p0=(0, 10), p1=(0, 10))
        refreshes = count()

        def grow(partitions: Iterable[Partition]) -> dict[Partition, Watermarks]:
            if next(refreshes) == 3:
                kafka.watermark[Partition("raw", 2)] = (0, 5)
            ends = {partition: kafka.watermark[partition][1] for partition in partitions}
            return {partition: Watermarks(0, end, end) for partition, end in ends.items()}

        kafka.watermarks = grow  # type: ignore[method-assign]
        rounds, logs = self.run(kafka)

        assert [2, 3] == [sum(len(task.ranges) for task in round_) for round_ in rounds.rounds]
        assert [A, B] == sorted(kafka.fenced[1])
        assert any("partitions were added or removed" in entry.get("reason", "") for entry in logs)

    def test_a_task_that_has_reported_ends_the_round(self) -> None:
        """A round ends when one of its tasks has returned its receipts, because the slot would stay empty."""
        rounds, logs = self.run(DriverKafka(p0=(0, 10)), seconds=20, done_tasks=1)

        assert 1 < len(rounds.rounds)
        assert any("a task has no work left" == entry.get("reason") for entry in logs)

    def test_our_own_fences_are_no_news(self) -> None:
        """The round ended by the fences of its control partitions; only a fence of another one is another owner's."""
        fenced: Result = [Receipt(Partition("raw", number), 0, 10, outcome=Outcome.FENCED) for number in range(3)]
        kafka = DriverKafka(p0=(0, 10), p1=(0, 10), p2=(0, 10))

        _, logs = self.run(kafka, seconds=20, done_tasks=1, receipts=lambda _: fenced)

        told = [partition for entry in of_event(logs, "partitions_fenced") for partition in entry["partitions"]]
        assert {"raw-2"} == set(told)

    def test_lost_tasks_end_the_round_before_spark_gives_it_up(self) -> None:
        """A round survives a few lost tasks; with more it ends, because Spark fails a job with too many."""
        few, _ = self.run(DriverKafka(p0=(0, 10)), seconds=20, lost_tasks=3)
        many, _ = self.run(DriverKafka(p0=(0, 10)), seconds=20, lost_tasks=4)

        assert 1 == len(few.rounds)
        assert 1 < len(many.rounds)

    def test_a_partition_whose_offsets_cannot_be_read_does_not_end_the_round(self) -> None:
        """The others continue, the log names it once, and it is not stalled however long its broker is unavailable."""
        kafka = DriverKafka(p0=(0, 10), p1=(0, 10))
        kafka.committed[B] = CommittedOffset(5)

        rounds, logs = self.run(kafka, act=works(kafka, lambda: kafka.silent.add(B)))

        assert 1 == len(rounds.rounds)
        assert [1] == [each["partition"] for each in of_event(logs, "partition_waiting")]

    def test_a_partition_whose_output_nobody_takes_does_not_end_the_round(self) -> None:
        """The log names it with cause and cure when that begins, and again when it recovers."""
        kafka, checks = DriverKafka(p0=(0, 10), p1=(0, 10), p2=(0, 10), p3=(0, 10)), count()

        def heal_at_last() -> None:
            if next(checks) == 10:
                kafka.sink_leaderless.clear()

        kafka.when_asked = heal_at_last

        rounds, logs = self.run(kafka, seconds=60, act=works(kafka, lambda: kafka.sink_leaderless.add(1)))

        assert 1 == len(rounds.rounds)
        waiting = of_event(logs, "partition_waiting")
        assert [1, 3] == [each["partition"] for each in waiting]
        cause = "its output cannot be delivered: clean-1 has no leader"
        assert f"raw-1: {cause}: restore the broker; the partition resumes on its own" == waiting[0]["error"]
        assert [1, 3] == [each["partition"] for each in of_event(logs, "partition_wait_over")]

    def test_a_sink_that_is_deleted_ends_the_service(self) -> None:
        """The round ends at the next check, and the service with a named error, because only an operator can help."""
        kafka = DriverKafka(p0=(0, 10))
        gone = TopicMissing("topic 'clean' does not exist", "create it")
        act = works(kafka, lambda: setattr(kafka, "sink_gone", gone))

        with pytest.raises(TopicMissing, match="'clean' does not exist"):
            self.run(kafka, act=act, stop=ImpatientStop())

        assert 2 == len(kafka.fenced)  # the clean-up before Spark starts, and the control partition

    @pytest.mark.parametrize("refuses", [lambda call: call == 1, lambda call: call % 2], ids=["once", "in turn"])
    def test_refusals_that_pass_do_not_end_the_round(self, refuses: Callable[[int], object]) -> None:
        """
        A restarted broker may refuse once; the tasks keep their connections.

        Only refusals in a row end a round; a response in between resets the count.
        """
        kafka, calls = DriverKafka(p0=(0, 10)), count()

        def refuse() -> None:
            if refuses(next(calls)):
                raise NotAllowed("not yet")

        kafka.when_asked = refuse

        rounds, _ = self.run(kafka)

        assert 1 == len(rounds.rounds)

    def test_a_refusal_that_lasts_ends_the_round_and_then_the_service(self) -> None:
        """Tasks keep connections that predate the new password for a while; the service ends with the error."""
        kafka = DriverKafka(p0=(0, 10))
        kafka.when_asked = _raising_after_the_first(NotAllowed("wrong password"))

        with pytest.raises(NotAllowed, match="wrong password"):
            self.run(kafka, stop=ImpatientStop())

        assert [[A], [A]] == kafka.fenced

    def test_a_partition_that_waits_for_kafka_is_not_stalled(self) -> None:
        """No task could commit while Kafka was unavailable, so the time counts from its return."""
        kafka, answers = DriverKafka(p0=(0, 10)), count()

        def be_away_for_a_minute() -> None:
            if 1.0 < self.now < 60.0:
                raise Unreachable("no answer")
            if next(answers) == 2:  # after the discovery, and a first look in which nothing has moved yet
                kafka.committed[A] = CommittedOffset(10)

        kafka.when_asked = be_away_for_a_minute

        rounds, logs = self.run(kafka, act=lambda _: [])

        assert 1 == len(rounds.rounds)
        assert of_event(logs, "kafka_available")

    def test_tasks_go_on_while_kafka_does_not_answer_the_driver(self) -> None:
        """Kafka may still respond to the tasks, so the round continues."""
        kafka = DriverKafka(p0=(0, 10))
        kafka.when_asked = _raising_after_the_first(Unreachable("no answer"))

        rounds, logs = self.run(kafka)

        assert 1 == len(rounds.rounds)
        assert 1 == len(of_event(logs, "kafka_unavailable"))

    def test_an_error_that_needs_an_operator_is_raised_when_the_tasks_have_ended(self) -> None:
        """A foreign member that joins during a round ends the service, but only after its tasks have committed."""
        kafka = DriverKafka(p0=(0, 10))
        kafka.when_asked = _raising_after_the_first(ForeignMember("somebody"))

        with pytest.raises(ForeignMember, match="somebody"):
            self.run(kafka)

        assert [[A], [A]] == kafka.fenced

    def test_who_leaves_is_glad_of_a_later_run(self) -> None:
        """A later run of the same generation is an error for a service, but not after SIGTERM."""
        kafka, stop = DriverKafka(p0=(0, 10)), Stop()
        later = Superseded("a later run works here", "")
        kafka.when_asked = _raising_after_the_first(later)
        stop.leaving = "SIGTERM"

        one = service(kafka, FakeRounds(works(kafka)), stop=stop, runtime=self.runtime)

        with capture_logs() as logs:
            assert 0 == one.run(until_end=False)
        assert "taken over: a later run works here" == logs[-1]["cause"]

    def test_a_stop_does_not_wait_for_a_round_that_is_being_ended(self) -> None:
        """Hundreds of partitions may need a minute for their last commits; a stop fences them all within seconds."""
        kafka = DriverKafka(**{f"p{number}": (0, 10) for number in range(500)})
        stop, stopped = Stop(), list[float]()
        rounds = FakeRounds(works(kafka), slots=2)

        def wait(_: FakeRound, at_most: float) -> bool:
            if len(kafka.fenced) > 1 and not stop.requested:
                stop.request("SIGTERM")
                stopped.append(self.now)
            self.now += at_most
            return rounds.cancelled

        rounds.kind = type("Ending", (FakeRound,), {"wait": wait, "done_tasks": 1})

        assert 0 == service(kafka, rounds, config("round.interval=5s"), stop, runtime=self.runtime).run(until_end=False)
        assert [2, 500] == [len(fenced) for fenced in kafka.fenced[1:3]]
        assert self.now - stopped[0] < 10

    def test_at_least_once_is_not_ended_early(self) -> None:
        """At least once has no fence, so rounds are short and the driver plans again after each."""
        kafka = DriverKafka(p0=(0, 10))
        kafka.when_asked = _raising_after_the_first(ForeignMember("somebody"))

        rounds, _ = self.run(kafka, "delivery.guarantee=at-least-once", seconds=10)

        ((assignment,),) = rounds.rounds
        assert 15.0 == assignment.seconds


def test_a_spark_that_takes_long_to_start_is_no_sign_of_death() -> None:
    """The heartbeat continues while the service waits for it."""
    kafka, now = DriverKafka(p0=(0, 10)), 1_000.0
    rounds, runtime = FakeRounds(works(kafka)), Runtime(wall_clock=lambda: now)
    tracker, seen = StatusTracker("g", runtime=runtime), list[float]()

    def start() -> Rounds:
        nonlocal now
        now += 600
        while (alive := tracker.snapshot.alive) < now:
            time.sleep(0.01)
        seen.append(alive)
        return rounds

    one = service(kafka, rounds, runtime=runtime, start=start, tracker=tracker)

    assert 0 == one.run(until_end=True)
    assert [1_600] == seen


def _raising_after_the_first(error: Exception) -> Callable[[], None]:
    calls = count()

    def refuse() -> None:
        if next(calls):
            raise error

    return refuse


class TestPage:
    """The status page while the service runs."""

    def test_it_is_up_from_before_spark_starts_to_the_end(self) -> None:
        """A slow start is visible, and the last snapshot says that the service has stopped."""
        kafka, seen = DriverKafka(p0=(0, 10)), []
        tracker = StatusTracker("g")

        @contextmanager
        def page() -> Iterator[None]:
            seen.append(("up", tracker.snapshot.phase))
            yield
            seen.append(("down", tracker.snapshot.phase))

        def start() -> Rounds:
            seen.append(("Spark", tracker.snapshot.phase))
            return FakeRounds(works(kafka))

        shown = Service(config(), kafka.clients, start, stop=Stop(), tracker=tracker, page=page())
        assert 0 == shown.run(until_end=True)

        assert [("up", Phase.STARTING), ("Spark", Phase.STARTING), ("down", Phase.STOPPED)] == seen

    def test_a_port_that_is_taken_ends_the_start(self) -> None:
        """Nothing is fenced and Spark does not start: the port's owner may be this service itself."""
        kafka = DriverKafka(p0=(0, 10))

        @contextmanager
        def page() -> Iterator[None]:
            raise NotUsable("port 8090 is taken")
            yield

        shown = Service(
            config(), kafka.clients, lambda: pytest.fail("Spark"), stop=Stop(), tracker=StatusTracker("g"), page=page()
        )
        with pytest.raises(NotUsable, match="taken"):
            shown.run(until_end=True)

        assert [] == kafka.fenced


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_a_round_shows_how_old_what_waits_is(guarantee: str) -> None:
    """This holds for both guarantees; with at-least-once, a round is not looked at before its end."""
    kafka = DriverKafka(p0=(0, 10))
    kafka.ages = {A: FirstWaiting(5.0, 60.0)}
    rounds, tracker, seen = FakeRounds(works(kafka)), StatusTracker("g"), []

    class WatchedRound(FakeRound):
        def wait(self, seconds: float) -> bool:
            seen.append(tracker.snapshot.partitions[A].waiting)
            return super().wait(seconds)

    rounds.kind = WatchedRound
    service(kafka, rounds, config(f"delivery.guarantee={guarantee}"), tracker=tracker).run(until_end=True)

    assert FirstWaiting(5.0, 60.0) == seen[0]


@pytest.mark.parametrize("error", [ForeignMember("somebody"), SparkFailed("no Java"), RuntimeError()])
def test_why_a_service_has_stopped(error: Exception) -> None:
    """The last line says why, even without a signal and with work left; the first one, that it has started."""
    kafka = DriverKafka(p0=(0, 10))

    def fail() -> Rounds:
        raise error

    with capture_logs() as logs, pytest.raises(type(error)):
        service(kafka, FakeRounds(works(kafka)), start=fail).run(until_end=True)

    assert ("started", __version__) == (logs[0]["event"], logs[0]["version"])
    assert ("stopped", str(error) or "RuntimeError") == (logs[-1]["event"], logs[-1]["cause"])
