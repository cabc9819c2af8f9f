"""Whether a round's plan is still good: what a check notices, and what it ignores."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.driver.plan import plan
from app.driver.rebalance import Balance
from app.driver.starting_offsets import PartitionOffsets
from app.driver.workload import SourceOffsets, Workload
from app.errors import NoStartingOffset, Undeliverable
from app.model import CommittedOffset, OffsetRange, Partition, Watermarks
from app.offsets.metadata import OffsetMetadata
from app.runtime import Timings

TIMINGS = Timings()
OVERDUE_SECONDS, START_SECONDS, ELECTION_SECONDS = TIMINGS.commit_overdue, TIMINGS.start, TIMINGS.election
PARTITIONS = [Partition("raw", number) for number in range(4)]
A, B, _, D = PARTITIONS
At = dict[Partition, PartitionOffsets]


def at(committed: int | None = 100, stable: int = 1_000, low: int = 0, topic_id: str = "id") -> PartitionOffsets:
    offset = None if committed is None else CommittedOffset(committed)
    return PartitionOffsets(A, topic_id, Watermarks(low, stable, stable), offset)


def everywhere(each: PartitionOffsets) -> At:
    return {partition: replace(each, partition=partition) for partition in PARTITIONS}


def balance(
    before: At,
    blocked: tuple[Partition, ...] = (),
    end: int | None = None,
    slots: int = 2,
    commit_seconds: float = 0.5,
) -> Balance:
    """Begin a round at second 0 with two partitions per task."""
    ranges = {
        partition: OffsetRange(partition, each.committed.offset if each.committed else None, 100, end)
        for partition, each in before.items()
        if partition not in blocked
    }
    errors = {partition: NoStartingOffset(partition, "blocked") for partition in blocked}
    workload = Workload(before, ranges=ranges, blocked=errors)
    return Balance(plan(ranges.values(), dict.fromkeys(ranges, 0), slots), workload, 0.0, commit_seconds=commit_seconds)


BEFORE = everywhere(at(100))
LATER = everywhere(at(500, stable=1_500))


def test_a_good_plan_is_left_alone() -> None:
    """No rebalance is needed while every partition makes progress."""
    assert not balance(BEFORE).needs_rebalance(SourceOffsets(LATER), 2, 10)


@pytest.mark.parametrize(
    ("now", "why"),
    [
        ({}, "partitions were added or removed"),
        (LATER | {Partition("raw", 4): at()}, "partitions were added or removed"),
        (LATER | {B: at(500, topic_id="other")}, "raw-1: its topic was deleted and recreated"),
        (LATER | {D: at(None)}, "raw-3: the group's offset vanished"),
        (LATER | {D: at(99)}, "raw-3: the group's offset was moved back"),
        (LATER | {B: at(100, low=200)}, "raw-1: its next record was deleted"),
        (LATER | {B: at(100, stable=50)}, "raw-1: its next record was deleted"),
    ],
)
def test_a_change_that_a_task_cannot_handle_is_noticed(now: At, why: str) -> None:
    """The round ends, and the next discovery handles the change."""
    assert why == balance(BEFORE).needs_rebalance(SourceOffsets(now), 2, 10)


def test_a_topic_that_gets_its_id_is_the_same_one() -> None:
    """The brokers were upgraded to Kafka 2.8. An answer without ids may follow."""
    round_ = balance(everywhere(at(100, topic_id="")))

    assert not round_.needs_rebalance(SourceOffsets(LATER), 2, 10)
    assert not round_.needs_rebalance(SourceOffsets(everywhere(at(500, stable=1_500, topic_id=""))), 2, 20)


@pytest.mark.parametrize("lost", [None, 99])
def test_a_control_lane_puts_its_offset_back_before_it_is_fenced(lost: int | None) -> None:
    """The fence would keep it from committing: after a deletion its place would be unknown, and its partition blocked."""
    round_ = balance(BEFORE)  # the tasks are A and C, B and D
    everything = LATER | {A: at(lost), B: at(lost), D: at(lost)}

    assert not round_.needs_rebalance(SourceOffsets(everything), 2, 10)
    assert not round_.needs_rebalance(SourceOffsets(everything | {A: at(500)}), 2, 11)
    assert "raw-3: the group's offset" in round_.needs_rebalance(
        SourceOffsets(everything | {A: at(500), B: at(500)}), 2, 12
    )


@pytest.mark.parametrize("lost", [None, 99])
def test_a_control_lane_that_does_not_put_its_offset_back_has_ended(lost: int | None) -> None:
    """The offset moved before the lane opened. The others have nothing to do, so no lag shows it."""
    idle = everywhere(at(100, stable=100))
    round_ = balance(idle)
    found = SourceOffsets(idle | {A: at(lost, stable=100)})

    assert not round_.needs_rebalance(found, 2, START_SECONDS)
    assert "raw-0: nothing has been committed for 60 s; see the executor's log" == round_.needs_rebalance(found, 2, 60)


@pytest.mark.parametrize("before", [None, 100])
def test_a_truncation_that_only_a_task_has_found_is_noticed(before: int | None) -> None:
    """The log has grown to the committed offset again, so nothing seems to wait. What it means is decided once."""
    round_ = balance(everywhere(at(before, stable=100)))
    told = replace(
        at(100, stable=100), committed=CommittedOffset(100, str(OffsetMetadata("id", blocked="cut", cut=90)))
    )
    found = SourceOffsets(everywhere(at(100, stable=100)) | {B: told})

    assert "raw-1: a task has found that its log was truncated" == round_.needs_rebalance(found, 2, 10)
    assert not round_.needs_rebalance(found, 2, 20)


def test_a_lane_that_has_read_ahead_of_retention_is_left_alone() -> None:
    """Records may be deleted as soon as they are read. As long as commits continue, nothing is lost."""
    assert not balance(BEFORE).needs_rebalance(SourceOffsets(everywhere(at(500, low=600))), 2, 10)


@pytest.mark.parametrize("edge", [at(100, low=100), at(100, stable=100)])
def test_a_lane_at_an_end_of_its_partition_is_left_alone(edge: PartitionOffsets) -> None:
    """Retention may delete exactly what was read, and a partition may have no record left."""
    assert not balance(BEFORE | {B: at(100)}).needs_rebalance(SourceOffsets(LATER | {B: edge}), 2, 10)


@pytest.mark.parametrize("out_of_range", [at(5, low=100), at(2_000, stable=1_000)])
def test_a_task_has_time_to_commit_where_out_of_range_has_chosen(out_of_range: PartitionOffsets) -> None:
    """On a busy machine that takes longer than a look, and would never happen if each look ended the round."""
    before = BEFORE | {B: out_of_range}
    round_ = balance(before)

    assert not round_.needs_rebalance(SourceOffsets(LATER | {B: out_of_range}), 2, 10)
    assert "raw-1: its next record was deleted" == round_.needs_rebalance(
        SourceOffsets(LATER | {B: replace(out_of_range, watermarks=Watermarks(101, 2_500, 2_500))}), 2, 20
    )


def test_an_operator_unblocks_a_partition() -> None:
    """No restart is needed: the check notices the operator's offset, and nothing else."""
    before = BEFORE | {B: at(None)}
    round_ = balance(before, blocked=(B,))

    assert not round_.needs_rebalance(SourceOffsets(LATER | {B: at(None)}), 2, 10)
    assert "raw-1: it was blocked, and the group's offset has been set" == round_.needs_rebalance(
        SourceOffsets(LATER | {B: at(7)}), 2, 20
    )


def test_a_stalled_partition() -> None:
    """If records wait without commits, the task hangs or cannot write, so the partition is planned again."""
    round_ = balance(BEFORE)
    stuck = LATER | {B: replace(BEFORE[B], watermarks=Watermarks(0, 2_000, 2_000))}

    assert not round_.needs_rebalance(SourceOffsets(stuck), 2, OVERDUE_SECONDS)
    assert "raw-1: nothing has been committed for 20 s; see the executor's log" == round_.needs_rebalance(
        SourceOffsets(stuck), 2, OVERDUE_SECONDS + 5
    )


def test_a_partition_that_commits_seldom_is_not_stalled() -> None:
    """Records wait for their commit by design; only a longer wait is a stall."""
    round_ = balance(BEFORE, commit_seconds=60)
    waiting = LATER | {B: replace(BEFORE[B], watermarks=Watermarks(0, 2_000, 2_000))}

    assert not round_.needs_rebalance(SourceOffsets(waiting), 2, 60 + OVERDUE_SECONDS)
    assert "raw-1: nothing has been committed for 80 s; see the executor's log" == round_.needs_rebalance(
        SourceOffsets(waiting), 2, 80
    )


def test_a_partition_of_a_large_task_may_wait_longer() -> None:
    """Opening many partitions takes long, and each rarely gets its turn while they catch up."""
    few, many = (balance(BEFORE, slots=slots) for slots in (4, 1))  # one partition in a task, and all four
    for round_, slots in ((few, 4), (many, 1)):
        assert not round_.needs_rebalance(SourceOffsets(LATER), slots, 0.0)
    stuck = SourceOffsets(everywhere(at(1_000)) | {B: replace(LATER[B], watermarks=Watermarks(0, 2_000, 2_000))})

    assert not few.needs_rebalance(stuck, 4, 15.75)
    assert not many.needs_rebalance(stuck, 1, 16.5)
    assert "raw-1: nothing has been committed for 16 s" in few.needs_rebalance(stuck, 4, 16.0)
    assert "raw-1: nothing has been committed for 17 s" in many.needs_rebalance(stuck, 1, 16.75)


def test_a_task_that_has_not_committed_yet_may_take_longer() -> None:
    """On a busy machine its worker takes long to start, whether or not another task has started."""
    round_ = balance(BEFORE, slots=4)
    stuck = SourceOffsets(LATER | {B: replace(BEFORE[B], watermarks=Watermarks(0, 2_000, 2_000))})

    assert not round_.needs_rebalance(stuck, 4, START_SECONDS + 15.75)
    assert "raw-1: nothing has been committed for 46 s" in round_.needs_rebalance(stuck, 4, START_SECONDS + 16.0)


def test_an_idle_partition_is_not_stalled() -> None:
    """A partition without records never causes a rebalance, and its idle time does not count once records arrive."""
    idle = everywhere(at(1_000))
    round_ = balance(idle)
    first_record = everywhere(at(1_000, stable=1_001))

    assert not round_.needs_rebalance(SourceOffsets(idle), 2, 1_000)
    assert not round_.needs_rebalance(SourceOffsets(first_record), 2, 2_000)
    assert not round_.needs_rebalance(SourceOffsets(first_record), 2, 2_000 + OVERDUE_SECONDS)


def test_records_after_an_agreed_end_do_not_count_as_waiting() -> None:
    """A backfill does not read them, so its partition is not stalled."""
    round_ = balance(BEFORE, end=500)
    round_.needs_rebalance(SourceOffsets(LATER), 2, 10)

    assert not round_.needs_rebalance(SourceOffsets(LATER), 2, 1_000)


def test_an_outage_of_kafka_does_not_count_as_a_stall() -> None:
    """No task could commit during the outage, and the tasks continue after it."""
    round_ = balance(BEFORE)
    round_.pause(1_000)

    assert not round_.needs_rebalance(SourceOffsets(BEFORE), 2, 1_000 + OVERDUE_SECONDS)


def test_a_partition_that_cannot_be_read_is_not_stalled() -> None:
    """Its last known offsets say nothing about its task. Its time counts again once it responds."""
    round_ = balance(BEFORE)
    stuck = everywhere(at(1_000)) | {B: replace(BEFORE[B], watermarks=Watermarks(0, 2_000, 2_000))}

    assert not round_.needs_rebalance(SourceOffsets(stuck, frozenset({B})), 2, 1_000)
    assert not round_.needs_rebalance(SourceOffsets(stuck), 2, 1_000 + OVERDUE_SECONDS)
    assert "raw-1: nothing has been committed for 20 s; see the executor's log" == round_.needs_rebalance(
        SourceOffsets(stuck), 2, 1_020
    )


def test_a_partition_whose_output_nobody_takes_is_not_stalled() -> None:
    """No other task could deliver it, so its backlog is no reason to replan. Its time counts again later."""
    round_ = balance(BEFORE)
    lost = [partition for partition in PARTITIONS if partition.number % 2]
    backlog = everywhere(at(1_000)) | dict.fromkeys(lost, at(100, stable=1_000_000))
    undeliverable = {each: Undeliverable(each, "clean-1 has no leader") for each in lost}

    assert not round_.needs_rebalance(SourceOffsets(backlog, undeliverable=undeliverable), 2, 1_000)
    assert not round_.needs_rebalance(SourceOffsets(backlog, undeliverable=undeliverable), 2, 2_000)
    assert not round_.needs_rebalance(SourceOffsets(backlog), 2, 2_010)
    later = SourceOffsets(backlog | dict.fromkeys(lost, at(101, stable=1_000_000)))
    assert "the work has become uneven" == round_.needs_rebalance(later, 2, 2_010 + ELECTION_SECONDS)


def test_an_election_is_no_time_to_divide_the_work_anew() -> None:
    """When a partition loses its leader, all partitions pause, and their loads cannot be judged."""
    round_ = balance(BEFORE)
    backlog = {partition: at(500, stable=1_000_000) for partition in PARTITIONS if partition.number % 2}
    found = SourceOffsets(LATER | backlog, frozenset({A}))

    assert not round_.needs_rebalance(found, 2, 10)
    assert not round_.needs_rebalance(found, 2, 10 + ELECTION_SECONDS - 1)
    assert "the work has become uneven" == round_.needs_rebalance(found, 2, 10 + ELECTION_SECONDS)


def test_a_leaderless_partition_that_answers_again_is_planned() -> None:
    """It was not part of the round and needs no restart; until it responds, the round continues."""
    without = {partition: each for partition, each in BEFORE.items() if partition != B}
    round_ = balance(without)
    later = {partition: LATER[partition] for partition in without}

    assert not round_.needs_rebalance(SourceOffsets(later, frozenset({B})), 2, 10)
    assert "partitions were added or removed" == round_.needs_rebalance(SourceOffsets(LATER), 2, 20)


def test_slots_that_came_or_went() -> None:
    """A new executor gets work after the next check."""
    assert "there are slots for 3 tasks instead of 2" == balance(BEFORE).needs_rebalance(SourceOffsets(LATER), 3, 10)
    assert not balance(BEFORE, slots=4).needs_rebalance(SourceOffsets(LATER), 5, 10)  # no more tasks than partitions


def test_work_that_has_become_uneven() -> None:
    """If one task is done and the other has a backlog that two could divide, the round ends."""
    round_ = balance(BEFORE)
    (mine, other) = (partition for partition in PARTITIONS if partition.number % 2)
    backlog = {partition: at(500, stable=1_000_000) for partition in (mine, other)}

    assert "the work has become uneven" == round_.needs_rebalance(SourceOffsets(LATER | backlog), 2, 10)


def test_uneven_work_that_is_done_in_time_is_left_alone() -> None:
    """If all traffic has moved to one task and it keeps up, another plan gains nothing."""
    round_ = balance(BEFORE)
    busy = {partition: at(900_000, stable=1_000_000) for partition in PARTITIONS if partition.number % 2}

    assert not round_.needs_rebalance(SourceOffsets(LATER | busy), 2, 10)


@pytest.mark.parametrize(
    ("quiet", "busy", "uneven"),
    [
        # one task has 1.5 times as much to do as it need have, or a record more; without records a partition counts 1,000
        ((300, 0, 0), (900, 0, 1_000), False),
        ((300, 0, 0), (900, 0, 1_001), True),
        # it does as much as waits for it, or a record less
        ((900, 400, 500), (900, 10_000, 19_100), False),
        ((900, 400, 500), (900, 10_000, 19_101), True),
        # what arrives will arrive again, so tasks whose backlogs are alike are not alike
        ((30_000, 10_000, 0), (900, 29_000, 58_100), True),
        # and tasks whose backlogs are not alike may be
        ((1_000, 20_000, 40_000), (60_000, 10_000, 0), False),
    ],
)
def test_a_load_is_what_waits_and_what_arrives(
    quiet: tuple[int, int, int], busy: tuple[int, int, int], uneven: bool
) -> None:
    """The load is computed from the lag at the last refresh, and the records processed and arrived since."""
    before, now = dict[Partition, PartitionOffsets](), dict[Partition, PartitionOffsets]()
    for partition in PARTITIONS:
        lag, done, arrived = busy if partition.number % 2 else quiet
        before[partition] = at(100, stable=100 + lag)
        now[partition] = at(100 + done, stable=100 + lag + arrived)

    why = balance(before).needs_rebalance(SourceOffsets(now), 2, 10)

    assert ("the work has become uneven" if uneven else "") == why


@given(st.lists(st.integers(0, 10_000_000), min_size=4, max_size=4), st.integers(1, 5))
def test_a_plan_that_was_just_made_is_never_thrown_away(backlog: list[int], slots: int) -> None:
    """Whatever the loads, a new plan passes its own check; otherwise every round would end at once."""
    now = {p: at(200, stable=200 + n) for p, n in zip(PARTITIONS, backlog, strict=True)}
    ranges = [OffsetRange(partition, 200, 200) for partition in PARTITIONS]
    tasks = plan(ranges, dict(zip(PARTITIONS, backlog, strict=True)), slots)

    workload = Workload(now, ranges={each.partition: each for each in ranges})
    assert not Balance(tasks, workload, 0.0, commit_seconds=0.5).needs_rebalance(SourceOffsets(now), slots, 1)
