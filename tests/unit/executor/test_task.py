"""The task with fakes: whatever fails, and wherever, a retry ends with what the guarantee promises."""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise, product

import pyarrow as pa
import pytest

from app.errors import Transient, Truncated, Undelivered
from app.executor import commits, task
from app.executor.lane.lane import Lane
from app.executor.lane.states import Closed, Ready
from app.executor.limits import CLOCK_MARGIN_MS
from app.executor.parse import make_parser
from app.model import (
    CommittedOffset,
    Destination,
    Guarantee,
    LastRead,
    OffsetRange,
    Outcome,
    Owner,
    Partition,
    Receipt,
    TimestampLimit,
)
from app.offsets.metadata import Counts, OffsetMetadata
from app.records import NO_TIMESTAMP, Chunk, Lines, OutgoingRecord
from parsers.contract import Parsed
from tests.fakes import (
    CONTROL,
    FakeAcknowledged,
    FakeClients,
    FakeClock,
    FakeConsumer,
    FakeKafka,
    FakeTransaction,
    FakeWriter,
    Killed,
    Mishap,
    Point,
    Script,
    SourceRecord,
    Trouble,
    make_assignment,
    make_task_config,
)
from tests.fakes.driver import forget
from tests.fakes.tasks import run_task
from tests.independent import cleansed, line

A, B = Partition("raw", 0), Partition("raw", 3)
EXACTLY, AT_LEAST = Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE


def source(good: int = 10) -> list[SourceRecord | None]:
    """Ten good lines, a bad one in the middle, a control record at the end."""
    records: list[SourceRecord | None] = [SourceRecord(line(n), b"k%d" % n) for n in range(good)]
    records.insert(5, SourceRecord(b"rubbish", b"bad", headers=[("h", b"1")]))
    return [*records, CONTROL]


def run(
    kafka: FakeKafka,
    guarantee: Guarantee = EXACTLY,
    script: Script | None = None,
    end: int | None = None,
    *,
    start: int | None = None,
    topic_id: str = "",
    seconds: float = 8,
) -> list[Receipt]:
    """Run one task on all partitions of a fake Kafka, with the ranges that the driver would plan now."""
    task_config, clock = make_task_config(guarantee), FakeClock()
    ranges = []
    for partition in kafka.source:
        committed = kafka.committed.get(partition)
        begin = start if start is not None else committed.offset if committed else 0
        at, metadata = (committed.offset, committed.metadata) if committed else (None, "")
        ranges.append(OffsetRange(partition, at, begin, end, topic_id, metadata=metadata))
    clients = FakeClients(kafka, task_config, clock, script)
    return run_task(clients, *ranges, seconds=seconds)


def expected() -> list[bytes]:
    return [cleansed(n) for n in range(10)]


@pytest.mark.parametrize("guarantee", [EXACTLY, AT_LEAST])
class TestFlow:
    def test_every_record_goes_to_the_sink_or_to_the_dead_letters(self, guarantee: Guarantee) -> None:
        """Good lines arrive cleansed and in order, a bad one unchanged, and the receipt counts both."""
        kafka = FakeKafka({A: source()})

        (receipt,) = run(kafka, guarantee)

        assert expected() == kafka.sink[A]
        assert [b"rubbish"] == [dead_letter.value for dead_letter in kafka.dead[A]]
        assert (11, 10, {"no_marker": 1}) == (receipt.records, receipt.out, receipt.dead)
        assert receipt.balances
        assert Outcome.DONE is receipt.outcome

    def test_the_offset_names_the_run_that_committed_it(self, guarantee: Guarantee) -> None:
        """Even if only the start was stored."""
        owner = Owner(7, "here", "clean")
        for records in ([], source()):
            kafka = FakeKafka({A: records})
            run_task(FakeClients(kafka, make_task_config(guarantee, owner=owner)), OffsetRange(A, None, 0))

            assert owner == OffsetMetadata.parse(kafka.committed[A].metadata).owner

    def test_the_offset_is_after_control_records(self, guarantee: Guarantee) -> None:
        """The committed offset is the partition's end, after its control records, so no lag remains."""
        kafka = FakeKafka({A: source()})

        (receipt,) = run(kafka, guarantee)

        bytes_in = sum(len(record.value or b"") for record in source() if record is not CONTROL)
        counts = Counts(11, 10, {"no_marker": 1}, bytes_in, sum(map(len, expected())))
        metadata = OffsetMetadata.parse(kafka.committed[A].metadata)
        assert (12, counts) == (kafka.committed[A].offset, replace(metadata.counts, committed=0))
        assert (0, 12) == (receipt.start, receipt.end)

    def test_partitions_that_share_a_chunk_are_counted_apart(self, guarantee: Guarantee) -> None:
        kafka = FakeKafka(
            {A: [SourceRecord(line(0)), SourceRecord(line(1))], B: [SourceRecord(line(2)), SourceRecord(b"rubbish")]}
        )

        run(kafka, guarantee)

        counted = (OffsetMetadata.parse(kafka.committed[each].metadata).counts for each in (A, B))
        first, second = (replace(each, committed=0) for each in counted)
        sizes = [len(line(n)) for n in range(3)]
        assert Counts(2, 2, {}, sizes[0] + sizes[1], len(cleansed(0)) + len(cleansed(1))) == first
        assert Counts(2, 1, {"no_marker": 1}, sizes[2] + len(b"rubbish"), len(cleansed(2))) == second

    def test_a_record_from_the_future_is_refused_by_the_clock(self, guarantee: Guarantee) -> None:
        """The clock counts seconds, timestamps milliseconds."""
        task_config, clock = make_task_config(guarantee), FakeClock()
        hour = TimestampLimit("message.timestamp.after.max.ms", 3_600_000)
        task_config = replace(task_config, sink=replace(task_config.sink, after=hour))
        newest = 1_000_000_500 + hour.milliseconds + CLOCK_MARGIN_MS
        kafka = FakeKafka({A: [SourceRecord(line(n), timestamp=newest + n) for n in range(2)]})
        runtime = replace(clock.runtime, wall_clock=lambda: 1_000_000.5)
        assignment = make_assignment(task_config, OffsetRange(A, None, 0))

        task.run(assignment, FakeClients(kafka, task_config, clock), make_parser(task_config), 8, runtime)

        assert [cleansed(0)] == kafka.sink[A]
        assert [line(1)] == [dead_letter.value for dead_letter in kafka.dead[A]]

    @pytest.mark.parametrize(("side", "hours"), [("after", -2), ("before", 2)])
    def test_a_machine_with_a_wrong_clock_refuses_nothing(self, guarantee: Guarantee, side: str, hours: int) -> None:
        """The records are of now by the driver's clock, as the plan told it: Kafka takes them."""
        task_config, clock = make_task_config(guarantee), FakeClock()
        hour = TimestampLimit(f"message.timestamp.{side}.max.ms", 3_600_000)
        limits = {"before": None, "after": None, side: hour}
        task_config = replace(
            task_config, sink=replace(task_config.sink, before=limits["before"], after=limits["after"])
        )
        kafka = FakeKafka({A: [SourceRecord(line(0), timestamp=1_000_000_000)]})
        runtime = replace(clock.runtime, wall_clock=lambda: 1_000_000 + hours * 3_600 + 120.0)
        assignment = make_assignment(task_config, OffsetRange(A, None, 0))
        assignment = replace(assignment, deadline=1_000_000 + assignment.seconds)

        task.run(assignment, FakeClients(kafka, task_config, clock), make_parser(task_config), 8, runtime)

        assert [cleansed(0)] == kafka.sink[A]
        assert not kafka.dead[A]

    def test_the_agreed_end_is_not_passed(self, guarantee: Guarantee) -> None:
        """Records from the end on are left for the next run, and the committed offset is the end."""
        kafka = FakeKafka({A: source()})

        (receipt,) = run(kafka, guarantee, end=4)

        assert expected()[:4] == kafka.sink[A]
        assert 4 == kafka.committed[A].offset
        assert 4 == receipt.records

    def test_the_end_is_kept_even_if_it_lies_inside_a_chunk_of_several_partitions(self, guarantee: Guarantee) -> None:
        """An end cuts only its own partition's records."""
        kafka = FakeKafka({A: source(), B: [CONTROL, CONTROL, *source()[:2]]})

        run(kafka, guarantee, end=3)

        assert expected()[:3] == kafka.sink[A]
        assert expected()[:1] == kafka.sink[B]

    def test_partitions_do_not_mix(self, guarantee: Guarantee) -> None:
        """Records of several partitions in one chunk go to the right ones."""
        kafka = FakeKafka({A: source(), B: [SourceRecord(line(77))]})

        receipts = run(kafka, guarantee)

        assert expected() == kafka.sink[A]
        assert [cleansed(77)] == kafka.sink[B]
        assert [11, 1] == [receipt.records for receipt in receipts]

    def test_the_counts_go_on_over_tasks(self, guarantee: Guarantee) -> None:
        """The metadata counts from the first task on, a receipt only its own task."""
        kafka = FakeKafka({A: source()})
        run(kafka, guarantee, end=4)
        (receipt,) = run(kafka, guarantee)

        metadata = OffsetMetadata.parse(kafka.committed[A].metadata)
        assert (0, 11, 10, {"no_marker": 1}) == (
            metadata.since,
            metadata.counts.records,
            metadata.counts.out,
            metadata.counts.dead,
        )
        assert (7, metadata) == (receipt.records, OffsetMetadata.parse(receipt.metadata))

    def test_the_counts_of_another_topic_are_not_continued(self, guarantee: Guarantee) -> None:
        """The counts of a topic that was recreated under the same name start at zero."""
        kafka = FakeKafka({A: source()})
        kafka.committed[A] = CommittedOffset(2, str(OffsetMetadata("another", 0, Counts(2, 2))))

        run(kafka, guarantee, topic_id="this")

        metadata = OffsetMetadata.parse(kafka.committed[A].metadata)
        assert ("this", 2, 9) == (metadata.topic_id, metadata.since, metadata.counts.records)

    def test_a_policy_may_go_back(self, guarantee: Guarantee) -> None:
        """If out.of.range starts a partition below its committed offset, the task resets the stored offset once."""
        kafka = FakeKafka({A: source()})
        kafka.committed[A] = CommittedOffset(500)

        (receipt,) = run(kafka, guarantee, start=0)

        assert Outcome.DONE is receipt.outcome
        assert expected() == kafka.sink[A]
        assert 12 == kafka.committed[A].offset

    def test_an_idle_partition_renews_its_offset(self, guarantee: Guarantee) -> None:
        """A partition without traffic commits its offset again, so the broker never deletes it."""
        kafka = FakeKafka({A: source()})
        run(kafka, guarantee)
        kafka.committed[A] = CommittedOffset(12, "old")

        run(kafka, guarantee)

        assert 12 == kafka.committed[A].offset == OffsetMetadata.parse(kafka.committed[A].metadata).since

    def test_one_partition_of_a_task_tells_where_its_time_goes(self, guarantee: Guarantee) -> None:
        """The control partition stores with its offset the waits, and each chunk and commit. The others store none."""
        kafka = FakeKafka({A: source(), B: source()})

        run(kafka, guarantee)

        told = [OffsetMetadata.parse(kafka.committed[each].metadata) for each in (A, B)]
        assert told[0].report is not None
        assert told[1].report is None
        times = told[0].report.times
        assert 8.0 == pytest.approx(times.waits)  # nothing else takes time on this clock
        assert sum(times.parse.counts) == sum(times.produce.counts) > 3
        assert told[0].counts.committed + told[1].counts.committed == sum(times.commit.counts) + 2  # the last ones


TABLE = [
    (point, trouble, times)
    for point, trouble, times in product(Point, (Trouble.KILLED, Trouble.TRANSIENT), (1, 2, 3))
    if not (times > 1 and point in (Point.BEFORE_OPEN, Point.AFTER_OPEN))
]

# Points at which something was sent but not committed: the first commit only stores the start, the second comes with
# the first chunk.
SENT_IN_VAIN = {
    (Point.BEFORE_SEND, 3),
    *product([Point.AFTER_SEND], (1, 2, 3)),
    *product([Point.BEFORE_COMMIT], (2, 3)),
}


def survive(kafka: FakeKafka, guarantee: Guarantee, *mishaps: Mishap) -> None:
    """Run a task as Spark does: again if its process dies."""
    try:
        run(kafka, guarantee, Script(list(mishaps)))
    except Killed:
        run(kafka, guarantee)


@pytest.mark.parametrize(("point", "trouble", "times"), TABLE)
class TestTroubleAnywhere:
    def test_exactly_once(self, point: Point, trouble: Trouble, times: int) -> None:
        """A crash or an unknown outcome at any point loses and duplicates nothing, and keeps the order."""
        kafka = FakeKafka({A: source(), B: source()})

        survive(kafka, EXACTLY, Mishap(point, trouble, times))

        for partition in (A, B):
            assert expected() == kafka.sink[partition]
            assert 1 == len(kafka.dead[partition])
            assert 12 == kafka.committed[partition].offset

    def test_at_least_once(self, point: Point, trouble: Trouble, times: int) -> None:
        """A crash or an unknown outcome at any point loses nothing. Records sent but not committed come twice."""
        kafka = FakeKafka({A: source()})

        survive(kafka, AT_LEAST, Mishap(point, trouble, times))

        seen = Counter(kafka.sink[A])
        assert set(expected()) == set(seen)
        doubled = {value for value, count in seen.items() if count > 1}
        assert ((point, times) in SENT_IN_VAIN) == bool(doubled)


class TestReadOnlyStore:
    """An offset store that can be read but not written, such as one without a right or a quorum, at least once."""

    def test_nothing_is_written_for_it(self) -> None:
        """Neither at a retry nor by a later task. Once it can be written, each line arrives once."""
        kafka = FakeKafka({A: source()})
        kafka.committed[A], kafka.saves_left = CommittedOffset(0, "kept"), 0

        for _ in range(2):
            (receipt,) = run(kafka, AT_LEAST)
            assert (Outcome.FAILED, 0) == (receipt.outcome, receipt.records)
            assert "the offset may not have been stored" in receipt.error
        assert ([], CommittedOffset(0, "kept")) == (kafka.sink[A], kafka.committed[A])

        kafka.saves_left = math.inf
        run(kafka, AT_LEAST)
        assert expected() == kafka.sink[A]

    def test_what_was_written_before_comes_twice(self) -> None:
        """However often the task tries again meanwhile."""
        kafka = FakeKafka({A: source()})
        kafka.saves_left = 1  # the start

        (receipt,) = run(kafka, AT_LEAST)
        assert receipt.reopened > 2

        kafka.saves_left = math.inf
        run(kafka, AT_LEAST)
        assert set(expected()) == set(kafka.sink[A])
        assert max(Counter(kafka.sink[A]).values()) == 2


class TestUndelivered:
    @pytest.mark.parametrize("seconds", [10.0, 0.0], ids=["times out", "is denied"])
    @pytest.mark.parametrize("guarantee", [EXACTLY, AT_LEAST])
    def test_what_can_be_delivered_does_not_come_again_and_again(self, guarantee: Guarantee, seconds: float) -> None:
        """For ten minutes the dead letters cannot be written. The lines before them are committed."""
        records = [SourceRecord(b"rubbish" if n in (150, 151, 300) else line(n)) for n in range(400)]
        kafka, clock, sent = FakeKafka({A: records}), FakeClock(), Counter[bytes | None]()
        ends = clock.now + 600
        during = list[int]()

        class Denied(FakeAcknowledged if guarantee is AT_LEAST else FakeTransaction):  # type: ignore[misc]
            held = False

            def _send(self, values: list[bytes | None]) -> None:
                sent.update(values)
                super()._send(values)

            def _send_dead_letters(self, dead_letters: Sequence[OutgoingRecord]) -> None:
                self.held |= clock.now < ends
                super()._send_dead_letters([] if self.held else dead_letters)

            def commit(self, offset: int, metadata: str) -> None:
                if self.held:
                    clock.now += seconds
                    during.append(kafka.committed[A].offset)
                    raise Undelivered(A, "a dead letter was not acknowledged")
                super().commit(offset, metadata)

        task_config = make_task_config(guarantee)
        consumers = partial(FakeConsumer, most=100, tick=0.25)
        clients = FakeClients(kafka, task_config, clock, writers=Denied, consumers=consumers)

        (receipt,) = run_task(clients, OffsetRange(A, None, 0), seconds=700)

        assert 150 == during[-1]
        assert max(sent.values()) <= 10
        assert [cleansed(n) for n in range(400) if n not in (150, 151, 300)] == list(dict.fromkeys(kafka.sink[A]))
        assert (Outcome.DONE, 400, 3) == (receipt.outcome, kafka.committed[A].offset, len(kafka.dead[A]))


class TestOutcomes:
    def test_a_commit_that_happened_counts_although_its_answer_was_lost(self) -> None:
        """After an unknown outcome the committed offset decides, and the receipt counts each record once."""
        kafka = FakeKafka({A: source()})

        (receipt,) = run(kafka, EXACTLY, Script([Mishap(Point.AFTER_COMMIT, Trouble.TRANSIENT, 2)]))

        assert (11, 10, 1) == (receipt.records, receipt.out, sum(receipt.dead.values()))
        assert 1 == receipt.reopened
        assert Outcome.DONE is receipt.outcome
        assert "by the script" in receipt.error

    def test_a_commit_that_did_not_happen_does_not_count(self) -> None:
        """Records of an aborted transaction count only once they are committed again."""
        kafka = FakeKafka({A: source()})

        (receipt,) = run(kafka, EXACTLY, Script([Mishap(Point.BEFORE_COMMIT, Trouble.TRANSIENT, 2)]))

        assert (11, 10) == (receipt.records, receipt.out)
        assert expected() == kafka.sink[A]

    def test_fenced_is_not_failed(self) -> None:
        """A task that has lost a partition drops it, commits the others and ends at once."""
        kafka = FakeKafka({A: source(), B: source(2)})
        script = Script([Mishap(Point.AFTER_SEND, Trouble.FENCED, 1)])

        first, second = run(kafka, EXACTLY, script)

        assert Outcome.FENCED is first.outcome
        assert "" == first.error
        assert [] == kafka.sink[A]
        assert Outcome.DONE is second.outcome
        assert second.end == kafka.committed[B].offset > 0

    def test_a_blocked_partition_is_left_to_a_person(self) -> None:
        """It is dropped and not retried, its receipt gives the cure, and the others run to their end."""
        kafka = FakeKafka({A: source(), B: source(2)})

        first, second = run(kafka, EXACTLY, Script([Mishap(Point.AFTER_SEND, Trouble.BLOCKED, 1)]))

        assert (Outcome.BLOCKED, 0) == (first.outcome, first.reopened)
        assert ("by the script", "mend the script") == (first.error, first.cure)
        assert [] == kafka.sink[A]
        assert (Outcome.DONE, second.end) == (second.outcome, kafka.committed[B].offset)
        assert kafka.sink[B]

    def test_a_consumer_that_kafka_refuses_ends_the_task(self) -> None:
        """What it has read is committed, and the next task reads on with the current passwords and certificates."""
        kafka = FakeKafka({A: source()})
        kafka.committed = {A: CommittedOffset(0)}

        class RefusedConsumer(FakeConsumer):
            def poll(self, seconds: float, most: int | None = None) -> Chunk | None:
                chunk = super().poll(seconds, most)
                self.refused = chunk is not None
                return chunk

        clients = FakeClients(kafka, consumers=RefusedConsumer)
        (receipt,) = run_task(clients, OffsetRange(A, 0, 0), seconds=1_000)

        assert (Outcome.DONE, 3) == (receipt.outcome, receipt.records)
        assert receipt.end == kafka.committed[A].offset

    def test_the_fence_of_the_control_partition_ends_an_idle_task(self) -> None:
        """A task without traffic notices within one heartbeat that the driver has fenced its control partition."""
        kafka = FakeKafka({A: [], B: []})
        kafka.committed = {A: CommittedOffset(0), B: CommittedOffset(0)}
        task_config, clock = make_task_config(), FakeClock()
        began = clock.now

        class FencedMeanwhile(FakeConsumer):
            def poll(self, seconds: float, most: int | None = None) -> Chunk | None:
                kafka.epochs[A] = 99
                return super().poll(seconds, most)

        clients = FakeClients(kafka, task_config, clock, consumers=FencedMeanwhile)
        ranges = (OffsetRange(A, 0, 0), OffsetRange(B, 0, 0))
        receipts = run_task(clients, *ranges, seconds=1_000)

        assert [Outcome.FENCED, Outcome.DONE] == [receipt.outcome for receipt in receipts]
        assert clock.now - began < 3

    def test_the_time_to_open_does_not_count(self) -> None:
        """Opening hundreds of partitions may take longer than a short round. The task still processes records."""
        kafka = FakeKafka({A: source()})
        task_config, clock = make_task_config(), FakeClock()

        def slowly(clients: FakeClients, partition: Partition) -> FakeWriter:
            clock.now += 100
            return FakeTransaction(clients, partition)

        clients = FakeClients(kafka, task_config, clock, writers=slowly)

        run_task(clients, OffsetRange(A, None, 0))

        assert expected() == kafka.sink[A]

    @pytest.mark.parametrize("committed", range(1, 13))
    @pytest.mark.parametrize("point", [Point.AFTER_OPEN, Point.BEFORE_SEND, Point.BEFORE_COMMIT, Point.AFTER_COMMIT])
    def test_a_rewind_happens_once(self, point: Point, committed: int) -> None:
        """A task that has gone back and passed its planned offset does not go back again after an error."""
        for times in (1, 2, 3):
            kafka = FakeKafka({A: source()})
            kafka.committed[A] = CommittedOffset(committed)

            run(kafka, EXACTLY, Script([Mishap(point, Trouble.TRANSIENT, times)]), start=0)

            assert expected() == kafka.sink[A]
            assert 12 == kafka.committed[A].offset

    def test_an_offset_that_was_moved_back_beside_its_metadata(self) -> None:
        """Another tool has set only the number, in a store whose metadata names no offset, as 0.2.0 has written it."""
        kafka = FakeKafka({A: source()})
        kafka.committed[A] = CommittedOffset(3, str(OffsetMetadata(counts=Counts(6, 6), read=LastRead(6, 0))))
        clients = FakeClients(kafka)

        (receipt,) = run_task(clients, OffsetRange(A, committed=3, start=3))

        assert (Outcome.DONE, expected()[3:]) == (receipt.outcome, kafka.sink[A])

    @pytest.mark.parametrize("cut", [3, None])
    def test_a_start_that_a_policy_has_decided_is_not_compared_with_what_was_read(self, cut: int | None) -> None:
        """The log was cut below the committed offset and has grown past it, and the policy goes on right there."""
        kafka = FakeKafka({A: source()})
        kafka.leader_epochs[A] = [3]
        read = OffsetMetadata(counts=Counts(6, 6), read=LastRead(6, 0))
        kafka.committed[A] = CommittedOffset(6, str(read))
        clients = FakeClients(kafka)

        (receipt,) = run_task(clients, OffsetRange(A, committed=6, start=6, cut=cut))

        assert (Outcome.BLOCKED if cut is None else Outcome.DONE) is receipt.outcome
        assert ([] if cut is None else expected()[5:]) == kafka.sink[A]

    @pytest.mark.parametrize("ends", [[3], [3, 2]])
    def test_a_log_may_be_cut_again_before_a_task_goes_on_at_the_cut(self, ends: list[int]) -> None:
        """The log has grown past the first cut since. What follows the second one has not been read."""
        kafka = FakeKafka({A: source()})
        kafka.leader_epochs[A] = ends
        kafka.committed[A] = CommittedOffset(6, str(OffsetMetadata(counts=Counts(6, 6), read=LastRead(6, 0))))
        clients = FakeClients(kafka)

        (receipt,) = run_task(clients, OffsetRange(A, committed=6, start=3, counted=6, cut=3))

        assert (Outcome.DONE if ends == [3] else Outcome.BLOCKED) is receipt.outcome
        assert (expected()[3:] if ends == [3] else []) == kafka.sink[A]

    def test_a_later_attempt_does_not_go_back_again(self) -> None:
        """An attempt has gone back, come to the planned offset again, and died. The next one has the same assignment."""
        kafka, task_config = FakeKafka({A: source()}), make_task_config()
        kafka.committed[A] = CommittedOffset(6, str(OffsetMetadata(counts=Counts(6, 6))))

        def attempt(script: Script) -> None:
            clock = FakeClock()
            clients = FakeClients(kafka, task_config, clock, script)
            run_task(clients, OffsetRange(A, committed=6, start=3, counted=6))

        for sent in range(1, 9):
            kafka.sink[A].clear()
            kafka.dead[A].clear()
            kafka.committed[A] = CommittedOffset(6, str(OffsetMetadata(counts=Counts(6, 6))))
            with contextlib.suppress(Killed):
                attempt(Script([Mishap(Point.AFTER_COMMIT, Trouble.KILLED, sent)]))
            attempt(Script())

            assert len(kafka.sink[A]) == len(set(kafka.sink[A]))

    def test_an_offset_that_went_back_is_not_overwritten(self) -> None:
        """If an operator resets the group between planning and opening, the partition is left to the next plan."""
        kafka = FakeKafka({A: source()})
        kafka.committed[A] = CommittedOffset(3)
        offset_range = OffsetRange(A, committed=7, start=7)

        (receipt,) = run_task(FakeClients(kafka), offset_range)

        assert Outcome.FAILED is receipt.outcome
        assert "went back to 3" in receipt.error
        assert [] == kafka.sink[A]
        assert 3 == kafka.committed[A].offset

    def test_a_newer_offset_wins_over_the_plan(self) -> None:
        """If an earlier owner committed after the plan was made, its records are not processed again."""
        kafka = FakeKafka({A: source()})
        kafka.committed[A] = CommittedOffset(4)

        run_task(FakeClients(kafka), OffsetRange(A, committed=1, start=1))

        assert expected()[4:] == kafka.sink[A]

    def test_a_transaction_that_hangs_beside_the_offset_is_ended_first(self) -> None:
        """Its offset counts, whatever the driver planned with. The other partitions do not wait for it."""
        kafka = FakeKafka({A: source(), B: source()})
        kafka.committed[A], kafka.pending[A] = CommittedOffset(1), CommittedOffset(4)

        first, _ = run(kafka, EXACTLY)

        assert expected()[4:] == kafka.sink[A]
        assert expected() == kafka.sink[B]
        assert Outcome.DONE is first.outcome

    @pytest.mark.parametrize(("pending", "begins"), [(None, 3), (CommittedOffset(4), 4)])
    def test_the_groups_first_offset_may_be_pending(self, pending: CommittedOffset | None, begins: int) -> None:
        """Only a receipt told it. The task goes on there, unless the transaction that hangs was committed."""
        kafka = FakeKafka({A: source()})
        kafka.pending[A] = pending
        planned = OffsetRange(A, committed=3, start=3, never_read=True)
        clients = FakeClients(kafka)

        run_task(clients, planned)

        assert 3 == kafka.ended_from[A]
        assert expected()[begins:] == kafka.sink[A]

    def test_the_starting_offset_is_stored_at_once(self) -> None:
        """So `latest` means the same after a crash."""
        kafka = FakeKafka({A: source()})

        with pytest.raises(Killed):
            run(kafka, EXACTLY, Script([Mishap(Point.BEFORE_SEND, Trouble.KILLED)]))

        assert CommittedOffset(0, str(OffsetMetadata())) == kafka.committed[A]

    def test_a_suspicious_producer_is_replaced(self) -> None:
        """A slow commit succeeds, but its producer is not used again."""
        kafka = FakeKafka({A: source()})

        def slow_at_first(clients: FakeClients, partition: Partition) -> FakeWriter:
            writer = FakeTransaction(clients, partition)
            writer.suspect = kafka.epochs.get(partition, 0) == 0
            return writer

        clients = FakeClients(kafka, writers=slow_at_first)

        (receipt,) = run_task(clients, OffsetRange(A, None, 0))

        assert 2 == kafka.epochs[A]
        assert expected() == kafka.sink[A]
        assert Outcome.DONE is receipt.outcome

    @pytest.mark.parametrize(
        ("offset_range", "first_commits"),
        [(OffsetRange(A, None, 0), 1), (OffsetRange(A, 3, 0), 0)],
        ids=["commit", "reset"],
    )
    def test_a_producer_whose_first_commit_is_suspicious_is_replaced(
        self, offset_range: OffsetRange, first_commits: int
    ) -> None:
        """The start is stored by a commit, or by a reset if it goes back. If that was slow, no record follows it."""
        kafka = FakeKafka({A: source()})
        if offset_range.committed is not None:
            kafka.committed[A] = CommittedOffset(offset_range.committed)
        made = list[FakeWriter]()

        def slow_at_first(clients: FakeClients, partition: Partition) -> FakeWriter:
            made.append(FakeTransaction(clients, partition))
            made[-1].suspect = len(made) == 1
            return made[-1]

        clients = FakeClients(kafka, writers=slow_at_first)

        (receipt,) = run_task(clients, offset_range)

        assert (2, first_commits) == (len(made), made[0].commits)
        assert expected() == kafka.sink[A]
        assert (Outcome.DONE, 1) == (receipt.outcome, receipt.reopened)

    @pytest.mark.parametrize(
        ("full", "few", "least", "most"),
        [(False, 1, 2.0, 5.0), (True, 1, 10.0, 13.0), (True, 16, 2.0, 5.0)],
        ids=["up to date", "lagging", "lagging with few lanes"],
    )
    def test_commits_leave_time_for_records(
        self, full: bool, few: int, least: float, most: float, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Slow commits are spaced out, and more so if many lanes have waiting records."""
        monkeypatch.setattr(commits, "SIDE_BY_SIDE", few)
        kafka = FakeKafka({A: [], B: source(2_000)})
        task_config, clock = make_task_config(), FakeClock()
        began = list[float]()

        class TimedWriter(FakeTransaction):
            def commit(self, offset: int, metadata: str) -> None:
                if self._partition == B:  # the control partition, A, keeps its heartbeat
                    began.append(clock.now)
                    clock.now += 1.0
                super().commit(offset, metadata)

        class Filled(FakeConsumer):
            def poll(self, seconds: float, most: int | None = None) -> Chunk | None:
                chunk = super().poll(seconds, most)
                return replace(chunk, full=full) if chunk else None

        clients = FakeClients(kafka, task_config, clock, writers=TimedWriter, consumers=Filled)

        ranges = OffsetRange(A, None, 0), OffsetRange(B, None, 0)
        run_task(clients, *ranges, seconds=60)

        passes = began[1:-1]  # the first stores the start, the last is the final commit
        assert len(passes) > 2
        assert all(least <= later - one <= most for one, later in pairwise(passes))


def reasons(kafka: FakeKafka) -> list[bytes | None]:
    return [dict(dead_letter.headers)["__connect.errors.exception.class.name"] for dead_letter in kafka.dead[A]]


class TestRefusedRecords:
    @pytest.mark.parametrize("refused", [{0}, {9}, {2, 3, 7}, set(range(10))], ids=str)
    @pytest.mark.parametrize("guarantee", [EXACTLY, AT_LEAST])
    def test_exactly_these_become_dead_letters(self, guarantee: Guarantee, refused: set[int]) -> None:
        """The other lines are written, the counts balance, and the other partition is not affected."""
        kafka = FakeKafka({A: source(), B: [CONTROL, SourceRecord(line(77)), CONTROL]})
        kafka.refuses_line = {cleansed(n) for n in refused}.__contains__

        first, second = run(kafka, guarantee, seconds=200)

        good = [cleansed(n) for n in range(10) if n not in refused]
        # At least once, later batches are written although one is refused, whose good lines follow.
        assert good == kafka.sink[A] if guarantee is EXACTLY else set(good) == set(kafka.sink[A])
        wanted = [b"refused" if n in refused else b"" for n in range(10)]
        wanted.insert(5, b"no_marker")
        if guarantee is EXACTLY:
            assert [reason for reason in wanted if reason] == reasons(kafka)
        assert {"no_marker": 1, "refused": len(refused)} == first.dead
        assert (True, 11, Outcome.DONE, 12) == (first.balances, first.records, first.outcome, first.end)
        assert "the broker does not like it" in first.error
        assert [cleansed(77)] == kafka.sink[B]
        assert (Outcome.DONE, 0) == (second.outcome, second.reopened)

    def test_the_dead_letter_holds_the_words_of_the_broker(self) -> None:
        """It has the time of writing, the record's own timestamp in a header, and key and value unchanged."""
        kafka = FakeKafka({A: [*source(3)[:2], SourceRecord(line(5), b"k", 1_234, [("h", b"1")])]})
        kafka.refuses_line = {cleansed(5)}.__contains__

        run(kafka, seconds=60)

        (dead_letter,) = kafka.dead[A]
        assert (b"k", line(5), NO_TIMESTAMP) == dead_letter[:2] + dead_letter[3:]
        headers = dict(dead_letter.headers)
        assert (b"1", b"1234") == (headers["h"], headers["__connect.errors.timestamp"])
        assert b"the broker does not like it" == headers["__connect.errors.exception.message"]

    def test_a_reject_whose_dead_letter_is_refused_gets_another_chance(self) -> None:
        """As `refused` it may be accepted, because its timestamp changes."""
        kafka = FakeKafka({A: source()})
        kafka.refuses_dead_letter = lambda dead_letter: dead_letter.timestamp != NO_TIMESTAMP

        (receipt,) = run(kafka, seconds=60)

        assert expected() == kafka.sink[A]
        assert ([b"refused"], {"refused": 1}) == (reasons(kafka), receipt.dead)

    def test_a_record_that_even_the_dead_letters_refuse_blocks_its_partition(self) -> None:
        """What came before it is committed, its receipt has the broker's error and a cure, and the others continue."""
        kafka = FakeKafka({A: source(), B: source()})
        kafka.refuses_line = {cleansed(3)}.__contains__
        kafka.refuses_dead_letter = lambda dead_letter: dead_letter.value == line(3)
        kafka.source[B] = [SourceRecord(line(n)) for n in range(20, 30)]

        first, second = run(kafka, seconds=60)

        assert expected()[:3] == kafka.sink[A]
        assert (Outcome.BLOCKED, 3, 3) == (first.outcome, first.end, kafka.committed[A].offset)
        assert "the broker does not like it" in first.error
        assert first.cure.endswith("winnow offsets reset -c winnow.yaml --topic raw:0 --to-offset 4")
        assert (Outcome.DONE, 10) == (second.outcome, second.out)

    def test_the_agreed_end_is_kept_during_a_search(self) -> None:
        """The search ends at the task's end, although more records follow."""
        kafka = FakeKafka({A: source()})
        kafka.refuses_line = {cleansed(3), cleansed(8)}.__contains__

        (receipt,) = run(kafka, end=4, seconds=60)

        assert expected()[:3] == kafka.sink[A]
        assert (Outcome.DONE, 4, {"refused": 1}) == (receipt.outcome, kafka.committed[A].offset, receipt.dead)

    def test_a_refusal_that_passes_makes_no_dead_letter(self) -> None:
        """Two refusals in a row are not enough to blame a record."""
        kafka = FakeKafka({A: source()})
        refusals = iter([True, True])
        kafka.refuses_line = lambda value: value == cleansed(9) and next(refusals, False)

        (receipt,) = run(kafka, seconds=60)

        assert expected() == kafka.sink[A]
        assert {"no_marker": 1} == receipt.dead


class TestBrokenParsers:
    @pytest.mark.parametrize("broken", ["raises", "forgets", "doubles"])
    def test_a_broken_parser_loses_no_record(self, broken: str) -> None:
        """A record on which a user's parser raises or miscounts becomes a dead letter; its neighbours are cleansed."""
        kafka = FakeKafka({A: source()})

        run_task(FakeClients(kafka), OffsetRange(A, None, 0), parser=Stumbles(broken))

        assert [cleansed(n) for n in range(10) if n != 7] == kafka.sink[A]
        reasons = [dict(dead_letter.headers)["__connect.errors.exception.class.name"] for dead_letter in kafka.dead[A]]
        assert [b"no_marker", b"parser_error"] == reasons

    def test_a_line_that_the_sink_would_refuse_is_a_dead_letter(self) -> None:
        """A cleansed line that exceeds the sink's limit is rejected as too_large and does not stop the partition."""
        kafka = FakeKafka({A: [SourceRecord(line(1)), SourceRecord(line(10**600)), SourceRecord(line(3))]})

        run_task(FakeClients(kafka, make_task_config(sink=Destination("clean", 2, 1_000))), OffsetRange(A, None, 0))

        assert [cleansed(1), cleansed(3)] == kafka.sink[A]
        assert b"too_large" == dict(kafka.dead[A][0].headers)["__connect.errors.exception.class.name"]


class Stumbles:
    """A user's parser that fails on line 7."""

    def __init__(self, how: str) -> None:
        self._how = how
        self._real = make_parser(make_task_config())

    def parse(self, lines: pa.BinaryArray) -> Parsed:
        parsed = self._real.parse(lines)
        if cleansed(7) not in parsed.values.to_pylist():
            return parsed
        if self._how == "raises":
            msg = "seven"
            raise RuntimeError(msg)
        keep = len(parsed.rows) - 1 if self._how == "forgets" else len(parsed.rows)
        rows = parsed.rows[:keep] if self._how == "forgets" else parsed.rows * 0
        return Parsed(
            parsed.values.slice(0, keep),
            rows + (len(lines) if self._how == "doubles" else 0),
            parsed.reject_rows,
            parsed.reasons,
            parsed.details,
        )


@pytest.mark.parametrize("guarantee", [EXACTLY, AT_LEAST])
class TestTruncation:
    """A log truncated below the committed offset, which the last record's leader epoch reveals (KIP-320)."""

    def kafka(self, guarantee: Guarantee) -> FakeKafka:
        """Return a Kafka whose only partition was read to its end, 12, behind a control record."""
        kafka = FakeKafka({A: source()})
        kafka.leader_epochs[A] = []
        run(kafka, guarantee)
        return kafka

    def read(self, kafka: FakeKafka) -> LastRead | None:
        """Return what is stored with the committed offset."""
        return OffsetMetadata.parse(kafka.committed[A].metadata).read

    def test_the_last_record_is_remembered_with_its_leader_epoch(self, guarantee: Guarantee) -> None:
        """The control record behind it may have a later epoch, which librdkafka does not report."""
        kafka = self.kafka(guarantee)

        assert (12, LastRead(11, 0)) == (kafka.committed[A].offset, self.read(kafka))

    def test_the_leader_epoch_is_that_of_the_last_record(self, guarantee: Guarantee) -> None:
        """Even if a leader was elected just before it."""
        kafka = FakeKafka({A: source()})
        kafka.leader_epochs[A] = [10]

        run(kafka, guarantee)

        assert LastRead(11, 1) == self.read(kafka)

    def test_a_log_that_was_cut_and_has_grown_again_blocks_its_partition(self, guarantee: Guarantee) -> None:
        """Nothing is read, the offset stays, and receipt and metadata say where the log was truncated."""
        kafka = self.kafka(guarantee)
        kafka.cut(A, 7, [SourceRecord(line(n)) for n in range(70, 90)])
        before = kafka.committed[A]

        (receipt,) = run(kafka, guarantee)
        told = OffsetMetadata.parse(kafka.committed[A].metadata)

        assert (Outcome.BLOCKED, 7, 7, 12) == (
            receipt.outcome,
            OffsetMetadata.parse(receipt.metadata).cut,
            told.cut,
            receipt.end,
        )
        assert "the partition was truncated to 7" in receipt.error
        assert "offsets 7 to 11" in receipt.error
        assert "out.of.range" in receipt.cure
        assert f"{receipt.error}: {receipt.cure}" == told.blocked
        assert replace(OffsetMetadata.parse(before.metadata), report=None) == replace(told, blocked="", cut=None)
        assert (12, expected()) == (kafka.committed[A].offset, kafka.sink[A])

    def test_a_cut_is_told_beside_the_offset_of_a_later_run_that_has_ended(self, guarantee: Guarantee) -> None:
        """Such as that of a backfill. Otherwise nobody would learn of the cut, and `out.of.range` would never act."""
        kafka = self.kafka(guarantee)
        later = replace(OffsetMetadata.parse(kafka.committed[A].metadata), owner=Owner(1, "ended", "clean", 0))
        kafka.committed[A] = CommittedOffset(12, str(later))
        kafka.cut(A, 7, [SourceRecord(line(n)) for n in range(70, 90)])

        run(kafka, guarantee)

        told = kafka.committed[A]
        assert (12, 7) == (told.offset, OffsetMetadata.parse(told.metadata).cut)

    def test_it_is_noticed_between_two_rounds_without_a_store(self, guarantee: Guarantee) -> None:
        """The driver tells the next task which record was read last."""
        kafka = self.kafka(guarantee)
        kafka.cut(A, 7, [SourceRecord(line(n)) for n in range(70, 90)])
        forget(kafka, A)

        (receipt,) = run(kafka, guarantee)

        assert (Outcome.BLOCKED, 7) == (receipt.outcome, OffsetMetadata.parse(receipt.metadata).cut)
        assert expected() == kafka.sink[A]

    def test_a_policy_goes_back_to_the_cut_without_a_store(self, guarantee: Guarantee) -> None:
        """The driver tells the next task what was counted before the committed offset."""
        kafka = self.kafka(guarantee)
        kafka.cut(A, 7)
        planned = forget(kafka, A, "nearest")
        kafka.source[A] += [SourceRecord(line(n)) for n in range(70, 72)]
        clients = FakeClients(kafka, make_task_config(guarantee))

        (receipt,) = run_task(clients, planned)

        assert (7, 9) == (receipt.start, receipt.end)
        assert [*expected(), cleansed(70), cleansed(71)] == kafka.sink[A]

    def test_a_new_leader_that_has_everything_blocks_nothing(self, guarantee: Guarantee) -> None:
        """Only the last record counts: the control record behind it may be lost, and its offset reused."""
        kafka = self.kafka(guarantee)
        kafka.cut(A, 11, [SourceRecord(line(99)), SourceRecord(line(100))])

        (receipt,) = run(kafka, guarantee)

        assert Outcome.DONE is receipt.outcome
        assert [*expected(), cleansed(99), cleansed(100)] == kafka.sink[A]
        assert (13, LastRead(13, 1)) == (kafka.committed[A].offset, self.read(kafka))

    def test_a_record_at_the_offset_of_a_lost_control_record_is_committed_in_time(self, guarantee: Guarantee) -> None:
        """Its lane is not the control lane, which commits anyway. No later record comes to end its transaction."""
        kafka = FakeKafka({A: source(), B: source()})
        kafka.leader_epochs = {A: [], B: []}
        run(kafka, guarantee)
        kafka.cut(B, 11, [SourceRecord(line(99))])
        counted = []

        class WatchedConsumer(FakeConsumer):
            def poll(self, seconds: float, most: int | None = None) -> Chunk | None:
                counted.append(OffsetMetadata.parse(kafka.committed[B].metadata).counts.records)
                return super().poll(seconds, most)

        clients = FakeClients(kafka, make_task_config(guarantee), consumers=WatchedConsumer)
        run_task(clients, OffsetRange(A, 12, 12), OffsetRange(B, 12, 12))

        assert (11, 12) == (counted[0], counted[-1])
        assert (12, [*expected(), cleansed(99)]) == (kafka.committed[B].offset, kafka.sink[B])

    def test_an_offset_that_a_person_set_is_believed(self, guarantee: Guarantee) -> None:
        """It has no leader epoch."""
        kafka = self.kafka(guarantee)
        kafka.cut(A, 7, [SourceRecord(line(n)) for n in range(70, 90)])
        kafka.committed[A] = CommittedOffset(7)

        (receipt,) = run(kafka, guarantee)

        assert Outcome.DONE is receipt.outcome
        assert [cleansed(n) for n in range(70, 90)] == kafka.sink[A][10:]

    def test_what_retention_has_deleted_since_is_not_read(self, guarantee: Guarantee) -> None:
        """The last record is gone, so reading starts at the beginning of the partition."""
        kafka = self.kafka(guarantee)
        clients = FakeClients(kafka, make_task_config(guarantee), FakeClock())
        lane = Lane(OffsetRange(A, 12, 12, log_start=12), consumer := clients.consumer())

        self.open(lane, clients).read()

        assert {A: 12} == consumer.reading

    def test_what_was_only_read_ahead_is_read_again(self, guarantee: Guarantee) -> None:
        """A truncation above the committed offset lost nothing that counts."""
        kafka = self.kafka(guarantee)
        clients = FakeClients(kafka, make_task_config(guarantee), FakeClock())
        lane = Lane(OffsetRange(A, 12, 12), clients.consumer())
        self.open(lane, clients).read()

        lane.give_up(Truncated(A, 40, 30), 0.0)

        assert (None, 1) == (lane.outcome, lane.ledger.reopened)
        assert isinstance(lane.state, Closed)
        assert lane.state.retry_at is not None

    def open(self, lane: Lane, clients: FakeClients) -> Ready:
        """Open and begin a lane."""
        assert isinstance(lane.state, Closed)
        opened = lane.state.open(clients, clients.offsets())
        lane.state = opened.begin(clients.kafka.committed[A], 0.0)
        assert lane.ready is not None
        return lane.ready


def test_lines_are_keyed_by_a_field() -> None:
    """With `sink.key` lines have that field as their key, and dead letters keep their record's key."""
    kafka, keys = FakeKafka({A: source(2)}), []

    class NotingWriter(FakeTransaction):
        def send(self, lines: Lines) -> None:
            keys.extend(lines.keys.take(lines.rows).to_pylist())
            super().send(lines)

    clients = FakeClients(kafka, make_task_config(sink_key="houseid"), writers=NotingWriter)

    run_task(clients, OffsetRange(A, None, 0, len(kafka.source[A])))

    assert [b"238", b"238"] == keys
    assert [b"bad"] == [each.key for each in kafka.dead[A]]


class TestTakeover:
    """Tasks of a later and of an earlier generation, each alone with a fake Kafka."""

    OTHER, MINE = Owner(9, "there", "clean", 1), Owner(3, "here", "clean", 2)

    def of(self, owner: Owner, offset: int = 0) -> CommittedOffset:
        return CommittedOffset(offset, str(OffsetMetadata(owner=owner)))

    def run(
        self,
        kafka: FakeKafka,
        seconds: float = 8,
        *,
        takes_over: bool = True,
        guarantee: Guarantee = EXACTLY,
        consumers: Callable[[FakeClients], FakeConsumer] = FakeConsumer,
    ) -> list[Receipt]:
        clock, task_config = FakeClock(), make_task_config(guarantee, owner=self.MINE, commit_seconds=1_000.0)
        ranges = [OffsetRange(each, 0, 0) for each in kafka.source]
        assignment = replace(make_assignment(task_config, *ranges), takes_over=takes_over)
        clients = FakeClients(kafka, task_config, clock, consumers=consumers)
        return task.run(assignment, clients, make_parser(task_config), seconds, runtime=clock.runtime)

    @pytest.mark.parametrize("takes_over", [True, False])
    def test_an_idle_partition_is_taken_in_our_name_at_once(self, takes_over: bool) -> None:
        """The other service must learn that it has lost it. In any other round, one partition's heartbeat is enough."""
        kafka = FakeKafka({A: [], B: []})
        kafka.committed = {A: self.of(self.OTHER), B: self.of(self.OTHER)}
        owners: list[Owner] = []
        real = task.Task.finish

        def note(self: task.Task) -> list[Receipt]:
            owners.append(OffsetMetadata.parse(kafka.committed[B].metadata).owner)
            return real(self)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(task.Task, "finish", note)
            self.run(kafka, takes_over=takes_over)

        assert [self.MINE if takes_over else self.OTHER] == owners

    def test_the_first_records_are_committed_at_once(self) -> None:
        """Readers have waited since the other service was fenced. The next commit comes when it is due."""
        kafka = FakeKafka({A: source()})
        kafka.committed = {A: self.of(self.OTHER)}
        found: list[int] = []
        real = task.Task.finish

        def note(self: task.Task) -> list[Receipt]:
            found.append(len(kafka.sink[A]))
            return real(self)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(task.Task, "finish", note)
            (receipt,) = self.run(kafka)

        assert found[0] > 0
        assert expected() == kafka.sink[A]
        assert receipt.balances

    @pytest.mark.parametrize("guarantee", [EXACTLY, AT_LEAST])
    def test_a_task_goes_on_with_what_a_later_generation_leaves(self, guarantee: Guarantee) -> None:
        """It drops the partition that is taken over, and works on the other until its deadline."""
        kafka = FakeKafka({A: [], B: []})
        kafka.committed = {A: self.of(self.MINE), B: self.of(self.MINE)}
        later = self.of(Owner(1, "there", "clean", 3))
        looks: list[int] = []
        real = task.Task.keep_up

        def take_over_then_keep_up(this: task.Task, *, catching_up: bool) -> None:
            looks.append(1)
            if len(looks) == 1:
                kafka.epochs[A] = 99
                kafka.committed[A] = later
                kafka.source[A].append(SourceRecord(line(2)))
            if len(looks) == 60:
                kafka.source[B].append(SourceRecord(line(1)))
            real(this, catching_up=catching_up)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(task.Task, "keep_up", take_over_then_keep_up)
            first, second = self.run(kafka, 20, takes_over=False, guarantee=guarantee)

        assert Outcome.FENCED is first.outcome
        assert (Outcome.DONE, 1) == (second.outcome, second.records)
        assert [cleansed(1)] == kafka.sink[B]
        assert later == kafka.committed[A]

    @pytest.mark.parametrize("guarantee", [EXACTLY, AT_LEAST])
    def test_a_lane_that_opens_again_does_not_take_its_partition_back(self, guarantee: Guarantee) -> None:
        """A commit may fail in another way than by the fence. Reopening would fence the later generation in turn."""
        kafka = FakeKafka({A: source()})
        kafka.committed = {A: self.of(self.MINE)}
        later = self.of(Owner(1, "there", "clean", 3))
        real = FakeWriter.commit

        def fail(this: FakeWriter, offset: int, metadata: str) -> None:
            if this.commits == 1:
                kafka.epochs[A], kafka.committed[A] = 99, later
                raise Transient(A, "EndTxn commit failed: Unknown broker error")
            real(this, offset, metadata)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(FakeWriter, "commit", fail)
            (receipt,) = self.run(kafka, takes_over=False, guarantee=guarantee)

        assert Outcome.FENCED is receipt.outcome
        assert (99, later) == (kafka.epochs[A], kafka.committed[A])

    @pytest.mark.parametrize("guarantee", [EXACTLY, AT_LEAST])
    def test_nor_does_an_idle_lane_that_has_not_committed(self, guarantee: Guarantee) -> None:
        """It commits only at the end of the round, so it learns of a take-over when it opens again."""
        kafka = FakeKafka({A: [], B: []})
        kafka.committed = {A: self.of(self.MINE), B: self.of(self.MINE)}
        later = self.of(Owner(1, "there", "clean", 3))

        class FailsOnce(FakeConsumer):
            def poll(self, seconds: float, most: int | None = None) -> Chunk | None:
                if kafka.committed[B] != later:
                    kafka.epochs[B], kafka.committed[B] = 99, later
                    self._failures.append(Transient(B, "reading failed"))
                return super().poll(seconds, most)

        first, second = self.run(kafka, takes_over=False, guarantee=guarantee, consumers=FailsOnce)

        assert (Outcome.DONE, Outcome.FENCED) == (first.outcome, second.outcome)
        assert (99, later) == (kafka.epochs[B], kafka.committed[B])

    @pytest.mark.parametrize("takes_over", [True, False])
    @pytest.mark.parametrize("guarantee", [EXACTLY, AT_LEAST])
    def test_what_was_taken_since_the_plan_is_not_opened(self, guarantee: Guarantee, *, takes_over: bool) -> None:
        """Spark starts a lost task again, with the plan of its round. Another task may have to wait for a slot."""
        kafka = FakeKafka({A: [], B: []})
        later = self.of(Owner(1, "there", "clean", 3))
        kafka.epochs, kafka.committed = {B: 99}, {A: self.of(self.MINE), B: later}

        first, second = self.run(kafka, takes_over=takes_over, guarantee=guarantee)

        assert (Outcome.DONE, Outcome.FENCED) == (first.outcome, second.outcome)
        assert (99, later) == (kafka.epochs[B], kafka.committed[B])

    def test_what_a_later_generation_left_before_the_plan_is_opened(self) -> None:
        """It has ended. The driver plans its partitions once it is silent."""
        kafka = FakeKafka({A: source()})
        left = kafka.committed[A] = self.of(Owner(1, "there", "clean", 3))
        planned = OffsetRange(A, left.offset, 0, metadata=left.metadata)
        clients = FakeClients(kafka, make_task_config(owner=self.MINE))

        (receipt,) = run_task(clients, planned)

        assert (Outcome.DONE, 12) == (receipt.outcome, receipt.end)

    def test_an_earlier_generation_that_goes_on_for_a_moment_ends_nothing(self) -> None:
        """Without transactions it may save once more if it looked before the claim. We continue from that offset."""
        kafka = FakeKafka({A: source()})
        kafka.committed = {A: self.of(self.OTHER, 0)}
        late = [2, 4, 11]
        real = task.Task.keep_up

        def go_on_then_keep_up(this: task.Task, *, catching_up: bool) -> None:
            if late:
                kafka.committed[A] = self.of(self.OTHER, late.pop(0))
            real(this, catching_up=catching_up)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(task.Task, "keep_up", go_on_then_keep_up)
            (receipt,) = self.run(kafka, guarantee=AT_LEAST)

        assert Outcome.DONE is receipt.outcome
        assert self.MINE == OffsetMetadata.parse(kafka.committed[A].metadata).owner
        assert 12 == kafka.committed[A].offset
