"""The snapshot follows what the driver reads; its counts are those committed by tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.driver.discover import blocked_by
from app.driver.starting_offsets import PartitionOffsets
from app.driver.tracker import StatusTracker
from app.driver.workload import SourceOffsets, Workload
from app.errors import AccountingError, NoStartingOffset, NotAllowed, SparkFailed, Undeliverable, Unreachable
from app.model import (
    Attempt,
    CommittedOffset,
    FirstWaiting,
    OffsetRange,
    Outcome,
    Owner,
    Partition,
    Pause,
    Receipt,
    Watermarks,
)
from app.offsets.metadata import Counts, OffsetMetadata
from app.offsets.mirrors import MirrorStatus
from app.offsets.times import Histogram, TaskReport, TaskTimes
from app.rates import Rates
from app.runtime import Runtime
from app.status.condition import Condition, judge
from app.status.snapshot import Ending, PartitionState, Phase, Snapshot

A, B = Partition("raw", 0), Partition("raw", 1)


class TrackerHarness:
    """A tracker with its own clock and a list of the published snapshots."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.published: list[Snapshot] = []
        runtime = Runtime(monotonic=lambda: self.now, wall_clock=lambda: self.now)
        self.tracker = StatusTracker("g", [lambda _, after: self.published.append(after)], runtime)

    @property
    def snapshot(self) -> Snapshot:
        return self.tracker.snapshot


@pytest.fixture
def harness() -> TrackerHarness:
    return TrackerHarness()


def at(partition: Partition, offset: int | None, counts: Counts | None = None, since: int = 0) -> PartitionOffsets:
    metadata = str(OffsetMetadata("id", since, counts)) if counts else ""
    committed = None if offset is None else CommittedOffset(offset, metadata)
    return PartitionOffsets(partition, "id", Watermarks(0, 100, 120), committed)


def workload(*offsets: PartitionOffsets) -> Workload:
    ranges = {
        each.partition: OffsetRange(
            each.partition,
            each.committed.offset if each.committed else None,
            each.next_offset(0),
            topic_id=each.topic_id,
        )
        for each in offsets
    }
    return Workload({each.partition: each for each in offsets}, ranges=ranges)


def begin(harness: TrackerHarness, *offsets: PartitionOffsets) -> None:
    found = workload(*offsets)
    harness.tracker.discovered(found)
    harness.tracker.round_began(2, 1, list(found.ranges.values()))


def test_a_discovery_shows_every_partition(harness: TrackerHarness) -> None:
    """A snapshot has the committed offset, last stable offset, high watermark and lag of each; nothing is counted yet."""
    harness.tracker.discovered(workload(at(A, 40, Counts(9, 9), since=5), at(B, None)))

    a, b = harness.snapshot.partitions[A], harness.snapshot.partitions[B]
    assert (40, 100, 120, 60) == (a.committed, a.last_stable, a.high_watermark, a.lag)
    assert (None, 100) == (b.committed, b.lag)
    assert (PartitionState.PLANNED, Counts(), 1_000.0) == (a.state, a.counts, a.since)
    assert (160, Counts()) == (harness.snapshot.lag, harness.snapshot.totals)


def test_counts_are_those_that_tasks_have_committed(harness: TrackerHarness) -> None:
    """Between two refreshes, records, dead letters by reason and bytes are counted exactly as in the metadata."""
    begin(harness, at(A, 40, Counts(9, 9), since=5), at(B, None))
    harness.now += 10

    counts = Counts(29, 26, {"empty": 2, "srcip": 1}, 900, 300)
    harness.tracker.refreshed(SourceOffsets({A: at(A, 60, counts, since=5), B: at(B, 10, Counts(10, 10), since=0)}))

    assert Counts(20, 17, {"empty": 2, "srcip": 1}, 900, 300) == harness.snapshot.partitions[A].counts
    assert harness.snapshot.progress is not None
    assert (30, 3, 130, 10) == (
        harness.snapshot.progress.counts.records,
        harness.snapshot.progress.counts.dead_total,
        harness.snapshot.lag,
        harness.snapshot.progress.seconds,
    )
    assert 30 == harness.snapshot.totals.records


def test_what_another_service_commits_is_not_counted(harness: TrackerHarness) -> None:
    """Whether this one stands by or a later one takes over: each record counts in the service that has cleansed it."""
    me, other = Owner(1_000_000, "here", "clean"), Owner(2_000_000, "there", "clean", 1)
    harness.tracker.started(me)

    def look(offset: int, owner: Owner) -> int:
        metadata = str(OffsetMetadata("id", 0, Counts(offset, offset), owner=owner))
        offsets = PartitionOffsets(A, "id", Watermarks(0, 100, 120), CommittedOffset(offset, metadata))
        harness.tracker.discovered(workload(offsets))
        assert harness.snapshot.totals == harness.snapshot.partitions[A].counts
        return harness.snapshot.totals.records

    assert [0, 10, 10, 10, 15] == [look(20, me), look(30, me), look(50, other), look(80, other), look(85, me)]


def test_progress_is_what_was_done_since_the_last_look(harness: TrackerHarness) -> None:
    """Idle time between two rounds is not part of it."""
    begin(harness, at(A, 0, Counts(1, 1)))
    harness.now += 100
    begin(harness, at(A, 0, Counts(1, 1)))

    for seconds in (10, 20):
        harness.now += seconds
        harness.tracker.refreshed(SourceOffsets({A: at(A, 0, Counts(1, 1))}))
        assert harness.snapshot.progress is not None
        assert seconds == harness.snapshot.progress.seconds


def test_what_waits_in_a_blocked_partition_is_lag(harness: TrackerHarness) -> None:
    """Tasks cannot read it, but readers are waiting for it all the same."""
    found = workload(at(A, 40), at(B, 10))
    blocked = replace(found, ranges={A: found.ranges[A]}, blocked={B: NoStartingOffset(B, "no offset")})
    harness.tracker.discovered(blocked)
    harness.tracker.round_began(2, 1, [found.ranges[A]])
    harness.tracker.refreshed(SourceOffsets({A: at(A, 70), B: at(B, 10)}))

    assert 120 == harness.snapshot.lag


@pytest.mark.parametrize(
    ("committed", "lag"),
    [
        (CommittedOffset(150, str(OffsetMetadata("id"))), 0),  # the log was cut at 120; what lies below it was read
        (CommittedOffset(90, str(OffsetMetadata("id", cut=30))), 70),  # and has grown past the offset since
        (CommittedOffset(90, str(OffsetMetadata("another"))), 100),
        (None, 100),  # Kafka deletes the offset with the topic
    ],
)
def test_what_waits_in_another_log_is_lag(committed: CommittedOffset | None, lag: int, harness: TrackerHarness) -> None:
    """The partition is blocked, its offset is of an earlier log: an age counts, so that alerts fire before a deletion."""
    known = OffsetRange(A, 90, 90, topic_id="another")
    harness.tracker.discovered(Workload({A: replace(at(A, 90), topic_id="another")}, ranges={A: known}))
    now = replace(at(A, None), committed=committed)

    harness.tracker.discovered(Workload({A: now}, ranges={}, blocked={A: NoStartingOffset(A, "blocked")}))

    found = harness.snapshot.partitions[A]
    assert (lag, 100 - lag) == (found.lag, min(100, found.next_offset))


def test_a_limited_partition_shows_its_limit() -> None:
    """It is the backlog's limit until the group has passed its initial backlog; None without a limit."""
    limited, free = StatusTracker("g", rates=Rates(50, 20)), StatusTracker("g")
    metadata = str(OffsetMetadata("id", 0, Counts(1, 1), backlog=40))
    for offset, limit in ((39, 20), (40, 50)):
        now = PartitionOffsets(A, "id", Watermarks(0, 100, 120), CommittedOffset(offset, metadata))
        for tracker in (limited, free):
            tracker.discovered(Workload({A: now}, ranges={A: OffsetRange(A, offset, offset)}))

        assert limit == limited.snapshot.partitions[A].rate_limit
        assert free.snapshot.partitions[A].rate_limit is None


def test_a_killed_task_loses_no_count(harness: TrackerHarness) -> None:
    """Its receipt never comes, but its counts are in the offset's metadata, and the next task continues them."""
    begin(harness, at(A, 0, Counts(1, 1)))
    harness.tracker.tasks_killed()
    harness.tracker.round_dropped(5.0)

    begin(harness, at(A, 30, Counts(31, 31)))
    harness.tracker.round_ended([receipt(A, 30, 40, Counts(41, 41))], 5.0)

    assert 40 == harness.snapshot.partitions[A].counts.records == harness.snapshot.totals.records


def test_a_task_that_committed_nothing_changes_no_count(harness: TrackerHarness) -> None:
    """Its receipt has no metadata; those of its partitions' offsets were counted long ago."""
    begin(harness, at(A, 10, Counts(10, 10)))
    harness.tracker.round_ended([Receipt(A, 10, 10, outcome=Outcome.FAILED, error="no client")], 1.0)

    begin(harness, at(A, 10, Counts(10, 10)))

    assert Counts() == harness.snapshot.totals


@pytest.mark.parametrize("seen", [Counts(18, 18, committed=4), Counts(10, 10, committed=4)])
def test_a_commit_whose_answer_was_lost_counts_once(harness: TrackerHarness, seen: Counts) -> None:
    """A look has seen it, so the receipt of its task is older. It may have passed nothing but control records."""
    known = Counts(10, 10, committed=3)
    begin(harness, at(A, 10, known))
    harness.tracker.refreshed(SourceOffsets({A: at(A, 18, seen)}))
    lost = receipt(A, 10, 10, known, outcome=Outcome.FAILED, error="the last commit did not finish in time")
    harness.tracker.round_ended([lost], 1.0)

    begin(harness, at(A, 18, seen))

    assert seen.since(known) == harness.snapshot.totals == harness.snapshot.partitions[A].counts


def test_an_offset_that_was_reset_counts_from_its_new_beginning(harness: TrackerHarness) -> None:
    """Records that are processed again count again; a counter never goes back."""
    begin(harness, at(A, 0, Counts(100, 100)))
    harness.tracker.refreshed(SourceOffsets({A: at(A, 10)}))  # an operator's tool writes no metadata
    harness.tracker.refreshed(SourceOffsets({A: at(A, 30, Counts(20, 20), since=10)}))

    assert Counts(20, 20) == harness.snapshot.partitions[A].counts
    harness.tracker.refreshed(
        SourceOffsets({A: at(A, 9, Counts(4, 4), since=5)})
    )  # a task was faster than the next look
    assert Counts(24, 24) == harness.snapshot.partitions[A].counts


def receipt(partition: Partition, start: int, end: int, counts: Counts, **more: object) -> Receipt:
    done = end - start
    text = str(OffsetMetadata("id", 0, counts))
    return Receipt(partition, start, end, done, done, metadata=text, **more)  # type: ignore[arg-type]  # its own fields


@given(st.lists(st.tuples(st.integers(0, 50), st.sampled_from(["refresh", "receipt", "killed"])), max_size=12))
def test_every_record_is_counted_once(steps: list[tuple[int, str]]) -> None:
    """A commit is counted once, whether the driver sees it in a refresh, a receipt or a later round."""
    harness, done = TrackerHarness(), 0
    begin(harness, at(A, 0, Counts(5, 5)))
    for records, how in steps:
        before, done = done, done + records
        now = Counts(5 + done, 5 + done)
        if how == "refresh":
            harness.tracker.refreshed(SourceOffsets({A: at(A, done, now)}))
        elif how == "receipt":
            harness.tracker.round_ended([receipt(A, before, done, now)], 1.0)
            begin(harness, at(A, done, now))
    begin(harness, at(A, done, Counts(5 + done, 5 + done)))

    assert done == harness.snapshot.totals.records == harness.snapshot.partitions[A].counts.records


def test_a_receipt_that_does_not_balance_is_an_error(harness: TrackerHarness) -> None:
    """The error names the partition and the counts, and calls it a bug."""
    begin(harness, at(A, 0))

    with pytest.raises(
        AccountingError, match="raw-0@0: 10 records in, but 8 out, 1 dead letters and 0 filtered: this is"
    ):
        harness.tracker.round_ended([Receipt(A, 0, 10, 10, 8, {"empty": 1})], 1.0)


def test_a_state_has_the_time_it_began(harness: TrackerHarness) -> None:
    """A state keeps its beginning for as long as it lasts."""
    found = workload(at(A, 0), at(B, 0))
    blocked = replace(found, ranges={A: found.ranges[A]}, blocked={B: NoStartingOffset(B, "no offset", cure="set one")})
    harness.tracker.discovered(blocked)
    harness.now += 7
    harness.tracker.discovered(blocked)
    harness.tracker.round_began(2, 1, [found.ranges[A]])

    a, b = harness.snapshot.partitions[A], harness.snapshot.partitions[B]
    assert (PartitionState.RUNNING, 1_007.0) == (a.state, a.since)
    assert (PartitionState.BLOCKED, 1_000.0) == (b.state, b.since)
    assert [("no offset", "set one", 1_000.0)] == [(p.cause, p.cure, p.since) for p in harness.snapshot.problems]

    harness.tracker.discovered(found)
    assert [PartitionState.PLANNED] * 2 == [each.state for each in harness.snapshot.partitions.values()]
    assert [] == harness.snapshot.problems


def test_a_pause_is_the_state_of_what_could_be_worked_on(harness: TrackerHarness) -> None:
    """It lasts from the pause to its end, at each look; a blocked partition stays blocked."""
    found = workload(at(A, 0), at(B, 0))
    blocked = replace(found, ranges={A: found.ranges[A]}, blocked={B: NoStartingOffset(B, "no offset", cure="set one")})
    pause = Pause(1_000_000, "ops-1")

    def states() -> list[PartitionState]:
        return [harness.snapshot.partitions[each].state for each in (A, B)]

    harness.tracker.discovered(blocked)
    harness.tracker.paused(pause)
    assert [PartitionState.PAUSED, PartitionState.BLOCKED] == states()
    harness.tracker.discovered(blocked)
    harness.tracker.paused(pause)
    assert [PartitionState.PAUSED, PartitionState.BLOCKED] == states()
    assert pause == harness.snapshot.paused
    harness.tracker.paused(None)
    assert [PartitionState.PLANNED, PartitionState.BLOCKED] == states()


@pytest.mark.parametrize("first", ["the pause", "the failure"])
def test_a_pause_is_the_state_of_what_failed_before(harness: TrackerHarness, first: str) -> None:
    """No round will try it again until the pause ends, so it neither fails nor stalls; its problem is over."""
    steps: list[Callable[[], None]] = [
        lambda: harness.tracker.paused(Pause(1_000_000, "ops-1")),
        lambda: harness.tracker.round_ended([Receipt(A, 0, 0, outcome=Outcome.FAILED, error="broken")], 1.0),
    ]
    begin(harness, at(A, 0))
    for step in steps if first == "the pause" else reversed(steps):
        step()
    harness.tracker.discovered(workload(at(A, 0)))

    assert (PartitionState.PAUSED, []) == (harness.snapshot.partitions[A].state, harness.snapshot.problems)
    harness.tracker.paused(None)
    assert PartitionState.PLANNED is harness.snapshot.partitions[A].state


def test_a_topic_that_is_deleted_under_a_task(harness: TrackerHarness) -> None:
    """A refresh no longer finds the partition, its task still reports, and the next discovery blocks it."""
    begin(harness, at(A, 0), at(B, 0))
    harness.tracker.refreshed(SourceOffsets({A: at(A, 0)}))
    assert [A] == list(harness.snapshot.partitions)

    harness.tracker.round_ended([receipt(B, 0, 5, Counts(5, 5))], 1.0)
    found = workload(at(A, 0))
    harness.tracker.discovered(replace(found, blocked={B: NoStartingOffset(B, "gone", cure="create it")}))

    assert PartitionState.BLOCKED is harness.snapshot.partitions[B].state

    harness.tracker.refreshed(SourceOffsets({A: at(A, 0)}))
    assert ["gone"] == [problem.cause for problem in harness.snapshot.problems]
    assert 5 == harness.snapshot.totals.records


def test_a_partition_that_failed_stays_so_until_a_task_has_it_again(harness: TrackerHarness) -> None:
    """Until then the problem is shown with the error of the task."""
    begin(harness, at(A, 0))
    failed = Receipt(A, 0, 0, outcome=Outcome.FAILED, error="raw-0@0: broken")
    harness.tracker.round_ended([failed], 1.0)
    harness.tracker.discovered(workload(at(A, 0)))

    assert PartitionState.FAILED is harness.snapshot.partitions[A].state
    assert ["raw-0@0: broken"] == [problem.cause for problem in harness.snapshot.problems]

    harness.tracker.round_began(1, 1, [OffsetRange(A, 0, 0)])
    assert [] == harness.snapshot.problems


def test_a_round_is_shown_from_its_beginning_to_its_end(harness: TrackerHarness) -> None:
    """The snapshot has its number, slots, tasks and the reason for its end."""
    begin(harness, at(A, 40))
    harness.tracker.round_ends(Ending.REBALANCE, "partitions were added or removed")
    harness.tracker.round_ended([receipt(A, 40, 100, Counts(60, 60))], 12.5)

    ended = harness.snapshot.round
    assert ended is not None
    assert (1, 2, 1, 1, 60) == (ended.number, ended.slots, ended.tasks, ended.partitions, ended.lag_before)
    assert (Ending.REBALANCE, "partitions were added or removed", 12.5) == (ended.ending, ended.reason, ended.seconds)
    assert Counts(60, 60) == ended.counts

    begin(harness, at(A, 100))
    assert harness.snapshot.round is not None
    assert (2, None, None) == (
        harness.snapshot.round.number,
        harness.snapshot.round.ending,
        harness.snapshot.round.seconds,
    )


def test_an_outage_is_one_problem(harness: TrackerHarness) -> None:
    """However often a request fails, the outage began once; its end is published once."""
    harness.tracker.kafka_is_away(Unreachable("connection refused"))
    harness.now += 30
    harness.tracker.kafka_is_away(Unreachable("connection refused"))

    assert [("connection refused", 1_000.0)] == [(each.cause, each.since) for each in harness.snapshot.problems]

    for _ in range(3):
        harness.tracker.kafka_is_back()
    assert [] == harness.snapshot.problems
    assert 3 == len(harness.published)


def test_an_outage_whose_reason_changes_is_still_the_same_outage(harness: TrackerHarness) -> None:
    """A broker that returns with another password does not end the outage, which began at the last response."""
    harness.tracker.kafka_is_away(Unreachable("connection refused"))
    harness.now += 30
    harness.tracker.kafka_is_away(NotAllowed("wrong password"))

    assert [("wrong password", 1_000.0)] == [(each.cause, each.since) for each in harness.snapshot.problems]


def test_a_running_partition_that_cannot_be_read_has_a_problem(harness: TrackerHarness) -> None:
    """Its state and last known offset stay; the problem ends when it responds."""
    begin(harness, at(A, 10), at(B, 10))
    harness.tracker.refreshed(SourceOffsets({A: at(A, 20), B: at(B, 10)}, frozenset({B})))

    a, b = harness.snapshot.partitions[A], harness.snapshot.partitions[B]
    assert (PartitionState.RUNNING, None) == (a.state, a.problem)
    assert (PartitionState.RUNNING, 10) == (b.state, b.committed)
    assert b.problem is not None
    assert "no leader" in b.problem.cause

    harness.tracker.refreshed(SourceOffsets({A: at(A, 20), B: at(B, 30)}))
    assert [] == harness.snapshot.problems


def test_a_partition_whose_output_nobody_takes_has_a_problem_from_the_first_discovery(harness: TrackerHarness) -> None:
    """It is the same before and while a task has the partition, and ends when a discovery no longer finds it."""
    found = workload(at(A, 10), at(B, 10))
    lost = replace(found, undeliverable={B: Undeliverable(B, "clean-1 has no leader")})
    for _ in range(2):
        harness.tracker.discovered(lost)
        assert [("clean-1 has no leader", 1_000.0)] == [(each.cause, each.since) for each in harness.snapshot.problems]
        harness.now += 10
        harness.tracker.round_began(2, 1, list(found.ranges.values()))
        assert [("clean-1 has no leader", 1_000.0)] == [(each.cause, each.since) for each in harness.snapshot.problems]

        harness.tracker.round_ended([receipt(B, 10, 10, Counts())], 1.0)
        assert [("clean-1 has no leader", 1_000.0)] == [(each.cause, each.since) for each in harness.snapshot.problems]

    harness.tracker.discovered(found)
    assert [] == harness.snapshot.problems


def test_another_problem_of_a_partition_begins_anew(harness: TrackerHarness) -> None:
    """It has its own cause and beginning."""
    begin(harness, at(A, 10))
    harness.tracker.refreshed(SourceOffsets({A: at(A, 10)}, frozenset({A})))
    harness.now += 10
    undeliverable = {A: Undeliverable(A, "clean-0 has no leader")}
    harness.tracker.refreshed(SourceOffsets({A: at(A, 10)}, undeliverable=undeliverable))

    assert [("clean-0 has no leader", 1_010.0)] == [(each.cause, each.since) for each in harness.snapshot.problems]


def test_what_a_task_got_over_is_known(harness: TrackerHarness) -> None:
    """The last such error is kept, and the replaced producers are counted; an error that ended the task is a problem."""
    begin(harness, at(A, 0))
    receipts = [
        receipt(A, 0, 10, Counts(10, 10), error="slow", reopened=2),
        receipt(A, 10, 20, Counts(20, 20)),
        Receipt(A, 20, 20, outcome=Outcome.FAILED, error="broken", reopened=1),
        receipt(A, 20, 30, Counts(30, 30), error="slower", reopened=1),
        receipt(A, 30, 40, Counts(40, 40), reopened=1),  # after a slow commit
    ]

    known = []
    for each in receipts:
        harness.tracker.round_ended([each], 1.0)
        status = harness.snapshot.partitions[A]
        known.append((status.recovered, status.reopened, str(status.problem or "")))

    assert [("slow", 2, ""), ("slow", 2, ""), ("slow", 3, "broken"), ("slower", 4, ""), ("", 5, "")] == known


@pytest.mark.parametrize("topic_id", ["id", ""], ids=["same topic", "brokers had no ids yet"])
def test_a_lag_is_what_a_round_is_to_read(topic_id: str, harness: TrackerHarness) -> None:
    """It extends from the chosen start to the agreed end. A partition that cannot be planned lags by all its records."""
    offsets = {each: at(each, None) for each in (A, B)}
    harness.tracker.discovered(Workload(offsets, ranges={A: OffsetRange(A, None, 50, 80, topic_id=topic_id)}))

    assert {A: 30, B: 100} == {each: status.lag for each, status in harness.snapshot.partitions.items()}

    harness.tracker.round_began(1, 1, [OffsetRange(A, None, 50, 70, topic_id=topic_id)])
    harness.tracker.refreshed(SourceOffsets(offsets))
    assert {A: 20, B: 100} == {each: status.lag for each, status in harness.snapshot.partitions.items()}


def test_a_partition_whose_task_has_ended_has_no_problem_left(harness: TrackerHarness) -> None:
    """It could not be read for a while, but its task has reported since."""
    begin(harness, at(A, 10))
    harness.tracker.refreshed(SourceOffsets({A: at(A, 10)}, frozenset({A})))
    assert harness.snapshot.problems

    harness.tracker.round_ended([receipt(A, 10, 20, Counts(10, 10))], 1.0)
    assert [] == harness.snapshot.problems


def test_a_snapshot_never_changes(harness: TrackerHarness) -> None:
    """A snapshot is frozen; a change makes a new one."""
    begin(harness, at(A, 0))
    first, kept = harness.snapshot, replace(harness.snapshot)

    harness.tracker.refreshed(SourceOffsets({A: at(A, 50, Counts(50, 50))}))
    harness.tracker.stopped("done")

    assert first == kept
    assert first is not harness.snapshot
    assert (Phase.STOPPED, "done") == (harness.snapshot.phase, harness.snapshot.cause)
    assert harness.published[-1] is harness.snapshot


def test_a_blocked_partition_that_is_tried_again(harness: TrackerHarness) -> None:
    """It stays blocked until its offset moves, as the note beside that says to whoever looks there."""
    told = str(OffsetMetadata("id", blocked="refused: raise the limit"))
    noted = replace(at(A, 40), committed=CommittedOffset(40, told))
    begin(harness, at(A, 40))
    harness.tracker.round_ended([Receipt(A, 0, 40, outcome=Outcome.BLOCKED, error="refused", cure="raise it")], 10.0)

    def state() -> tuple[PartitionState, bool, float]:
        status = harness.snapshot.partitions[A]
        return status.state, status.problem is not None, status.since

    harness.now += 60
    begin(harness, noted)
    planned = state()
    harness.tracker.refreshed(SourceOffsets({A: noted}))
    tried = state()
    harness.tracker.refreshed(SourceOffsets({A: at(A, 41)}))

    assert (PartitionState.BLOCKED, True, 1_000.0) == planned == tried
    assert (PartitionState.RUNNING, False, 1_060.0) == state()


def test_a_partition_that_a_task_found_blocked_is_shown_at_once(harness: TrackerHarness) -> None:
    """Its problem has the offset and the cure. The same finding of the next discovery does not restart its age."""
    begin(harness, at(A, 40))
    receipt = Receipt(A, 0, 40, outcome=Outcome.BLOCKED, error="refused", cure="raise the limit")

    harness.tracker.round_ended([receipt], 10.0)
    harness.now += 5
    harness.tracker.discovered(Workload({A: at(A, 40)}, ranges={}, blocked={A: blocked_by(receipt)}))

    status = harness.snapshot.partitions[A]
    assert (PartitionState.BLOCKED, "raw-0@40: refused: raise the limit") == (status.state, str(status.problem))
    assert 1_000.0 == (status.problem and status.problem.since) == status.since


def test_a_partition_that_a_task_found_cut_is_not_blocked_yet(harness: TrackerHarness) -> None:
    """Its topic may have been created again, or out.of.range may go on: the next discovery decides."""
    begin(harness, at(A, 40))
    metadata = str(OffsetMetadata(cut=30))

    harness.tracker.round_ended([Receipt(A, 0, 40, outcome=Outcome.BLOCKED, error="cut", metadata=metadata)], 10.0)

    status = harness.snapshot.partitions[A]
    assert (PartitionState.FAILED, "cut") == (status.state, str(status.problem))


def test_an_open_transaction_has_an_age(harness: TrackerHarness) -> None:
    """It begins when records first wait behind the last stable offset, and again whenever that offset moves."""

    def look(last_stable: int, end: int) -> float | None:
        harness.now += 10
        offsets = PartitionOffsets(A, "id", Watermarks(0, last_stable, end), CommittedOffset(5))
        harness.tracker.refreshed(SourceOffsets({A: offsets}))
        return harness.snapshot.partitions[A].unstable_since

    assert [None, 1_020.0, 1_020.0, 1_040.0, None, 1_060.0] == [
        look(10, 10),
        look(10, 20),
        look(10, 30),
        look(20, 30),
        look(30, 30),
        look(30, 31),
    ]


def test_without_a_leader_no_transaction_is_open(harness: TrackerHarness) -> None:
    """Its last stable offset stands still, because nobody tells a newer one."""
    at = PartitionOffsets(A, "id", Watermarks(0, 10, 20), CommittedOffset(5))
    harness.tracker.refreshed(SourceOffsets({A: at}))

    harness.tracker.refreshed(SourceOffsets({A: at}, unreadable=frozenset({A})))
    assert harness.snapshot.partitions[A].unstable_since is None

    harness.tracker.refreshed(SourceOffsets({A: at}))
    harness.tracker.discovered(Workload({}, ranges={}, blocked={A: NoStartingOffset(A, "no leader")}))
    assert harness.snapshot.partitions[A].unstable_since is None


def test_another_service_is_a_problem_while_it_works(harness: TrackerHarness) -> None:
    """Its beginning does not move, and it ends when the other run is gone."""
    rival = Owner(5, "there", "clean")
    for _ in range(2):
        harness.now += 10
        harness.tracker.refreshed(SourceOffsets({A: at(A, 40)}, rival=rival))

    (problem,) = harness.snapshot.problems
    assert (1_010.0, True) == (problem.since, str(rival) in str(problem))
    harness.tracker.refreshed(SourceOffsets({A: at(A, 40)}))
    assert harness.snapshot.rival is None


def test_what_to_do_about_another_service(harness: TrackerHarness) -> None:
    """One that stands by needs nothing; two that work would fence each other."""

    def cure() -> str:
        harness.tracker.refreshed(SourceOffsets({A: at(A, 40)}, rival=Owner(5, "there", "clean")))
        return harness.snapshot.problems[0].cure

    assert "nothing to do" in cure()
    begin(harness, at(A, 40))
    assert "stop it" in cure()


@pytest.mark.parametrize("look", ["discovered", "refreshed"])
def test_a_mirror_that_fails_is_a_problem(harness: TrackerHarness, look: str) -> None:
    """Its problem has beginning and cause; a working mirror is shown without a problem."""
    failing, well = MirrorStatus("redis", 3, 1, "refused", 990.0), MirrorStatus("mysql", 7)
    found = workload(at(A, 40)) if look == "discovered" else SourceOffsets({A: at(A, 40)})

    getattr(harness.tracker, look)(replace(found, mirrors=(failing, well)))

    assert (failing, well) == harness.snapshot.mirrors
    assert [("mirror redis fails: refused", 990.0)] == [(each.cause, each.since) for each in harness.snapshot.problems]


def test_the_window_has_each_look(harness: TrackerHarness) -> None:
    """It has the last stable offset, the progress and the counts; the service's hour has the totals and the lag."""
    begin(harness, at(A, 40, Counts(9, 9)), at(B, None))
    harness.now += 10
    harness.tracker.refreshed(SourceOffsets({A: at(A, 60, Counts(29, 26, {"empty": 3})), B: at(B, 10)}))

    assert [(1_000, 100, 40, 0), (1_010, 100, 60, 20)] == [
        tuple(each) for each in harness.snapshot.partitions[A].points
    ]
    moments: list[tuple[object, ...]] = [(1_000, 0, 0, 0, 160, {}, {}), (1_010, 20, 17, 3, 130, {"empty": 3}, {})]
    assert moments == [tuple(each) for each in harness.snapshot.hour] == [tuple(each) for each in harness.snapshot.day]
    assert 1_010 == harness.snapshot.looked


def test_the_window_begins_anew_where_nobody_looked_for_long(harness: TrackerHarness) -> None:
    """Nothing could move in an outage or without a leader: judged from before, the partition would be stalled."""
    found = workload(at(A, 40), at(B, 40))
    unseen = Workload({A: at(A, 40)}, ranges={A: found.ranges[A]}, blocked={B: NoStartingOffset(B, "no leader")})

    def look(after: float, found: Workload) -> list[list[float]]:
        harness.now += after
        harness.tracker.kafka_is_back()
        harness.tracker.discovered(found)
        return [[point.at for point in harness.snapshot.partitions[each].points] for each in (A, B)]

    assert [[1_000.0], [1_000.0]] == look(0, found)
    harness.tracker.kafka_is_away(Unreachable("connection refused"))
    assert [[1_600.0], [1_600.0]] == look(600, found)
    assert [[1_600.0, 2_200.0], []] == look(600, unseen)
    assert [[2_200.0, 2_800.0], [2_800.0]] == look(600, found)


def test_the_window_begins_anew_after_a_pause(harness: TrackerHarness) -> None:
    """Records waited and nothing moved, as was wished: judged from before, the partition would be stalled."""
    for pause in (None, *[Pause(1_000_000, "ops-1")] * 3):
        harness.tracker.discovered(workload(at(A, 40)))
        harness.tracker.paused(pause)
        harness.now += 60
    harness.tracker.paused(None)

    assert [1_180.0] == [point.at for point in harness.snapshot.partitions[A].points]


def test_the_window_begins_anew_with_the_work(harness: TrackerHarness) -> None:
    """Spark took minutes to start, and then only a part of its executors had come: no task had time to stall."""
    found = workload(at(A, 40))
    harness.tracker.discovered(found)
    harness.now += 300
    words = []
    for seconds in (10, 10, 75):
        harness.tracker.round_began(2, 1, list(found.ranges.values()))
        harness.now += seconds
        harness.tracker.refreshed(SourceOffsets(found.offsets))
        words.append(judge(harness.snapshot.partitions[A], harness.snapshot).condition)

    assert [Condition.CATCHING_UP, Condition.CATCHING_UP, Condition.STALLED] == words


def test_what_is_stored_instead_of_an_offset_is_none(harness: TrackerHarness) -> None:
    """Nor has an offset moved."""
    harness.tracker.discovered(workload(at(A, 40)))
    corrupt = replace(at(A, 40), committed=CommittedOffset.not_readable("rubbish"))
    harness.tracker.discovered(Workload({A: corrupt}, ranges={}, blocked={A: NoStartingOffset(A, "corrupt")}))

    status = harness.snapshot.partitions[A]
    assert (None, None) == (status.committed, status.moved)


def test_the_last_commit_is_when_the_offset_moved(harness: TrackerHarness) -> None:
    """The first look shows no movement. A receipt shows one, too; in an outage, one from when it began."""

    def moved() -> float | None:
        harness.now += 10
        return harness.snapshot.partitions[A].moved

    begin(harness, at(A, 40))
    seen = [moved()]
    harness.tracker.refreshed(SourceOffsets({A: at(A, 60)}))
    seen += [moved(), moved()]
    harness.tracker.refreshed(SourceOffsets({A: at(A, 60)}))
    seen.append(moved())
    harness.tracker.round_ended([receipt(A, 60, 70, Counts(10, 10))], 1.0)
    seen.append(moved())
    harness.tracker.kafka_is_away(Unreachable("connection refused"))
    harness.now += 20
    harness.tracker.round_ended([receipt(A, 70, 80, Counts(10, 10))], 1.0)

    assert [None, 1_010, 1_010, 1_010, 1_040, 1_050] == [*seen, moved()]
    assert 1_030 == harness.snapshot.looked


def test_what_retention_took_is_counted_once(harness: TrackerHarness) -> None:
    """More is deleted while the partition is blocked; when it resumes, nothing is counted twice. A new topic counts, too."""

    def look(log_start: int, committed: int, topic_id: str = "id") -> int:
        offsets = PartitionOffsets(A, topic_id, Watermarks(log_start, 100, 100), CommittedOffset(committed))
        harness.tracker.discovered(Workload({A: offsets}, ranges={}, blocked={A: NoStartingOffset(A, "lost")}))
        return harness.snapshot.partitions[A].lost

    assert [0, 20, 20, 30, 30, 35] == [
        look(0, 30),
        look(50, 30),
        look(50, 30),
        look(60, 30),
        look(60, 70),
        look(75, 70),
    ]
    assert [35, 43] == [look(0, 2, "new"), look(10, 2, "new")]


def test_what_is_gone_is_forgotten(harness: TrackerHarness) -> None:
    """Topics of a pattern may come and go for ever."""
    begin(harness, at(A, 5), at(B, 5))
    harness.tracker.round_ended([receipt(B, 5, 6, Counts(1, 1))], 1.0)
    harness.tracker.discovered(workload(at(A, 5)))
    tracker = harness.tracker

    assert {A} == tracker._ranges.keys() == tracker._metadata.keys() == {each for each, _ in tracker._lost_until}


def test_a_partition_that_somebody_took_counts_that(harness: TrackerHarness) -> None:
    """Each discovery has the partitions lost to other owners since the last one."""
    for _ in range(2):
        harness.tracker.discovered(replace(workload(at(A, 0), at(B, 0)), fenced={A: Owner(1, "there", "clean")}))

    assert [2, 0] == [harness.snapshot.partitions[each].fenced for each in (A, B)]


def test_rounds_that_ended_are_remembered_with_their_reason(harness: TrackerHarness) -> None:
    """Twenty are kept in full; of all of them, the number by ending is kept."""
    for number in range(30):
        begin(harness, at(A, number))
        harness.tracker.round_ends(Ending.REBALANCE, f"reason {number}")
        harness.tracker.round_ended([receipt(A, number, number + 1, Counts(number, number))], 2.0)
    begin(harness, at(A, 30))
    harness.tracker.round_lost(SparkFailed("no executor"), 3.0)

    assert {Ending.REBALANCE: 30, Ending.LOST: 1} == harness.snapshot.endings
    assert (20, 12, 31) == (
        len(harness.snapshot.ended),
        harness.snapshot.ended[0].number,
        harness.snapshot.ended[-1].number,
    )
    assert ["reason 29", "no executor"] == [each.reason for each in harness.snapshot.ended[-2:]]


def test_a_heartbeat_tells_nobody(harness: TrackerHarness) -> None:
    """It only updates the last heartbeat, as each change does."""
    begin(harness, at(A, 0))
    before, published = harness.snapshot, len(harness.published)
    harness.now += 5
    harness.tracker.beat()

    assert (published, replace(before, alive=1_005.0)) == (len(harness.published), harness.snapshot)
    harness.now += 5
    harness.tracker.stopping("SIGTERM")
    assert (1_010, 1_010) == (harness.snapshot.alive, harness.snapshot.at)


def test_a_service_that_leaves_begins_rounds_and_is_leaving_still(harness: TrackerHarness) -> None:
    """It is reported repeatedly but published once; before a signal there is nothing to report."""
    begin(harness, at(A, 0))
    harness.tracker.leaving("")
    assert Phase.RUNNING is harness.snapshot.phase
    published = len(harness.published)

    harness.tracker.leaving("SIGTERM")
    harness.tracker.leaving("SIGTERM")
    assert published + 1 == len(harness.published)
    begin(harness, at(A, 0))

    assert (Phase.LEAVING, "SIGTERM") == (harness.snapshot.phase, harness.snapshot.cause)


class Ages:
    """Records the requests, and returns prepared ages."""

    def __init__(self) -> None:
        self.asked: list[Mapping[Partition, int]] = []
        self.found: dict[Partition, FirstWaiting] = {}

    def waiting(self, offsets: Mapping[Partition, int]) -> Mapping[Partition, FirstWaiting]:
        self.asked.append(offsets)
        return self.found


class TestAges:
    """The age of waiting records."""

    def look(self, harness: TrackerHarness, committed: int | None, ages: Ages) -> tuple[float | None, float | None]:
        harness.now += 10
        harness.tracker.refreshed(SourceOffsets({A: at(A, committed)}))
        harness.tracker.aged(ages)
        status = harness.snapshot.partitions[A]
        return status.lag_seconds, status.retention_margin(harness.now)

    def test_a_record_that_waits_has_an_age(self, harness: TrackerHarness) -> None:
        """
        It is that of the last look or an earlier one, because later records are younger.

        Once nothing waited, or the offset was moved back, it says nothing about the records that wait now.
        """
        begin(harness, at(A, 40))
        ages = Ages()
        ages.found = {A: FirstWaiting(900.0, 3_600.0)}
        assert (110.0, 3_490.0) == self.look(harness, 60, ages)
        ages.found = {}
        assert (120.0, 3_480.0) == self.look(harness, 70, ages)
        assert (None, None) == self.look(harness, 50, ages)
        ages.found = {A: FirstWaiting(900.0, 3_600.0)}
        self.look(harness, 50, ages)
        assert (0.0, None) == self.look(harness, 100, ages)
        ages.found = {}
        assert (None, None) == self.look(harness, 90, ages)

    def test_only_what_lags_is_read(self, harness: TrackerHarness) -> None:
        """It is read from its next offset, or else from the planned start, if its leader responds."""
        begin(harness, at(A, None), at(B, 100))
        ages = Ages()

        harness.tracker.aged(ages)
        harness.tracker.refreshed(SourceOffsets({A: at(A, None), B: at(B, 100)}, frozenset({A})))
        harness.tracker.aged(ages)
        assert [{A: 0}, {}] == ages.asked


class TestTimes:
    """The times of tasks, as reported with the offsets of their control partitions."""

    def told(self, partition: Partition, waits: float, attempt: Attempt, run: int = 1_000_000) -> PartitionOffsets:
        report = TaskReport(attempt, TaskTimes(waits, commit=Histogram(waits, (int(waits),))))
        metadata = str(OffsetMetadata("id", 0, Counts(1, 1), owner=Owner(run, "here", "clean"), report=report))
        return PartitionOffsets(partition, "id", Watermarks(0, 100, 120), CommittedOffset(40, metadata))

    @pytest.fixture
    def harness(self) -> TrackerHarness:
        harness = TrackerHarness()
        harness.tracker.started(Owner(1_000_000, "here", "clean"))
        return harness

    def look(self, harness: TrackerHarness, *offsets: PartitionOffsets) -> dict[int, float]:
        harness.tracker.refreshed(SourceOffsets({each.partition: each for each in offsets}))
        return {task: times.waits for task, times in harness.snapshot.tasks.items()}

    def test_they_are_counted_once(self, harness: TrackerHarness) -> None:
        """However often they are seen, and on whichever partition; an older report has no effect."""
        first = Attempt(1, 0)

        assert {0: 3} == self.look(harness, self.told(A, 3, first))
        assert {0: 3} == self.look(harness, self.told(A, 3, first))
        assert {0: 5} == self.look(harness, self.told(A, 3, first), self.told(B, 5, first))
        assert {0: 6} == self.look(harness, self.told(B, 6, first), self.told(A, 3, first))
        assert {0: 6, 1: 2} == self.look(harness, self.told(B, 6, first), self.told(A, 2, Attempt(1, 1)))
        assert 6 == harness.snapshot.tasks[0].commit.seconds

    def test_a_round_goes_on_counting(self, harness: TrackerHarness) -> None:
        """Its task starts from zero, and so does a retry; late reports of the previous round do not count."""
        self.look(harness, self.told(A, 3, Attempt(1, 0)))

        assert {0: 4} == self.look(harness, self.told(A, 3, Attempt(1, 0)), self.told(B, 1, Attempt(2, 0)))
        assert {0: 4} == self.look(harness, self.told(A, 7, Attempt(1, 0)), self.told(B, 1, Attempt(2, 0)))
        assert {0: 9} == self.look(harness, self.told(B, 5, Attempt(2, 0, 1)))

    def test_those_of_an_earlier_run_are_not_ours(self, harness: TrackerHarness) -> None:
        """They still exist when the service starts."""
        assert {} == self.look(harness, self.told(A, 3, Attempt(9, 0), run=999_999))
        assert {0: 1} == self.look(harness, self.told(A, 1, Attempt(1, 0)))

    def test_those_of_a_later_run_are_not_ours(self, harness: TrackerHarness) -> None:
        """An upgrade that fails leaves its reports; the times of this run go on beside them."""
        assert {0: 3} == self.look(harness, self.told(A, 3, Attempt(4, 0)))
        assert {0: 3} == self.look(harness, self.told(A, 50, Attempt(9, 0), run=1_000_001))
        assert {0: 5} == self.look(harness, self.told(A, 5, Attempt(4, 0)))

    def test_the_last_report_of_a_round_counts(self, harness: TrackerHarness) -> None:
        """It comes with the receipts."""
        at_the_end = self.told(A, 3, Attempt(1, 0)).committed
        assert at_the_end is not None
        begin(harness, at(A, 40))

        harness.tracker.round_ended([Receipt(A, 40, 40, metadata=at_the_end.metadata)], 1.0)

        assert 3 == harness.snapshot.tasks[0].waits
