"""A lane, step by step: when it reopens, where it starts, what it keeps, and what it reports."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import inf

import numpy as np
import pyarrow as pa
import pytest
from structlog.testing import capture_logs

from app.errors import Blocked, Fenced, OffsetMoved, PartitionError, Refused, Transient, Undelivered
from app.executor.cleanse import Cleansed
from app.executor.lane.lane import Lane
from app.executor.lane.search import FAILURES_IN_A_ROW
from app.executor.lane.states import Closed, Ended, Opened, Ready, State
from app.model import CommittedOffset, LastRead, OffsetRange, Outcome, Partition, Receipt
from app.offsets.metadata import Counts, OffsetMetadata
from app.records import Lines, OutgoingRecord
from tests.fakes import FakeClients, FakeClock, FakeKafka, FakeTransaction, make_task_config

A = Partition("raw", 0)
AWAY = Transient(A, "the broker is away")


class CountingWriter(FakeTransaction):
    """A writer that counts the calls that send, and records whether it was abandoned."""

    rests = lines = dead_letters = 0
    abandoned = False

    def abandon(self) -> None:
        self.abandoned = True

    def send_rest(self) -> None:
        self.rests += 1

    def send(self, lines: Lines) -> None:
        self.lines += 1
        super().send(lines)

    def send_dead_letters(self, dead_letters: Sequence[OutgoingRecord]) -> None:
        self.dead_letters += 1
        super().send_dead_letters(dead_letters)


class LaneHarness:
    """A lane and its Kafka."""

    def __init__(self, offset_range: OffsetRange, committed: int | None = None) -> None:
        self.kafka = FakeKafka({A: []})
        if committed is not None:
            self.kafka.committed[A] = CommittedOffset(committed)
        self.writers: list[CountingWriter] = []
        self.now = 100.0
        self.clients = FakeClients(self.kafka, make_task_config(), FakeClock(), writers=self._writer)
        self.consumer = self.clients.consumer()
        self.lane = Lane(offset_range, self.consumer)

    def _writer(self, clients: FakeClients, partition: Partition) -> CountingWriter:
        self.writers.append(CountingWriter(clients, partition))
        return self.writers[-1]

    def open(self) -> Lane:
        """Open and begin the lane, as its task does, if it waits for that."""
        if isinstance(closed := self.lane.state, Closed):
            opened = closed.open(self.clients, self.clients.offsets())
            self.lane.state = opened.begin(self.kafka.committed.get(A), self.now)
        self.read()
        return self.lane

    @property
    def ready(self) -> Ready:
        """The lane's state, which accepts records."""
        assert self.lane.ready is not None
        return self.lane.ready

    def read(self) -> None:
        """Let the lane read if it is ready, as its task does between two chunks."""
        if self.lane.ready is None:
            self.lane.hold()
        else:
            self.lane.ready.read()

    def commit(self) -> None:
        """Let the lane commit, in a call that succeeds."""
        ended: list[State] = []

        def commit() -> State:
            ended.append(self.ready.commit(self.now))
            return ended[0]

        self.lane.run(commit, lambda: self.now)
        assert ended

    def receipt(self) -> Receipt:
        """Return what the lane has to report now."""
        state = self.lane.state
        return (state if isinstance(state, Ended) else Ended(state.ledger, outcome=Outcome.DONE)).receipt()

    def reopens(self, now: float) -> bool:
        """Whether the lane's back-off is over."""
        return isinstance(self.lane.state, Closed) and self.lane.state.reopens(now)

    def take(self, count: int, read: LastRead | None = None, start: int | None = None) -> None:
        """Let the lane take this many records from its position or `start`, the last of which is `read`."""
        first = self.lane.ledger.position if start is None else start
        values = pa.array([b"line"] * count, pa.binary())
        lines = Lines(values, np.arange(count, dtype=np.int32), values, np.zeros(count, np.int64))
        self.ready.take(Cleansed(count, 5 * count, lines, 4 * count, [], [], first, first + count, read))

    def hang_in_commit(self, *, happened: bool) -> Lane:
        """Let the lane commit, which happens on the broker or not; return the successor that replaces it meanwhile."""
        successors: list[Lane] = []
        commit = self.writers[-1].commit

        def hangs(offset: int, metadata: str) -> None:
            if happened:
                commit(offset, metadata)
            successors.append(self.lane.successor("commit_transaction (5 s)", self.now))

        self.writers[-1].commit = hangs  # type: ignore[method-assign]
        self.commit()
        return successors[0]

    def opens_after(self, error: PartitionError = AWAY) -> float:
        """Let the lane fail; return after how many seconds it reopens."""
        self.lane.give_up(error, self.now)
        state = self.lane.state
        return state.retry_at - self.now if isinstance(state, Closed) and state.retry_at is not None else inf


def at(start: int, committed: int | None = None, end: int | None = None) -> OffsetRange:
    return OffsetRange(A, committed, start, end)


class TestTrouble:
    def test_the_pauses_between_attempts_grow_to_two_seconds(self) -> None:
        """A short outage costs little, and after a long one readers wait at most two seconds."""
        harness = LaneHarness(at(0))

        assert [0.25, 0.5, 1.0, 2.0, 2.0] == [harness.opens_after() for _ in range(5)]

    def test_a_commit_makes_the_next_pause_short(self) -> None:
        """The next error is a new one."""
        harness = LaneHarness(at(0))
        pauses = [harness.opens_after(), harness.opens_after()]
        harness.open()
        harness.commit()

        assert [0.25, 0.5, 0.25] == [*pauses, harness.opens_after()]

    def test_a_lane_opens_again_when_its_pause_is_over(self) -> None:
        """Neither before nor while it runs. Each attempt is counted."""
        harness = LaneHarness(at(0))
        harness.open()
        assert not harness.reopens(harness.now)

        harness.opens_after()

        assert not harness.reopens(harness.now + 0.24)
        assert harness.reopens(harness.now + 0.25)
        harness.open()
        assert not harness.reopens(harness.now + 60)
        assert 1 == harness.receipt().reopened

    @pytest.mark.parametrize("error", [Fenced(A, "a newer epoch"), OffsetMoved(A, "the offset went back", 3)])
    def test_a_lane_that_lost_its_partition_does_not_open_again(self, error: PartitionError) -> None:
        """Its outcome stays, whatever else fails while it ends."""
        harness = LaneHarness(at(0))
        harness.open()

        assert inf == harness.opens_after(error)
        outcome = harness.receipt().outcome
        assert inf == harness.opens_after()
        harness.lane.finish()

        assert (Outcome.FENCED if isinstance(error, Fenced) else Outcome.FAILED) is outcome
        assert outcome is harness.receipt().outcome

    @pytest.mark.parametrize(
        ("error", "stop", "last_pause", "refusal"),
        [
            (AWAY, None, 1.0, None),
            (Undelivered(A, "not acknowledged in time"), 1, 1.0, None),
            (Refused(A, "the broker does not like it"), 1, 0.0, "the broker does not like it"),
        ],
    )
    def test_only_a_refusal_blames_a_record(
        self, error: PartitionError, stop: int | None, last_pause: float, refusal: str | None
    ) -> None:
        """A search sends half of the records; it pauses if they may be delivered later."""
        harness, pauses = LaneHarness(at(0), committed=0), list[float]()
        for count in (2, 2, 2, 1):
            harness.open()
            harness.take(count)
            pauses.append(harness.opens_after(error))

        assert (stop, refusal) == (harness.lane.ledger.stop, harness.lane.ledger.refusal)
        assert [0.25, 0.5, last_pause] == pauses[:3]

    def test_a_refusal_after_an_outage_is_tried_again_after_a_pause(self) -> None:
        """Only a search for a culprit goes on at once: a new topic configuration takes a moment to reach all brokers."""
        harness, pauses = LaneHarness(at(0), committed=0), list[float]()
        for error in [Undelivered(A, "no leader")] * 3 + [Refused(A, "the broker does not like it")] * 3:
            harness.open()
            harness.take(1)
            pauses.append(harness.opens_after(error))

        assert [0.25, 0.5, 1.0, 2.0, 2.0, 0.0] == pauses

    def test_what_fails_before_records_are_sent_says_nothing_about_them(self) -> None:
        """After an outage of the whole cluster, a lane goes on as it was."""
        harness = LaneHarness(at(0), committed=0)
        harness.open()
        harness.take(4)
        for _ in range(2 * FAILURES_IN_A_ROW):
            harness.opens_after(Undelivered(A, "no broker answers"))

        assert harness.lane.ledger.stop is None

    def test_trouble_is_told_where_it_happens(self) -> None:
        """Receipts come late. The log has the offset at which the lane resumes, and the one at which trouble ended."""
        harness = LaneHarness(at(5))
        with capture_logs() as logs:
            harness.opens_after()  # before it had begun
            harness.open()
            harness.take(3)
            harness.commit()
            harness.take(1)
            harness.opens_after(Transient(A, "another error"))
            harness.opens_after(Fenced(A, "a newer epoch"))  # not trouble: another owner wants the partition

        trouble, over = "partition_trouble", "partition_trouble_over"
        assert [(trouble, 5), (over, 8), (trouble, 8)] == [(entry["event"], entry["offset"]) for entry in logs]

    @pytest.mark.parametrize("how", ["fails", "ends", "is suspect"])
    def test_every_producer_is_discarded_once(self, how: str) -> None:
        """Otherwise its transaction would stay open, and readers of the sink would wait for it."""
        harness = LaneHarness(at(0))
        harness.open()
        if how == "fails":
            harness.opens_after()
        elif how == "ends":
            harness.lane.finish()
        else:
            harness.writers[0].suspect = True
            harness.commit()
            assert harness.reopens(harness.now)
            assert 1 == harness.receipt().reopened
        for _ in range(2):
            assert isinstance(harness.lane.state, Closed | Ended)
            harness.lane.state.discard()

        assert [1] == [writer.discarded for writer in harness.writers]
        assert harness.lane.ready is None

    def test_a_lane_that_opens_again_discards_its_old_producer_first(self) -> None:
        """Two producers of one partition would fence each other."""
        harness = LaneHarness(at(0))
        harness.open()
        harness.opens_after()
        harness.open()

        assert [1, 0] == [writer.discarded for writer in harness.writers]

    def test_a_lane_that_has_ended_is_read_no_more(self) -> None:
        """Its fetched records would take room from the others."""
        harness = LaneHarness(at(0))
        harness.open().finish()

        assert {} == harness.consumer.reading

    @pytest.mark.parametrize("how", ["takes", "passes over"])
    def test_a_search_holds_its_lane_at_its_stop(self, how: str) -> None:
        """What follows was dropped. The partition is read again from there once the commit has set the next stop."""
        harness = LaneHarness(at(0))
        harness.open()
        for _ in range(FAILURES_IN_A_ROW):
            harness.take(8)
            harness.opens_after(Refused(A, "the broker does not like it"))
            assert harness.open().running is not None
        assert 4 == harness.lane.ledger.stop

        if how == "takes":
            harness.take(4)
        else:
            harness.ready.pass_over(9)
        harness.read()

        assert (4, {}) == (harness.lane.ledger.position, harness.consumer.reading)
        harness.commit()
        harness.read()
        assert {A: 4} == harness.consumer.reading
        assert 6 == harness.lane.ledger.stop

    def test_a_lane_that_hangs_is_abandoned(self) -> None:
        """Its producer gives up, its partition is no longer read, and its receipt gives the reason."""
        harness = LaneHarness(at(0))
        harness.open()
        harness.lane.abandon()

        assert harness.writers[0].abandoned
        assert {} == harness.consumer.reading
        assert "raw-0: the last commit did not finish in time" == harness.receipt().error
        assert Outcome.FAILED is harness.receipt().outcome

    def test_a_lane_without_a_producer_can_be_abandoned(self) -> None:
        """The hanging call may be the one that discards the producer. The receipt then has the earlier error."""
        harness = LaneHarness(at(0))
        harness.open()
        harness.opens_after()
        harness.lane.abandon()

        assert "raw-0: the broker is away" == harness.receipt().error

    def test_a_lane_that_was_abandoned_fences_nobody(self) -> None:
        """A call that hung before it made its producer may go on at any time, and another lane may be open by then."""
        harness = LaneHarness(at(0))
        harness.open()
        harness.opens_after()
        closed, owners = harness.lane.state, harness.kafka.epochs[A]
        assert isinstance(closed, Closed)

        def goes_on_late() -> Opened:
            harness.lane.abandon()
            return closed.open(harness.clients, harness.clients.offsets())

        harness.lane.run(goes_on_late, lambda: harness.now)
        assert owners == harness.kafka.epochs[A]
        assert [1, 1] == [writer.discarded for writer in harness.writers]

    def test_the_producer_that_tells_why_a_lane_is_blocked_can_be_abandoned(self) -> None:
        """It opens, too, and so could fence the next owner."""
        harness = LaneHarness(at(0), committed=0)
        harness.open()
        harness.opens_after(Blocked(A, "an operator must act"))
        ended, offsets = harness.lane.state, harness.clients.offsets()
        assert isinstance(ended, Ended)
        load = offsets.load

        def hangs(partitions: Iterable[Partition], *, stable: bool) -> dict[Partition, CommittedOffset]:
            harness.lane.abandon()
            return load(partitions, stable=stable)

        offsets.load = hangs  # type: ignore[method-assign]
        harness.lane.run(lambda: ended.tell(harness.clients, offsets), lambda: harness.now)

        assert [True, 1] == [harness.writers[-1].abandoned, harness.writers[-1].discarded]

    @pytest.mark.parametrize(("happened", "counted"), [(False, 2), (True, 5)])
    def test_a_successor_goes_on_from_what_is_committed(self, *, happened: bool, counted: int) -> None:
        """It counts the hanging commit if that succeeded. The old producer gives up and is no longer read for."""
        harness = LaneHarness(at(0))
        harness.open()
        harness.take(2)
        harness.commit()
        harness.take(3)
        old, harness.lane = harness.lane, harness.hang_in_commit(happened=happened)

        assert harness.writers[0].abandoned
        assert {} == harness.consumer.reading
        assert harness.reopens(harness.now + 0.25)
        harness.open()
        assert {A: counted} == harness.consumer.reading
        receipt = harness.receipt()
        assert (0, counted, counted, 1) == (receipt.start, receipt.end, receipt.records, receipt.reopened)
        assert Outcome.FAILED is old.outcome

    def test_what_the_thread_of_a_lane_does_late_is_nothing_to_its_successor(self) -> None:
        """Its search continues from where it was, and its trouble is not over."""
        harness = LaneHarness(at(0))
        harness.open()
        for _ in range(FAILURES_IN_A_ROW):
            harness.take(8)
            harness.opens_after(Refused(A, "the broker does not like it"))
            harness.open()
        harness.take(4)
        old = harness.ready
        harness.lane = harness.lane.successor("commit_transaction (5 s)", harness.now)
        with capture_logs() as logs:
            old.commit(harness.now)

        assert 4 == harness.lane.ledger.stop
        harness.open()
        assert 6 == harness.lane.ledger.stop
        harness.take(1)
        with capture_logs() as more:
            harness.commit()
        assert ["partition_trouble_over"] * 2 == [entry["event"] for entry in [*logs, *more]]

    def test_a_lane_that_begins_late_does_not_change_what_its_successor_has_read(self) -> None:
        """The leader epoch stored with the next offset is that of the successor's last record."""
        harness = LaneHarness(at(0))
        old = Opened(harness.open().ledger, harness.writers[-1])
        harness.lane = harness.lane.successor("settle (5 s)", harness.now)
        harness.open()
        harness.take(2, LastRead(2, 7))
        old.begin(harness.kafka.committed[A], harness.now)
        harness.commit()

        assert LastRead(2, 7) == OffsetMetadata.parse(harness.kafka.committed[A].metadata).read

    @pytest.mark.parametrize("error", [Fenced(A, "a newer epoch"), OffsetMoved(A, "the offset went back", 3)])
    def test_a_successor_keeps_the_outcome(self, error: PartitionError) -> None:
        """A lane that lost its partition stays lost, even if its producer cannot be discarded."""
        harness = LaneHarness(at(0))
        harness.open()
        harness.opens_after(error)
        outcome = harness.lane.outcome
        harness.lane = harness.lane.successor("abort_transaction (5 s)", harness.now)

        assert (outcome, None) == (harness.lane.outcome, harness.lane.state.writer)


def test_a_lane_that_is_done_lets_its_producer_go() -> None:
    """It commits no more, and the task discards the producer while the other lanes continue."""
    lane = LaneHarness(at(0)).open()
    lane.finish()

    assert (True, None) == (lane.state.writer is not None, lane.ready)


def test_a_lane_that_has_never_begun_reports_its_planned_start() -> None:
    """Nothing is committed or counted."""
    receipt = LaneHarness(at(7)).receipt()

    assert (7, 7, 0, "") == (receipt.start, receipt.end, receipt.records, receipt.metadata)


def test_a_producer_that_is_refused_at_the_first_start_of_all_starts_no_search() -> None:
    """No record was sent, so there is none to search for."""
    harness = LaneHarness(at(0))
    for _ in range(FAILURES_IN_A_ROW):
        harness.opens_after(Refused(A, "the broker does not like it"))

    assert (None, None) == (harness.lane.ledger.stop, harness.lane.ledger.refusal)


class TestStart:
    @pytest.mark.parametrize(
        ("planned", "committed", "starts"),
        [
            (at(5), None, 5),  # the first start
            (at(7, committed=7), 7, 7),
            (at(7, committed=7), 9, 9),  # an earlier owner has moved on
            (at(12, committed=7), 7, 12),  # out.of.range skips what was deleted
            (at(12, committed=7), 9, 9),  # but not if the offset has moved since
            (at(3, committed=7), 7, 3),  # out.of.range goes back
            (replace(at(7, committed=7), never_read=True), None, 7),  # Kafka has lost it
        ],
    )
    def test_a_lane_starts_where_it_was_planned_unless_its_offset_has_moved(
        self, planned: OffsetRange, committed: int | None, starts: int
    ) -> None:
        """So does its receipt."""
        harness = LaneHarness(planned, committed)
        harness.open()

        assert starts == harness.lane.ledger.position == harness.consumer.reading[A] == harness.receipt().start

    @pytest.mark.parametrize(("committed", "why"), [(None, "vanished"), (6, "went back to 6")])
    def test_an_offset_that_went_back_is_not_believed(self, committed: int | None, why: str) -> None:
        """The driver decides what that means when it plans again."""
        harness = LaneHarness(at(7, committed=7), committed)

        with pytest.raises(OffsetMoved, match=f"raw-0@7: the committed offset {why}"):
            harness.open()

    def test_a_start_is_stored_where_no_offset_stands_for_it(self) -> None:
        """At the first start, and if the start goes back. A start that skips ahead is stored with its first records."""
        for planned, committed, stored in ((at(5), None, 5), (at(3, committed=7), 7, 3), (at(9, committed=7), 7, 7)):
            harness = LaneHarness(planned, committed)
            harness.open()

            assert stored == harness.kafka.committed[A].offset
            assert harness.ready.dirty == (stored != harness.lane.ledger.position)

    def test_a_start_that_went_back_is_not_gone_back_to_again(self) -> None:
        """If it reopens at the very offset that it was planned with, it has already done what lies before."""
        harness = LaneHarness(at(3, committed=7), 7)
        harness.open()
        harness.take(4)
        harness.commit()
        harness.opens_after()
        harness.open()

        assert 7 == harness.lane.ledger.position
        assert (3, 7, 4) == tuple(getattr(harness.receipt(), name) for name in ("start", "end", "records"))

    def test_a_retried_task_does_not_go_back_either(self) -> None:
        """It has the plan of the attempt that died, whose counts show that it came to the planned offset again."""
        planned = replace(at(3, committed=7), counted=0)
        first = LaneHarness(planned, 7)
        first.open()
        first.take(4)
        first.commit()
        second = LaneHarness(planned)
        second.kafka.committed[A] = first.kafka.committed[A]

        second.open()

        assert 7 == second.lane.ledger.position


class TestRepeats:
    def test_records_that_come_twice_are_not_taken_twice(self) -> None:
        """If the consumer delivers a fetch again, the lane fails and reads again from its committed offset."""
        harness = LaneHarness(at(0))
        harness.open()
        harness.take(3)
        harness.take(2, LastRead(5, 1))

        with pytest.raises(Transient, match=r"raw-0@5: the consumer delivered records from offset 3 on again"):
            harness.take(2, LastRead(5, 1), start=3)

    def test_records_behind_a_gap_are_taken(self) -> None:
        """Control and aborted records take offsets, too."""
        harness = LaneHarness(at(0))
        harness.open()
        harness.take(3)

        harness.take(2, start=7)

        assert 9 == harness.lane.ledger.position


class TestProgress:
    def test_only_what_there_is_is_sent(self) -> None:
        """Most chunks have no rejects, and some have nothing else."""
        harness = LaneHarness(at(0))
        harness.open()
        harness.take(0)
        assert (0, 0) == (harness.writers[0].lines, harness.writers[0].dead_letters)
        harness.take(3)
        assert (1, 0) == (harness.writers[0].lines, harness.writers[0].dead_letters)

    def test_what_was_committed_counts(self) -> None:
        """What was taken since does not, and is taken again."""
        harness = LaneHarness(at(0))
        harness.open()
        harness.take(3)
        harness.commit()
        harness.take(2)
        assert harness.ready.dirty
        harness.opens_after()

        receipt = harness.receipt()
        assert (0, 3, 3, 3) == (receipt.start, receipt.end, receipt.records, receipt.out)
        assert str(OffsetMetadata("", 0, Counts(3, 3, {}, 15, 12, committed=1))) == receipt.metadata
        assert 3 == harness.open().ledger.position

    @pytest.mark.parametrize(("happened", "records"), [(False, 3), (True, 5)])
    def test_a_commit_whose_answer_was_lost(self, happened: bool, records: int) -> None:
        """The offset read when the lane reopens shows whether its records count."""
        harness = LaneHarness(at(0))
        harness.open()
        harness.take(3)
        harness.commit()
        harness.take(2)

        def lost(offset: int, metadata: str) -> None:
            if happened:
                harness.kafka.committed[A] = CommittedOffset(offset, metadata)
            raise AWAY

        harness.writers[0].commit = lost  # type: ignore[method-assign]
        with pytest.raises(Transient):
            harness.ready.commit(harness.now)
        harness.opens_after()
        assert 3 == harness.receipt().records
        harness.open()

        assert (records, records) == (harness.lane.ledger.position, harness.receipt().records)

    @pytest.mark.parametrize(
        ("end", "passed", "position", "at_end"),
        [(None, 9, 9, False), (12, 9, 9, False), (8, 9, 8, True), (9, 3, 5, False)],
    )
    def test_offsets_without_a_record_are_passed(
        self, end: int | None, passed: int, position: int, at_end: bool
    ) -> None:
        """Up to the agreed end, and never back. That alone is worth a commit."""
        harness = LaneHarness(at(5, committed=5, end=end), 5)
        harness.open()
        harness.ready.pass_over(passed)

        assert (position, at_end, position != 5) == (
            harness.lane.ledger.position,
            harness.lane.ledger.at_end,
            harness.ready.dirty,
        )

    def test_a_lane_reads_only_while_records_are_wanted(self) -> None:
        """It neither starts nor stops twice."""
        harness = LaneHarness(at(0))
        harness.read()
        assert {} == harness.consumer.reading
        harness.open()
        assert {A: 0} == harness.consumer.reading
        assert harness.lane.running is not None
        harness.opens_after()
        harness.read()
        harness.lane.hold()
        assert {} == harness.consumer.reading
        assert harness.lane.running is None

    @pytest.mark.parametrize(("fails", "outcome"), [(True, Outcome.FAILED), (False, Outcome.DONE)])
    def test_a_round_that_ends_while_a_lane_waits_to_open(self, fails: bool, outcome: Outcome) -> None:
        """It failed, unless it was only waiting for a new producer after a slow commit."""
        harness = LaneHarness(at(0))
        harness.open()
        if fails:
            harness.opens_after()
        else:
            harness.writers[0].suspect = True
            harness.commit()
        harness.lane.finish()

        assert outcome is harness.receipt().outcome

    def test_a_lane_that_never_began_reports_nothing(self) -> None:
        """Neither counts nor metadata, because the offset is not its own."""
        receipt = LaneHarness(at(5, committed=3), 3).receipt()

        assert (5, 5, 0, "") == (receipt.start, receipt.end, receipt.records, receipt.metadata)
