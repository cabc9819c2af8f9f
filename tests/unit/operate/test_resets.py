"""Where offsets go, and their metadata."""

from __future__ import annotations

import pytest

from app.model import CommittedOffset, Owner, Partition, Watermarks
from app.offsets.metadata import Counts, OffsetMetadata
from app.operate.lag import NO_ANSWER, PartitionLag
from app.operate.resets import NO_OFFSET, Goal, Reset, Target, chosen, resets
from tests.fakes.driver import DriverKafka

A, B = Partition("raw", 0), Partition("raw", 1)
OURS = str(OffsetMetadata("id-1", 3, Counts(57, 50, {"empty": 7}), owner=Owner(5, "there", "clean")))


MARKS = Watermarks(10, 90, 95)


def at(offset: int | None = 60, metadata: str = OURS, watermarks: Watermarks | None = MARKS) -> PartitionLag:
    committed = None if offset is None else CommittedOffset(offset, metadata)
    return PartitionLag(A, committed, watermarks, topic_id="id-1")


@pytest.mark.parametrize(
    ("target", "offset", "note"),
    [
        (Target(Goal.EARLIEST), 10, ""),
        (Target(Goal.LATEST), 90, ""),
        (Target(Goal.CURRENT), 60, ""),
        (Target(Goal.OFFSET, 70), 70, ""),
        (Target(Goal.OFFSET, 93), 93, ""),
        (Target(Goal.OFFSET, 5), 10, "5 is out of range, so it moves to the beginning"),
        (Target(Goal.OFFSET, 96), 95, "96 is out of range, so it moves to the end"),
        (Target(Goal.SHIFT, -20), 40, ""),
        (Target(Goal.SHIFT, -60), 10, "0 is out of range, so it moves to the beginning"),
        (Target(Goal.SHIFT, 1), 61, ""),
    ],
)
def test_where_an_offset_goes(target: Target, offset: int, note: str) -> None:
    """As in kafka-consumer-groups, an offset out of range becomes the nearest end, with a note."""
    (reset,) = resets([at()], target, DriverKafka().clients)

    assert (offset, note, offset - 60) == (reset.offset, reset.note, reset.change)


class TimedKafka(DriverKafka):
    """A Kafka with its own first record after a time in each partition."""

    def __init__(self, starts: dict[Partition, int | None]) -> None:
        super().__init__()
        self.starts = starts

    def offsets_at(self, partitions: object, milliseconds: int) -> dict[Partition, int | None]:
        self.asked_for_time.append(milliseconds)
        return self.starts


@pytest.mark.parametrize(
    ("starts", "offset", "note"),
    [({A: 33}, 33, ""), ({A: None}, 90, "no record is that late, so it moves to the end"), ({}, None, NO_ANSWER)],
)
def test_to_a_time(starts: dict[Partition, int | None], offset: int | None, note: str) -> None:
    """The first record at or after the time, or the end of the committed records."""
    kafka = TimedKafka(starts)

    (reset,) = resets([at()], Target(Goal.TIME, 1_000), kafka.clients)

    assert [1_000] == kafka.asked_for_time
    assert (offset, note) == (reset.offset, reset.note)


@pytest.mark.parametrize(
    ("found", "goal", "note"),
    [
        (at(watermarks=None), Goal.EARLIEST, NO_ANSWER),
        (at(None), Goal.SHIFT, NO_OFFSET),
        (at(None), Goal.CURRENT, NO_OFFSET),
    ],
)
def test_what_cannot_be_set(found: PartitionLag, goal: Goal, note: str) -> None:
    """The partition gets no offset, and the note says why."""
    (reset,) = resets([found], Target(goal), DriverKafka().clients)

    assert (None, note) == (reset.offset, reset.note)


def test_the_counts_begin_at_the_offset_that_is_set() -> None:
    """The topic's id stays, to detect a recreated topic; counts and run belong to other records."""
    committed = Reset(at(), 40).committed

    assert OffsetMetadata("id-1", 40) == OffsetMetadata.parse(committed.metadata)
    assert 40 == committed.offset


@pytest.mark.parametrize("metadata", ["", "kafka-consumer-groups", str(OffsetMetadata("another", 3, Counts(7, 7)))])
def test_an_offset_where_no_task_has_worked_shows_nothing(metadata: str) -> None:
    """Otherwise partitions without an offset would count as added later."""
    assert "" == Reset(at(60, metadata), 40).committed.metadata
    assert "" == Reset(at(None), 40).committed.metadata


PARTITIONS = [Partition("raw", number) for number in range(6)] + [Partition("x", 0)]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ([], PARTITIONS),
        (["x"], [Partition("x", 0)]),
        (["raw:1"], [B]),
        (["raw:0,2-3", "x"], [A, Partition("raw", 2), Partition("raw", 3), Partition("x", 0)]),
        (["raw:1", "raw:1"], [B]),
    ],
)
def test_which_partitions(wanted: list[str], expected: list[Partition]) -> None:
    """All, those of a topic, or some of them; each once."""
    assert expected == chosen(wanted, PARTITIONS)


@pytest.mark.parametrize(
    ("wanted", "answer"),
    [
        ("rwa", "'rwa' is not a source topic; the source topics are: raw, x"),
        ("raw:6", "raw-6 does not exist: raw has 6 partitions"),
        ("raw:", "'' is not a partition or a range: write partitions as 0,3-5"),
        ("raw:1-", "'1-' is not a partition or a range: write partitions as 0,3-5"),
    ],
)
def test_what_is_not_there_is_named(wanted: str, answer: str) -> None:
    """A typo must not reset all partitions."""
    with pytest.raises(ValueError, match="^" + answer):
        chosen([wanted], PARTITIONS)
