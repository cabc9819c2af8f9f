"""Where offsets go, their metadata, and what is set."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

import pytest

from app.errors import NotAllowed, PartlySet, ServiceRuns, Transient, Unreachable, WinnowError
from app.model import CommittedOffset, Owner, Partition, Watermarks
from app.offsets.metadata import Counts, OffsetMetadata
from app.operate import resets as module
from app.operate.lag import NO_ANSWER, PartitionLag, offsets_of
from app.operate.resets import (
    NO_OFFSET,
    OF_ANOTHER_LOG,
    Goal,
    Reset,
    Target,
    carry_out,
    chosen,
    options,
    resets,
)
from app.operate.running import StoppedService
from tests.fakes.driver import DriverKafka, config

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


OTHERS = [
    at(metadata=str(OffsetMetadata("id-1", 3, blocked="cut", cut=50))),
    at(96),
    at(metadata=str(OffsetMetadata("id-0", 3))),
]
"""Offsets that say nothing about this log: it was cut and grew again, is shorter, or is another topic's."""


@pytest.mark.parametrize(
    ("found", "goal", "note"),
    [
        (at(watermarks=None), Goal.EARLIEST, NO_ANSWER),
        (at(None), Goal.SHIFT, NO_OFFSET),
        (at(None), Goal.CURRENT, NO_OFFSET),
        *((each, goal, OF_ANOTHER_LOG) for each in OTHERS for goal in (Goal.CURRENT, Goal.SHIFT)),
    ],
)
def test_what_cannot_be_set(found: PartitionLag, goal: Goal, note: str) -> None:
    """The partition gets no offset, and the note says why: what `out.of.range: error` blocks is not passed over."""
    (reset,) = resets([found], Target(goal), DriverKafka().clients)

    assert (None, note) == (reset.offset, reset.note)


@pytest.mark.parametrize("found", OTHERS, ids=["cut", "still shorter", "another topic"])
def test_the_way_out_of_an_offset_of_another_log(found: PartitionLag) -> None:
    """Once an absolute goal has set it, `--to-current` takes the whole group, which a change of the sink needs."""
    (chosen_one,) = resets([found], Target(Goal.EARLIEST), DriverKafka().clients)

    after = replace(found, committed=chosen_one.committed)

    assert (10, "") == (chosen_one.offset, chosen_one.note)
    assert [10] == [each.offset for each in resets([after], Target(Goal.CURRENT), DriverKafka().clients)]


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
FOUND = [PartitionLag(each, None, None) for each in PARTITIONS]


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
    assert expected == [each.partition for each in chosen(wanted, FOUND)]


@pytest.mark.parametrize(
    ("wanted", "answer"),
    [
        ("rwa", "'rwa' is not a source topic; the source topics are: raw, x"),
        ("raw:6", "raw-6 does not exist: raw has 6 partitions"),
        ("raw:", "'' is not a partition or a range: write partitions as 0,3-5"),
        ("raw:7,6", "raw-7 does not exist: raw has 6 partitions"),  # at once: a range may name billions
        ("raw:5-3", "'5-3' is not a partition or a range: write partitions as 0,3-5"),
        ("raw:1-", "'1-' is not a partition or a range: write partitions as 0,3-5"),
    ],
)
def test_what_is_not_there_is_named(wanted: str, answer: str) -> None:
    """A typo must not reset all partitions."""
    with pytest.raises(ValueError, match="^" + answer):
        chosen([wanted], FOUND)


@pytest.mark.parametrize("partitions", [[], [A], [A, B, Partition("raw", 3), Partition("x", 0)]])
def test_partitions_are_named_as_they_are_chosen(partitions: list[Partition]) -> None:
    """What a message says can be given to the command."""
    named = options(reversed(partitions)).removeprefix("--topic ").split(" --topic ")

    assert partitions == ([] if named == [""] else [each.partition for each in chosen(named, FOUND)])


class StoredGroup(DriverKafka):
    """A group at offset 50 in each of three partitions, one of which may fail to be set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(p0=(0, 100), p1=(0, 100), p2=(0, 100))
        self.committed = {each: CommittedOffset(50) for each in self.watermark}
        self.failing: dict[Partition, BaseException] = {}
        self.pending: set[Partition] = set()
        self.before_fence: Callable[[], object] = lambda: None
        self.sleeps: list[Callable[[], object]] = []
        """What happens while a running service is looked for, before and after."""
        sleep = lambda _: self.sleeps.pop(0)() if self.sleeps else None  # noqa: E731
        monkeypatch.setattr(module, "StoppedService", partial(StoppedService, sleep=sleep))

    def load(self, partitions: Iterable[Partition], *, stable: bool) -> dict[Partition, CommittedOffset]:
        if stable and not self.pending.isdisjoint(partitions):
            raise Unreachable("Kafka is not responding")
        return super().load(partitions, stable=stable)

    def reset(self, partition: Partition, offset: int, metadata: str) -> None:
        if partition in self.failing:
            raise self.failing[partition]
        super().reset(partition, offset, metadata)

    def fence(self, partitions: object) -> set[Partition]:
        self.before_fence()
        return super().fence(partitions)  # type: ignore[arg-type]

    def commit(self, offset: int) -> None:
        self.committed[A] = CommittedOffset(offset)

    def plan(self, goal: Goal, value: int = 0) -> list[Reset]:
        return resets(offsets_of(config(), self.clients), Target(goal, value), self.clients)

    def set(self, planned: list[Reset]) -> None:
        carry_out(planned, self.clients, config(), lambda: None)

    @property
    def offsets(self) -> list[int]:
        return [at.offset for _, at in sorted(self.committed.items())]


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> StoredGroup:
    return StoredGroup(monkeypatch)


def test_offsets_are_set(group: StoredGroup) -> None:
    """All that were planned."""
    group.set(group.plan(Goal.SHIFT, -20))

    assert [30, 30, 30] == group.offsets


def test_a_pending_offset_keeps_no_partition_from_being_set(group: StoredGroup) -> None:
    """It may hang, and at least once nothing ends what an exactly-once service has left open."""
    group.pending = {B}

    group.set(group.plan(Goal.SHIFT, -20))

    assert [30, 30, 30] == group.offsets


@pytest.mark.parametrize("when", ["before the answer", "by the fence"])
@pytest.mark.parametrize("goal", [Goal.CURRENT, Goal.SHIFT, Goal.EARLIEST])
def test_a_plan_for_offsets_of_before_is_refused(group: StoredGroup, goal: Goal, when: str) -> None:
    """
    The service committed after the offsets were read, and stopped before it was looked for: lines would come twice.

    Or a transaction that was about to end was ended by the fence.
    """
    planned = group.plan(goal)
    if when == "by the fence":
        group.before_fence = partial(group.commit, 90)
    else:
        group.commit(90)

    with pytest.raises(ServiceRuns, match=r"^raw-0 was committed since it was read: 50 then, 90 now; nothing was"):
        group.set(planned)
    assert [90, 50, 50] == group.offsets


TIMED_OUT = Transient(B, "committing the offset failed", 30)


@pytest.mark.parametrize(
    ("failing", "error", "set_before", "why", "rest"),
    [
        (B, TIMED_OUT, 1, "raw-1@30: committing the offset failed", "raw:1-2"),
        (A, TIMED_OUT, 0, "raw-1@30: committing", "raw:0-2"),
        (B, NotAllowed("no"), 1, "no", "raw:1-2"),
        (Partition("raw", 2), KeyboardInterrupt(), 2, "it was interrupted", "raw:2"),
    ],
)
def test_who_repeats_a_reset_that_failed_is_told_what_is_set(
    *, group: StoredGroup, failing: Partition, error: BaseException, set_before: int, why: str, rest: str
) -> None:
    """A second shift of all partitions would move those that are set twice, and skip records."""
    group.failing = {failing: error}

    with pytest.raises(PartlySet) as caught:
        group.set(group.plan(Goal.SHIFT, -20))

    assert [30] * set_before + [50] * (3 - set_before) == group.offsets
    assert caught.value.cause.startswith(f"{set_before} of 3 offsets were set, then {why}")
    assert caught.value.cure.endswith(f"but --shift-by only for what is not set, at most --topic {rest}")
    assert 3 == caught.value.exit_code


def test_so_is_who_is_told_only_afterwards(group: StoredGroup) -> None:
    """All are set, but a running service overwrote one, or Kafka did not answer the last look."""
    group.sleeps = [lambda: None, partial(group.commit, 90)]

    with pytest.raises(PartlySet, match=r"^3 of 3 offsets were set, then .* is running: raw-0 was set to 30"):
        group.set(group.plan(Goal.SHIFT, -20))


@pytest.mark.parametrize("error", [NotAllowed("no"), Unreachable("away")])
def test_where_nothing_was_set_the_error_says_only_why(group: StoredGroup, error: WinnowError) -> None:
    """The command can be repeated as it was."""
    group.failing = {A: error}

    with pytest.raises(type(error)):
        group.set(group.plan(Goal.SHIFT, -20))


@pytest.mark.parametrize("when", ["the look for a service", "the fence"])
def test_nor_is_anything_set_where_it_was_interrupted_before(group: StoredGroup, when: str) -> None:
    """It said that a shift cannot be repeated."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    if when == "the fence":
        group.before_fence = interrupt
    else:
        group.sleeps = [interrupt]

    with pytest.raises(KeyboardInterrupt):
        group.set(group.plan(Goal.SHIFT, -20))
