"""How fast a task reads its partitions under a rate, a slow sink or a memory limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import cast

import pytest

from app.errors import Transient
from app.executor import isolation, task
from app.executor.lane.ledger import Ledger, Progress
from app.executor.pacing import GROWTH, LEAST, MOST, SLOW_SECONDS, UNUSED_SECONDS, Allowance, Pacing, size
from app.executor.parse import make_parser
from app.model import CommittedOffset, OffsetRange, Partition
from app.offsets.metadata import Counts, OffsetMetadata
from app.rates import BUFFER_MEMORY, UNLIMITED, Rates
from app.records import OutgoingRecord
from tests.fakes import (
    FakeClients,
    FakeClock,
    FakeConsumer,
    FakeKafka,
    FakeTransaction,
    FakeWriter,
    SourceRecord,
    make_assignment,
    make_task_config,
)
from tests.fakes.driver import forget
from tests.fakes.parsers import NotIsolated
from tests.fakes.tasks import run_task

A, B = Partition("raw", 0), Partition("raw", 3)
SECONDS = 60
PLENTY = 20_000


class WatchedConsumer(FakeConsumer):
    """A consumer that records the size of each poll, and how often it was started."""

    def __init__(self, clients: FakeClients, most: int) -> None:
        super().__init__(clients, most)
        self.asked: set[int | None] = set()
        self.asked_last: int | None = None
        self.starts = 0

    def start(self, partition: Partition, offset: int, epoch: int = -1) -> None:
        self.starts += 1
        super().start(partition, offset, epoch)

    def poll(self, seconds: float, most: int | None = None) -> object:  # type: ignore[override]
        self.asked.add(most)
        self.asked_last = most
        return super().poll(seconds, most)


def cleanse(
    kafka: FakeKafka,
    rates: Rates,
    *ranges: OffsetRange,
    chunk: int = 1_000,
    writers: Callable[[FakeClients, Partition], FakeWriter] | None = None,
) -> tuple[WatchedConsumer, dict[str, int]]:
    """Run a task for a minute; return its consumer, and how many records of each partition it committed."""
    consumers = partial(WatchedConsumer, most=chunk)
    clients = FakeClients(kafka, make_task_config(rates=rates), writers=writers, consumers=consumers)
    receipts = run_task(clients, *ranges, seconds=SECONDS)
    assert all(receipt.balances for receipt in receipts)
    (consumer,) = clients.made
    assert isinstance(consumer, WatchedConsumer)
    return consumer, {str(receipt.partition): receipt.records for receipt in receipts}


def rubbish(records: int) -> list[SourceRecord | None]:
    return [SourceRecord(b"x")] * records


@pytest.mark.parametrize("rate", [1, 7, 40, 170])
@pytest.mark.parametrize("chunk", [3, 1_000])
def test_each_partition_is_read_at_its_rate(rate: int, chunk: int) -> None:
    """Within 5 % over a minute, whatever a poll returns, and independently of the others."""
    kafka = FakeKafka({A: rubbish(PLENTY), B: rubbish(PLENTY)})

    _, records = cleanse(kafka, Rates(rate), OffsetRange(A, None, 0), OffsetRange(B, None, 0), chunk=chunk)

    expected = min(rate, 5 * chunk) * SECONDS  # the fake brings a chunk five times a second
    assert records == {str(each): pytest.approx(expected, rel=0.05) for each in (A, B)}


def test_nothing_is_limited_by_default() -> None:
    """Polls return as much as the consumer prefers, and no partition is ever held."""
    kafka = FakeKafka({A: rubbish(PLENTY)})

    consumer, records = cleanse(kafka, Rates(), OffsetRange(A, None, 0))

    assert ({None}, 1, PLENTY) == (consumer.asked, consumer.starts, records[str(A)])


def test_a_partition_below_its_rate_is_never_held() -> None:
    kafka = FakeKafka({A: rubbish(PLENTY)})

    consumer, records = cleanse(kafka, Rates(PLENTY), OffsetRange(A, None, 0), chunk=50)

    assert 1 == consumer.starts
    assert records[str(A)] == pytest.approx(50 * 5 * SECONDS, rel=0.02)


class TestInitialRate:
    """The rate for the records that were waiting when the group started on a partition."""

    RATE, BACKLOG = 20, 400  # so it takes 20 s

    def test_the_backlog_is_read_slowly_and_the_rest_is_not(self) -> None:
        """Records that came after the plan are not part of the backlog, so a live stream cannot outrun it for ever."""
        kafka = FakeKafka({A: rubbish(PLENTY)})

        consumer, records = cleanse(
            kafka, Rates(initial=self.RATE), OffsetRange(A, None, 0, backlog=self.BACKLOG), chunk=30
        )

        slow = self.BACKLOG / self.RATE
        assert records[str(A)] == pytest.approx(self.BACKLOG + (SECONDS - slow) * 30 * 5, rel=0.05)
        assert {self.RATE // 2, None} == consumer.asked

    def test_the_lower_of_two_rates_applies(self) -> None:
        """After the backlog, `max.rate.per.partition` applies."""
        kafka = FakeKafka({A: rubbish(PLENTY)})

        _, records = cleanse(kafka, Rates(50, self.RATE), OffsetRange(A, None, 0, backlog=self.BACKLOG))

        slow = self.BACKLOG / self.RATE
        assert records[str(A)] == pytest.approx(self.BACKLOG + (SECONDS - slow) * 50, rel=0.05)

    def test_it_slows_no_other_partition(self) -> None:
        """While the backlog rests, polls for the others are as large as ever."""
        kafka = FakeKafka({A: rubbish(PLENTY), B: rubbish(PLENTY)})
        counts = Counts(records=7, dead={"empty": 7}, committed=1)
        kafka.committed[B] = CommittedOffset(7, str(OffsetMetadata("id", 7, counts)))
        live = OffsetRange(B, 7, 7, topic_id="id")

        _, records = cleanse(kafka, Rates(initial=1), OffsetRange(A, None, 0, backlog=PLENTY), live, chunk=50)

        assert records[str(B)] > 10_000, "and not as few in a poll as of the backlog"

    def test_it_goes_on_in_the_next_task(self) -> None:
        """The end of the backlog is stored with the offset, so newer records do not become backlog after a restart."""
        kafka = FakeKafka({A: rubbish(PLENTY)})
        cleanse(kafka, Rates(initial=5), OffsetRange(A, None, 0, backlog=self.BACKLOG))
        begun = kafka.committed[A].offset
        assert 5 * SECONDS == pytest.approx(begun, rel=0.05)

        _, records = cleanse(kafka, Rates(initial=5), OffsetRange(A, begun, begun, backlog=PLENTY), chunk=30)

        slow = (self.BACKLOG - begun) / 5
        assert records[str(A)] == pytest.approx((SECONDS - slow) * 30 * 5, rel=0.1)

    def test_it_goes_on_in_the_next_round_without_a_store(self) -> None:
        """The driver tells the next task what the last one has reported."""
        kafka = FakeKafka({A: rubbish(PLENTY)})
        cleanse(kafka, Rates(initial=5), OffsetRange(A, None, 0, backlog=self.BACKLOG))
        planned = forget(kafka, A)

        _, records = cleanse(kafka, Rates(initial=5), planned, chunk=30)

        slow = (self.BACKLOG - planned.start) / 5
        assert PLENTY == planned.backlog
        assert records[str(A)] == pytest.approx((SECONDS - slow) * 30 * 5, rel=0.1)

    @pytest.mark.parametrize(
        ("counts", "slow"),
        [(Counts(records=7, dead={"empty": 7}, committed=1), False), (Counts(), True)],
    )
    def test_an_offset_that_a_person_has_set_begins_with_a_backlog(self, counts: Counts, slow: bool) -> None:
        """It has no counts yet. If a task has counted, the group started long ago."""
        kafka = FakeKafka({A: rubbish(PLENTY)})
        kafka.committed[A] = CommittedOffset(7, str(OffsetMetadata("id", 7, counts)))

        _, records = cleanse(kafka, Rates(initial=5), OffsetRange(A, 7, 7, topic_id="id", backlog=PLENTY), chunk=30)

        assert slow == (records[str(A)] < 6 * SECONDS)


def size_of(records: int) -> int:
    """Return how much memory this many bad records take."""
    return size(Counts(records=records, bytes_in=records))


def a_lane(taken: Counts) -> Ledger:
    """Make a lane of `A` that has taken these."""
    return cast("Ledger", SimpleNamespace(partition=A, progress=Progress(open=taken)))


class SlowWriter(FakeTransaction):
    """A writer whose commit takes as long as its sink needs, and gives up after ten seconds."""

    PER_SECOND = 2_000
    sizes: list[int]
    failures: list[int]

    def __init__(self, clients: FakeClients, partition: Partition) -> None:
        super().__init__(clients, partition)
        self._clock = clients.clock

    def commit(self, offset: int, metadata: str) -> None:
        size = len(self._dead_letters)
        self._clock.now += min(10.0, size / self.PER_SECOND)
        if size > 10 * self.PER_SECOND:
            self.failures.append(size)
            raise Transient(self._partition, f"{size} records were not acknowledged")
        self.sizes.append(size)
        super().commit(offset, metadata)


class TestSlowSink:
    def test_transactions_become_as_small_as_the_sink_is_slow(self) -> None:
        """The first is far too large; after it none takes much longer than it should."""
        SlowWriter.sizes, SlowWriter.failures = [], []
        kafka = FakeKafka({A: rubbish(100_000)})

        consumer, records = cleanse(kafka, Rates(), OffsetRange(A, None, 0), chunk=25_000, writers=SlowWriter)

        assert 1 >= len(SlowWriter.failures)
        assert max(SlowWriter.sizes) <= GROWTH * SLOW_SECONDS * SlowWriter.PER_SECOND
        assert records[str(A)] >= 0.5 * SlowWriter.PER_SECOND * (SECONDS - 20)
        assert len(kafka.dead[A]) == kafka.committed[A].offset, "what failed is read again"
        assert {None} < consumer.asked, "a poll brings no more than a transaction takes"

    def test_quick_commits_forget_it(self) -> None:
        """A sink that was slow or unavailable once costs only seconds."""
        allowance = Allowance()
        allowance.failed(MOST // 5, 10.0)
        assert MOST // 50 == allowance.bytes

        commits = 0
        while (most := allowance.bytes) is not None:
            allowance.committed(most, 0.1)
            commits += 1

        assert 8 <= commits <= 12

    def test_a_long_commit_interval_does_not_delay_that(self) -> None:
        """An allowance grows with each commit, and only a control partition has one each second."""
        kafka = FakeKafka({A: [], B: rubbish(3_000)})
        task_config, clock = make_task_config(commit_seconds=60.0), FakeClock()
        clients = FakeClients(kafka, task_config, clock, consumers=partial(FakeConsumer, most=1_000))
        assignment = make_assignment(task_config, OffsetRange(A, None, 0), OffsetRange(B, None, 0))

        _, receipt = task.run(
            replace(assignment, allowances={B: LEAST}), clients, make_parser(task_config), 30, clock.runtime
        )

        assert 3_000 == receipt.records

    def test_it_does_not_grow_by_what_it_did_not_limit(self) -> None:
        """A few records committed quickly prove nothing."""
        allowance = Allowance()
        allowance.committed(1_000_000, 2 * SLOW_SECONDS)
        assert 500_000 == allowance.bytes

        allowance.committed(499_999, 0.1)

        assert 500_000 == allowance.bytes

    def test_a_slow_commit_of_little_shrinks_it_too(self) -> None:
        """But never so far that an outage leaves nothing, and never by more than there was."""
        allowance = Allowance()
        allowance.committed(10 * MOST, 10.0)
        before = allowance.bytes
        assert before is not None
        allowance.committed(before // 2, SLOW_SECONDS + 0.1)
        assert (allowance.bytes or 0) < before
        for _ in range(9):
            allowance.failed(LEAST, 10.0)

        assert LEAST == allowance.bytes

    def test_a_quick_failure_says_nothing_about_the_sink(self) -> None:
        """Waiting would not help against a refused record."""
        allowance = Allowance()

        allowance.failed(MOST, SLOW_SECONDS)
        allowance.committed(MOST, SLOW_SECONDS)

        assert allowance.bytes is None

    def test_a_full_queue_that_does_not_empty_shows_it_too(self) -> None:
        """Such a lane never reaches a commit, and would fill its next producer as well."""
        taken, clock = Counts(records=1_000, bytes_in=1_000_000), FakeClock()
        pacing = Pacing(UNLIMITED, BUFFER_MEMORY, {}, clock)

        with suppress(Transient), pacing.delivering(a_lane(taken)):
            clock.now += 10.0
            raise Transient(A, "nothing could be delivered")

        assert size(taken) // 10 == pacing.allowance(A)

    @pytest.mark.parametrize(
        ("records", "known", "limited"),
        [
            pytest.param(0, {}, False, id="a slow heartbeat"),
            pytest.param(5, {}, True, id="a slow commit of little"),
            pytest.param(0, {B: LEAST}, True, id="nothing since an earlier task"),
        ],
    )
    def test_a_quiet_partition_limits_the_others_for_seconds_at_most(
        self, records: int, known: dict[Partition, int], limited: bool
    ) -> None:
        """It never takes enough to show that its sink is fast again, and each poll of the task is limited with it."""

        class SlowOnce(FakeTransaction):
            def commit(self, offset: int, metadata: str) -> None:
                if self._partition == B and self.commits == 0:
                    clock.now += 3.0
                super().commit(offset, metadata)

        kafka = FakeKafka({A: rubbish(1_000), B: rubbish(records)})
        kafka.committed = {A: CommittedOffset(0), B: CommittedOffset(0)}
        task_config, clock = make_task_config(), FakeClock()
        consumers = partial(WatchedConsumer, most=1_000)
        clients = FakeClients(kafka, task_config, clock, writers=SlowOnce, consumers=consumers)
        assignment = make_assignment(task_config, OffsetRange(B, 0, 0), OffsetRange(A, 0, 0))  # B has the heartbeat
        receipts = task.run(replace(assignment, allowances=known), clients, make_parser(task_config), 30, clock.runtime)

        (consumer,) = clients.made
        assert isinstance(consumer, WatchedConsumer)
        assert limited == (consumer.asked != {None})
        assert consumer.asked_last is None
        assert [None, None] == [receipt.allowance for receipt in receipts]

    def test_an_allowance_in_use_is_kept(self) -> None:
        """However long the partition rests until it commits, or waits for its sink."""
        allowance, rests_until, now = Allowance(), 100.0, 0.0
        allowance.committed(1_000_000, 2 * SLOW_SECONDS)
        assert 500_000 == allowance.room(0, now)
        assert 0 == allowance.room(500_000, rests_until)
        assert 500_000 == allowance.room(0, rests_until)
        now = rests_until + UNUSED_SECONDS

        allowance.failed(500_000, 2 * SLOW_SECONDS)

        assert 125_000 == allowance.room(0, now + 1)
        assert 125_000 == allowance.bytes

    @pytest.mark.parametrize(
        ("dead", "known", "records"),
        [(False, {}, 5_000), (False, {A: 2_570}, 10), (True, {}, LEAST // 256), (True, {A: 2_570}, 10)],
    )
    def test_what_is_known_at_the_beginning(
        self, dead: bool, known: dict[Partition, int], records: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What the last task learned. After workers have died, a slow sink is a suspect."""
        SlowWriter.sizes, SlowWriter.failures = [], []
        monkeypatch.setattr(isolation, "isolated", NotIsolated)
        task_config, clock = make_task_config(), FakeClock()
        clients = FakeClients(
            FakeKafka({A: rubbish(PLENTY)}),
            task_config,
            clock,
            writers=SlowWriter,
            consumers=partial(FakeConsumer, most=5_000),
        )
        assignment = replace(make_assignment(task_config, OffsetRange(A, None, 0)), isolate=dead, allowances=known)

        (receipt,) = task.run(assignment, clients, make_parser(task_config), 10, clock.runtime)

        assert records == max(SlowWriter.sizes[:3])
        assert size_of(500) < (receipt.allowance or 0) < size_of(10_000), "and the next task learns it from us"


class Stuck(FakeTransaction):
    """A writer; Kafka acknowledges nothing to that of `B`."""

    writers: list[Stuck]
    most: int

    def __init__(self, clients: FakeClients, partition: Partition) -> None:
        super().__init__(clients, partition)
        self._acknowledged = 0
        self.writers.append(self)

    @property
    def waiting(self) -> int:
        return len(self._dead_letters) - self._acknowledged

    def _send_dead_letters(self, dead_letters: Sequence[OutgoingRecord]) -> None:
        super()._send_dead_letters(dead_letters)
        Stuck.most = max(Stuck.most, sum(writer.waiting for writer in self.writers))

    def _commit(self, at: CommittedOffset) -> None:
        super()._commit(at)
        self._acknowledged = 0

    def free(self) -> None:
        if self._partition != B:
            self._acknowledged = len(self._dead_letters)


@pytest.mark.parametrize(("chunk", "most"), [(100, 1_450), (5_000, 10_250)])
def test_a_task_holds_no_more_than_its_memory(chunk: int, most: int) -> None:
    """Apart from each partition's share and a chunk. One that fills it with unacknowledged records starves no other."""
    Stuck.writers, Stuck.most = [], 0
    records = 1_000
    kafka = FakeKafka({A: rubbish(PLENTY), B: rubbish(PLENTY)})
    task_config = make_task_config(buffer_memory=size_of(records), commit_seconds=1_000.0)
    clients = FakeClients(kafka, task_config, writers=Stuck, consumers=partial(FakeConsumer, most=chunk))
    ranges = OffsetRange(A, None, 0), OffsetRange(B, None, 0)

    flowing, stuck = run_task(clients, *ranges, seconds=SECONDS)

    assert Stuck.most <= most
    assert stuck.records <= records + 2 * chunk  # the first chunk is committed at once
    assert flowing.records > 10_000
