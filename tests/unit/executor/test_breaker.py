"""The circuit breaker keeps a wrong parser from draining good data into the dead letters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from app.errors import TooManyDeadLetters
from app.executor import task
from app.executor.breaker import CircuitBreaker
from app.executor.cleanse import Cleansed
from app.executor.lane.ledger import Progress
from app.executor.parse import make_parser
from app.model import Attempt, CommittedOffset, Guarantee, OffsetRange, Outcome, Owner, Partition, Receipt
from app.offsets.metadata import Counts, OffsetMetadata
from app.rates import BreakerLimit, Window
from app.records import Lines, OutgoingRecord
from tests.fakes import (
    FakeClients,
    FakeClock,
    FakeKafka,
    FakeOffsets,
    Mishap,
    Point,
    Script,
    SourceRecord,
    Trouble,
    make_assignment,
    make_task_config,
)
from tests.independent import cleansed, line

A, B = Partition("raw", 0), Partition("raw", 3)
ME = Owner(5, "here", "clean")
RESTARTED = Owner(9, "here", "clean")
EARLIER = str(OffsetMetadata("", 0, Counts(40, 40), owner=Owner(4, "here", "clean")))
HALF = BreakerLimit(0.5, minimum=20, seconds=60)


def good(records: int) -> list[SourceRecord | None]:
    return [SourceRecord(line(n)) for n in range(records)]


def bad(records: int) -> list[SourceRecord | None]:
    return [SourceRecord(b"rubbish")] * records


def cleanse(
    kafka: FakeKafka,
    limit: BreakerLimit | None,
    guarantee: Guarantee = Guarantee.EXACTLY_ONCE,
    *,
    clients: type[FakeClients] = FakeClients,
    script: Script | None = None,
    owner: Owner = ME,
    after: Receipt | None = None,
    attempt: int = 0,
    seconds: float = 60,
) -> dict[Partition, Receipt]:
    task_config, clock = make_task_config(guarantee, breaker=limit, owner=owner), FakeClock()
    places = {each: kafka.committed[each].offset if each in kafka.committed else None for each in kafka.source}
    ranges = (OffsetRange(each, offset, offset or 0) for each, offset in places.items())
    made = clients(kafka, task_config, clock, script)
    windows = {} if after is None else {after.partition: after.window}
    assignment = replace(make_assignment(task_config, *ranges), windows=windows, attempt=Attempt(1, 0, attempt))
    receipts = task.run(assignment, made, make_parser(task_config), seconds, clock.runtime)
    return {receipt.partition: receipt for receipt in receipts}


class TestTask:
    def test_a_partition_with_too_many_dead_letters_is_blocked(self) -> None:
        """The error gives the counts, the reason and the cure; the other partition runs to its end."""
        kafka = FakeKafka({A: [*good(40), *bad(400)], B: [*good(300), *bad(100)]})

        receipts = cleanse(kafka, HALF)

        blocked, other = receipts[A], receipts[B]
        assert (Outcome.BLOCKED, True) == (blocked.outcome, blocked.tripped)
        assert "records within 60 s were rejected (most recently: 'no_marker')" in blocked.error
        assert "dead.letters.breaker.ratio allows 50.0%" in blocked.error
        assert "winnow offsets reset" in blocked.cure
        assert (Outcome.DONE, 400, False) == (other.outcome, other.records, other.tripped)

    def test_nothing_counts_half(self) -> None:
        """The open transaction is aborted, so sink, dead letters and offset agree."""
        kafka = FakeKafka({A: [*good(40), *bad(400)]})

        (receipt,) = cleanse(kafka, HALF).values()

        assert 40 < receipt.end == kafka.committed[A].offset <= 80
        assert [cleansed(n) for n in range(40)] == kafka.sink[A]
        assert receipt.end - 40 == len(kafka.dead[A]) == receipt.dead["no_marker"]
        assert receipt.balances

    @pytest.mark.parametrize("guarantee", list(Guarantee))
    def test_the_offset_says_why(self, guarantee: Guarantee) -> None:
        """`winnow lag` can show the reason without the service until another task continues; counts and offset stay."""
        kafka = FakeKafka({A: [*good(40), *bad(400)], B: good(40)})

        receipt = cleanse(kafka, HALF, guarantee)[A]

        found = OffsetMetadata.parse(kafka.committed[A].metadata)
        assert f"{receipt.error}: {receipt.cure}" == found.blocked
        assert (receipt.end, receipt.records) == (kafka.committed[A].offset, found.counts.records)
        assert not OffsetMetadata.parse(kafka.committed[B].metadata).blocked

        cleanse(kafka, None, guarantee, owner=RESTARTED)

        assert 440 == kafka.committed[A].offset
        assert not OffsetMetadata.parse(kafka.committed[A].metadata).blocked

    @pytest.mark.parametrize("guarantee", list(Guarantee))
    def test_a_lost_receipt_releases_nothing(self, guarantee: Guarantee) -> None:
        """If the worker dies, or the round's receipts are lost, the next task of this run finds the reason again."""
        kafka = FakeKafka({A: [*good(40), *bad(400)]})
        first = cleanse(kafka, HALF, guarantee)[A]
        before = kafka.committed[A], len(kafka.dead[A])

        again = cleanse(kafka, HALF, guarantee)[A]

        assert (Outcome.BLOCKED, True, first.end, 0) == (again.outcome, again.tripped, again.end, again.records)
        assert (first.error, first.cure) == (again.error, again.cure)
        assert before == (kafka.committed[A], len(kafka.dead[A]))

    @pytest.mark.parametrize("guarantee", list(Guarantee))
    def test_the_window_goes_on_in_the_next_task(self, guarantee: Guarantee) -> None:
        """At least once, a round is shorter than the usual window; exactly once, whatever ends it would empty it."""
        kafka = FakeKafka({A: bad(15)})
        first = cleanse(kafka, HALF, guarantee, seconds=25)[A]
        kafka.source[A] += bad(4)
        second = cleanse(kafka, HALF, guarantee, after=first, seconds=25)[A]
        kafka.source[A] += bad(1)

        third = cleanse(kafka, HALF, guarantee, after=second)[A]

        assert [Outcome.DONE, Outcome.DONE, Outcome.BLOCKED] == [each.outcome for each in (first, second, third)]
        assert "20 of 20 records" in third.error
        assert 19 == kafka.committed[A].offset == len(kafka.dead[A])

    def test_a_retried_task_begins_with_an_empty_window(self) -> None:
        """Its window would be minutes old, and without what an earlier attempt has committed."""
        kafka = FakeKafka({A: bad(15)})
        first = cleanse(kafka, HALF, seconds=25)[A]
        kafka.source[A] += bad(15)

        retried = cleanse(kafka, HALF, after=first, attempt=1)[A]

        assert (Outcome.DONE, 15) == (retried.outcome, sum(records for _, records, _ in retried.window))

    def test_a_partition_that_an_operator_moved_on_begins_with_an_empty_window(self) -> None:
        """Also if the receipt of the task that tripped was lost: the next one finds the trip, and forgets its window."""
        kafka = FakeKafka({A: bad(15)})
        first = cleanse(kafka, HALF, seconds=25)[A]
        kafka.source[A] += bad(15)
        tripped = cleanse(kafka, HALF, after=first)[A]
        found = cleanse(kafka, HALF, after=first)[A]
        kafka.committed[A] = CommittedOffset(20)

        moved = cleanse(kafka, HALF, after=found)[A]

        assert (True, (), True, ()) == (tripped.tripped, tripped.window, found.tripped, found.window)
        assert (Outcome.DONE, 10) == (moved.outcome, moved.records)

    @pytest.mark.parametrize("guarantee", list(Guarantee))
    @pytest.mark.parametrize("metadata", ["", EARLIER], ids=["a person", "an earlier run"])
    def test_the_offset_of_somebody_before_us_says_why(self, metadata: str, guarantee: Guarantee) -> None:
        """A service that starts with a wrong parser has committed nothing when it is stopped."""
        kafka = FakeKafka({A: [*good(40), *bad(400)]})
        kafka.committed[A] = CommittedOffset(40, metadata)

        receipt = cleanse(kafka, BreakerLimit(0.5, minimum=1, seconds=60), guarantee)[A]

        found = OffsetMetadata.parse(kafka.committed[A].metadata)
        assert (40, f"{receipt.error}: {receipt.cure}") == (kafka.committed[A].offset, found.blocked)
        assert (ME, OffsetMetadata.parse(metadata).counts) == (found.owner, found.counts)

    @pytest.mark.parametrize("point", [Point.BEFORE_OPEN, Point.AFTER_OPEN])
    def test_who_cannot_say_why_is_blocked_all_the_same(self, point: Point) -> None:
        """If Kafka is unavailable just then, nothing is written, and the partition is blocked anyway."""
        kafka = FakeKafka({A: [*good(40), *bad(400)]})

        (receipt,) = cleanse(kafka, HALF, script=Script([Mishap(point, Trouble.TRANSIENT, 2)])).values()

        assert (Outcome.BLOCKED, True) == (receipt.outcome, receipt.tripped)
        assert not OffsetMetadata.parse(kafka.committed[A].metadata).blocked

    def test_another_owner_is_left_alone(self) -> None:
        """It judges the partition itself, and must not be fenced just to store a reason."""
        kafka = FakeKafka({A: [*good(40), *bad(400)]})

        class TakenOver(FakeOffsets):
            def load(self, partitions: Iterable[Partition], *, stable: bool) -> dict[Partition, CommittedOffset]:
                other = str(OffsetMetadata(owner=Owner(9, "there", "clean")))
                found = super().load(partitions, stable=stable)
                return {each: CommittedOffset(at.offset, other) for each, at in found.items()}

        class TheirClients(FakeClients):
            def offsets(self) -> FakeOffsets:
                return TakenOver(self.kafka)

        assert Outcome.BLOCKED is cleanse(kafka, HALF, clients=TheirClients)[A].outcome
        assert {A: 1} == kafka.epochs

    @pytest.mark.parametrize("guarantee", list(Guarantee))
    @pytest.mark.parametrize("refused", [None, cleansed(0)], ids=["sink outage", "refused line"])
    def test_what_is_taken_again_counts_once(self, refused: bytes | None, guarantee: Guarantee) -> None:
        """A lane takes its records again after each failed commit, and in the search for a line that Kafka refuses."""
        kafka = FakeKafka({A: [*good(2), *bad(17)]})
        kafka.refuses_line = lambda value: value == refused
        fails = [Mishap(Point.BEFORE_COMMIT, Trouble.TRANSIENT, times) for times in range(2, 6)]

        (receipt,) = cleanse(kafka, HALF, guarantee, script=Script([] if refused else fails)).values()

        assert (Outcome.DONE, 19) == (receipt.outcome, receipt.records), "fewer than the breaker's minimum"
        assert receipt.error

    def test_any_number_may_come_by_default(self) -> None:
        """Dead letters lose nothing and can be replayed; blocking partitions is opt-in."""
        kafka = FakeKafka({A: bad(400)})

        (receipt,) = cleanse(kafka, None).values()

        assert (Outcome.DONE, 400, False) == (receipt.outcome, len(kafka.dead[A]), receipt.tripped)


def some(records: int, dead: int) -> Cleansed:
    values: pa.BinaryArray = pa.array([], pa.binary())
    lines = Lines(values, np.zeros(0, np.int32), values, np.zeros(0, np.int64))
    letters: Sequence[OutgoingRecord] = [OutgoingRecord(None, None, (), 0)] * dead
    return Cleansed(records, 0, lines, 0, letters, ["empty"] * dead, 0, 0)


class TestWindow:
    def setup_method(self) -> None:
        """Make a breaker that allows half of at least 20 records within a minute."""
        self.clock = FakeClock()
        self.breaker = CircuitBreaker(HALF, {}, self.clock)
        self.progress = {A: Progress(), B: Progress()}

    def judge(self, partition: Partition, cleansed: Cleansed) -> None:
        """Judge some records, and take them if they pass."""
        self.breaker.judge(partition, self.progress[partition], cleansed)
        self.progress[partition] = self.progress[partition].taken(cleansed.counts)

    def test_the_ratio_itself_is_allowed(self) -> None:
        self.judge(A, some(100, 50))

        with pytest.raises(TooManyDeadLetters, match="51 of 101 records within 60 s"):
            self.judge(A, some(1, 1))

    def test_few_records_are_not_judged(self) -> None:
        self.judge(A, some(19, 19))

        with pytest.raises(TooManyDeadLetters):
            self.judge(A, some(1, 0))

    def test_partitions_are_judged_apart(self) -> None:
        """Good lines of one partition do not offset bad lines of another."""
        self.judge(B, some(1_000, 0))

        with pytest.raises(TooManyDeadLetters):
            self.judge(A, some(20, 20))

    def test_what_is_older_than_the_window_does_not_count(self) -> None:
        """Last week's good records do not hide that all are bad now."""
        self.judge(A, some(1_000_000, 0))
        self.clock.now += HALF.seconds + 1

        with pytest.raises(TooManyDeadLetters, match="20 of 20"):
            self.judge(A, some(20, 20))

    def test_what_is_younger_counts(self) -> None:
        """In however many parts it came; few slices are kept."""
        for _ in range(1_000):
            self.clock.now += HALF.seconds / 1_100
            self.judge(A, some(10, 5))

        with pytest.raises(TooManyDeadLetters, match="5001 of 10001"):
            self.judge(A, some(1, 1))
        assert len(self.breaker._windows[A]) < 30

    def test_what_was_dropped_counts_again_when_it_comes_again(self) -> None:
        """Its time is that of the last try, and its first try leaves nothing in the window."""
        self.judge(A, some(10, 0))
        committed = self.progress[A] = self.progress[A].committed()
        self.judge(A, some(1, 1))
        for _ in range(3):
            self.clock.now += HALF.seconds / 3 + 1
            self.judge(A, some(8, 8))
            self.progress[A] = committed.resolved(0)

        with pytest.raises(TooManyDeadLetters, match="20 of 20"):
            self.judge(A, some(20, 20))

    def test_another_task_goes_on_with_the_window(self) -> None:
        """It is passed on by age, because another machine's clock differs, and in few slices, of which the old end."""
        for _ in range(1_000):
            self.clock.now += HALF.seconds / 500
            self.judge(A, some(1, 0))
            self.pass_on()
        self.clock.now += HALF.seconds / 2
        self.judge(A, some(18, 18))

        assert len(self.pass_on()) <= 20

        self.clock.now += HALF.seconds / 2 + 1
        self.judge(A, some(1, 1))
        with pytest.raises(TooManyDeadLetters, match="20 of 20"):
            self.judge(A, some(1, 1))

    def test_nothing_is_passed_on_of_an_idle_partition(self) -> None:
        self.judge(A, some(5, 5))
        self.clock.now += HALF.seconds + 1

        assert () == self.pass_on()

    def pass_on(self) -> Window:
        """Let a task on another machine go on; return what it begins with."""
        done = self.progress[A].committed().done
        window = self.breaker.window(Receipt(A, 0, 0, done.records, dead=done.dead))
        self.clock, self.progress[A] = FakeClock(), Progress()
        self.clock.now = 5_000.0
        self.breaker = CircuitBreaker(HALF, {A: window}, self.clock)
        return window
