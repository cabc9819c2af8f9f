"""Whether a round's plan is still good: what is noticed at a look, and what is left alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.driver.discover import Survey
from app.driver.plan import plan
from app.driver.rebalance import STILL_SECONDS, Review
from app.driver.starting_offsets import Position
from app.errors import NoStartingOffset
from app.model import CommittedOffset, OffsetMetadata, OffsetRange, Partition

PARTITIONS = [Partition("raw", number) for number in range(4)]
A, B, *_ = PARTITIONS
At = dict[Partition, Position]


def at(committed: int | None = 100, stable: int = 1_000, low: int = 0, topic_id: str = "id") -> Position:
    return Position(A, topic_id, low, stable, stable, None if committed is None else CommittedOffset(committed))


def everywhere(position: Position) -> At:
    return {partition: replace(position, partition=partition) for partition in PARTITIONS}


def review(before: At, blocked: tuple[Partition, ...] = (), end: int | None = None, slots: int = 2) -> Review:
    """Begin a round at second 0, two partitions a task."""
    ranges = {
        partition: OffsetRange(partition, position.committed.offset if position.committed else None, 100, end)
        for partition, position in before.items()
        if partition not in blocked
    }
    survey = Survey(ranges, before, {partition: NoStartingOffset(partition, "blocked") for partition in blocked})
    return Review(plan(ranges.values(), {}, slots), survey, 0.0)


BEFORE = everywhere(at(100))
LATER = everywhere(at(500, stable=1_500))


def test_a_good_plan_is_left_alone() -> None:
    """Every partition goes on: nothing to say, and the progress is counted."""
    round_ = review(BEFORE)

    assert not round_.look(LATER, 2, 10)
    assert (4 * 1_000, 10) == (round_.lag, round_.seconds)


def test_records_and_dead_letters_are_counted_by_what_tasks_note() -> None:
    """Offsets would count control records too; and a task that is tried again counts from its own beginning."""
    round_ = review(BEFORE)

    def told(a: OffsetMetadata, b: OffsetMetadata) -> tuple[int, int]:
        noted = {
            p: replace(LATER[p], committed=CommittedOffset(500, str(metadata))) for p, metadata in ((A, a), (B, b))
        }
        round_.look(LATER | noted, 2, 10)
        return round_.records, round_.dead

    assert (110, 3) == told(OffsetMetadata("id", 100, 100, 2), OffsetMetadata("id", 100, 10, 1))
    assert (50, 1) == told(OffsetMetadata("id", 100, 140, 3), OffsetMetadata("id", 100, 20, 1))
    assert (7, 2) == told(OffsetMetadata("id", 400, 7, 2), OffsetMetadata("id", 100, 20, 1))


@pytest.mark.parametrize(
    ("now", "why"),
    [
        ({}, "partitions came or went"),
        (LATER | {Partition("raw", 4): at()}, "partitions came or went"),
        (LATER | {B: at(500, topic_id="other")}, "raw-1: its topic was deleted and created again"),
        (LATER | {B: at(None)}, "raw-1: the group's offset vanished"),
        (LATER | {B: at(99)}, "raw-1: the group's offset was set back"),
        (LATER | {B: at(100, low=200)}, "raw-1: its next record was deleted"),
        (LATER | {B: at(100, stable=50)}, "raw-1: its next record was deleted"),
    ],
)
def test_what_a_task_cannot_mend_is_noticed(now: At, why: str) -> None:
    """The next survey decides what it means; a task that goes on would keep it from that."""
    assert why == review(BEFORE).look(now, 2, 10)


def test_a_lane_that_has_read_ahead_of_retention_is_left_alone() -> None:
    """Old records may be deleted as soon as they are read: where commits go on, nothing is lost."""
    assert not review(BEFORE).look(everywhere(at(500, low=600)), 2, 10)


def test_an_operator_unblocks_a_partition() -> None:
    """Without a restart: the offset that was set for it is noticed, and only that."""
    before = BEFORE | {B: at(None)}
    round_ = review(before, blocked=(B,))

    assert not round_.look(LATER | {B: at(None)}, 2, 10)
    assert "raw-1: it was blocked, and the group's offset was set" == round_.look(LATER | {B: at(7)}, 2, 20)


def test_a_partition_that_stands_still() -> None:
    """Records wait and nothing is committed: its task hangs or cannot write; whoever gets it next may do better."""
    round_ = review(BEFORE)
    stuck = LATER | {B: replace(BEFORE[B], stable=2_000)}

    assert not round_.look(stuck, 2, STILL_SECONDS)
    assert "raw-1: nothing was committed for 20 s" == round_.look(stuck, 2, STILL_SECONDS + 5)


def test_a_partition_without_records_may_stand_still() -> None:
    """An idle partition is no reason for anything, however long; and the time it was idle is not held against it."""
    idle = everywhere(at(1_000))
    round_ = review(idle)
    first_record = everywhere(at(1_000, stable=1_001))

    assert not round_.look(idle, 2, 1_000)
    assert not round_.look(first_record, 2, 2_000)
    assert not round_.look(first_record, 2, 2_000 + STILL_SECONDS)


def test_what_lies_behind_an_agreed_end_does_not_wait() -> None:
    """A backfill does not read it, so it must not count as work that stands still."""
    round_ = review(BEFORE, end=500)
    round_.look(LATER, 2, 10)

    assert not round_.look(LATER, 2, 1_000)
    assert 0 == round_.lag


def test_time_in_which_kafka_was_away_does_not_count() -> None:
    """Nobody could commit; the tasks go on as soon as it is back."""
    round_ = review(BEFORE)
    round_.pause(1_000)

    assert not round_.look(BEFORE, 2, 1_000 + STILL_SECONDS)


def test_slots_that_came_or_went() -> None:
    """A new executor gets work at the next look."""
    assert "there are slots for 3 tasks, not 2" == review(BEFORE).look(LATER, 3, 10)
    assert not review(BEFORE, slots=4).look(LATER, 5, 10)  # no more tasks than partitions


def test_work_that_has_become_uneven() -> None:
    """One task is done, the other has a backlog that two could offset_range."""
    round_ = review(BEFORE)
    (mine, other) = (partition for partition in PARTITIONS if partition.number % 2)
    backlog = {partition: at(500, stable=1_000_000) for partition in (mine, other)}

    assert "the work has become uneven" == round_.look(LATER | backlog, 2, 10)


def test_uneven_work_that_is_done_in_time_is_left_alone() -> None:
    """Where traffic has moved to partitions of one task, and it keeps up, nobody gains by another plan."""
    round_ = review(BEFORE)
    busy = {partition: at(900_000, stable=1_000_000) for partition in PARTITIONS if partition.number % 2}

    assert not round_.look(LATER | busy, 2, 10)


@given(st.lists(st.integers(0, 10_000_000), min_size=4, max_size=4), st.integers(1, 5))
def test_a_plan_that_was_just_made_is_never_thrown_away(backlog: list[int], slots: int) -> None:
    """Whatever the loads: otherwise rounds would end at each look for ever."""
    now = {p: at(200, stable=200 + n) for p, n in zip(PARTITIONS, backlog, strict=True)}
    ranges = [OffsetRange(partition, 200, 200) for partition in PARTITIONS]
    tasks = plan(ranges, dict(zip(PARTITIONS, backlog, strict=True)), slots)

    assert not Review(
        tasks, Survey({offset_range.partition: offset_range for offset_range in ranges}, now, {}), 0.0
    ).look(now, slots, 1)
