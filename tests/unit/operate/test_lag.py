"""How far the group is behind: each figure, and the problem if a figure would mislead."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from app.errors import TopicMissing
from app.model import CommittedOffset, Owner, Partition, Watermarks
from app.offsets.metadata import OffsetMetadata
from app.operate.lag import NO_ANSWER, PartitionLag, measure, notes, summed, unread
from tests.fakes import FakeKafka, FakeOffsets
from tests.fakes.driver import DriverKafka, config

A, B = Partition("raw", 0), Partition("raw", 1)
NOW = 1_000.0
OWNER = Owner(1, "host", "clean", 2)


class Records:
    """The timestamps of first records, in milliseconds."""

    def __init__(self, times: Mapping[Partition, int | None]) -> None:
        self.known = times
        self.asked: list[Mapping[Partition, int]] = []

    def times(self, offsets: Mapping[Partition, int]) -> dict[Partition, int | None]:
        self.asked.append(offsets)
        return {each: self.known[each] for each in offsets if each in self.known}


def measured(kafka: DriverKafka, *set_: str, **times: int | None) -> list[PartitionLag]:
    return measure(
        config(*set_), kafka.clients, Records({Partition("raw", int(p[1:])): at for p, at in times.items()}), NOW
    )


def test_the_lag_in_offsets_and_in_seconds() -> None:
    """Seconds are the age of the record at the committed offset."""
    kafka = DriverKafka(p0=(0, 100), p1=(0, 7))
    kafka.committed = {A: CommittedOffset(60), B: CommittedOffset(7)}

    first, second = measured(kafka, p0=960_000, p1=1)

    assert (60, 40, 40, 40.0, "") == (first.offset, first.lag, first.lag_to_end, first.seconds, first.problem)
    assert (7, 0, 0, 0.0, "") == (second.offset, second.lag, second.lag_to_end, second.seconds, second.problem)
    assert {"lag": 40, "max_lag": 40, "max_lag_seconds": 40.0} == summed([first, second])
    assert {"lag": 0, "max_lag": 0, "max_lag_seconds": 0.0} == summed([second]) == summed([])


def test_what_the_totals_leave_out_is_told() -> None:
    """A misspelt group has no offsets, and that is no lag of 0. Nor is an age that no record told."""
    kafka = DriverKafka(p0=(0, 100), p1=(0, 7))
    kafka.committed = {A: CommittedOffset(60)}

    assert "; no offset: 1 of 2 partitions; unknown age: 1 of 2 partitions" == notes(measured(kafka))
    kafka.committed[B] = CommittedOffset(7)
    assert "" == notes(measured(kafka, p0=960_000))


def test_only_what_lags_is_read() -> None:
    """A partition without lag costs no read."""
    kafka = DriverKafka(p0=(0, 100), p1=(0, 7))
    kafka.committed = {A: CommittedOffset(60), B: CommittedOffset(7)}
    records = Records({})

    measure(config(), kafka.clients, records, NOW)

    assert [{A: 60}] == records.asked


@pytest.mark.parametrize(
    ("times", "seconds"),
    [({"p0": None}, 0.0), ({}, None), ({"p0": 2_000_000}, 0.0)],
    ids=["control records only", "unknown", "a clock that is ahead"],
)
def test_seconds_where_no_record_tells(times: dict[str, int | None], seconds: float | None) -> None:
    """0 if only control records wait, unknown if no record was read in time, and never negative."""
    kafka = DriverKafka(p0=(0, 100))
    kafka.committed = {A: CommittedOffset(60)}

    (found,) = measured(kafka, **times)

    assert seconds == found.seconds


@pytest.mark.parametrize(
    ("committed", "watermarks", "offset", "lag", "problem"),
    [
        (None, Watermarks(0, 9, 9), None, None, ""),
        (CommittedOffset(4), None, 4, None, NO_ANSWER),
        (CommittedOffset.not_readable("'x' is not an offset"), Watermarks(0, 9, 9), None, None, ""),
        (CommittedOffset(4), Watermarks(6, 9, 9), 4, 5, "2 offsets were deleted before they were read"),
        (CommittedOffset(12), Watermarks(6, 9, 9), 12, 0, "the partition ends at 9, below the committed offset"),
        (CommittedOffset(8), Watermarks(6, 7, 9), 8, 0, ""),
    ],
)
def test_what_is_wrong_is_said(
    committed: CommittedOffset | None, watermarks: Watermarks | None, offset: int, lag: int, problem: str
) -> None:
    """A missing figure is None, and a sentence says why."""
    at = PartitionLag(A, committed, watermarks)

    assert (offset, lag, problem) == (at.offset, at.lag, at.problem)
    assert (offset, lag, problem or None) == tuple(at.as_json()[key] for key in ("current_offset", "lag", "problem"))


def test_what_is_stored_is_told() -> None:
    """As far as the service stored it: an operator or another tool stores an offset alone."""
    marks, keys = Watermarks(0, 9, 9), ("current_offset", "since", "committed_by", "metadata", "problem")
    text = str(OffsetMetadata("id-1", 3, owner=OWNER))

    by_us = PartitionLag(A, CommittedOffset(5, text), marks).stored_as_json()
    by_others = PartitionLag(A, CommittedOffset(12, "x"), marks).stored_as_json()
    nothing = PartitionLag(A, None, marks).stored_as_json()

    assert [5, 3, OWNER._asdict(), text, None] == [by_us[key] for key in keys]
    below = "the partition ends at 9, below the committed offset"
    assert [12, None, None, "x", below] == [by_others[key] for key in keys]
    assert [None] * len(keys) == [nothing[key] for key in keys]


def test_records_behind_an_open_transaction() -> None:
    """The lag counts up to the last stable offset; Kafka's own tool counts up to the end."""
    at = PartitionLag(A, CommittedOffset(5), Watermarks(0, 5, 9))

    assert (0, 4) == (at.lag, at.lag_to_end)


@pytest.mark.parametrize(
    ("metadata", "lag"), [(OffsetMetadata("id-1"), 40), (OffsetMetadata("id-1", cut=30), 70), (OffsetMetadata("x"), 95)]
)
def test_an_offset_of_another_log_hides_no_lag(metadata: OffsetMetadata, lag: int) -> None:
    """The log was cut at 30, or its topic recreated: what it holds from there on is unread, and grows old."""
    kafka = DriverKafka(p0=(5, 100))
    kafka.committed = {A: CommittedOffset(60, str(metadata))}

    (found,) = measure(config(), kafka.clients, Records({A: 1}), NOW)

    assert (60, lag, lag) == (found.offset, found.lag, found.lag_to_end)
    assert {A: 100 - lag} == unread([found])


def test_a_partition_without_a_leader_hides_no_other() -> None:
    """It is shown with its offset and its problem."""
    kafka = DriverKafka(p0=(0, 100), p1=(0, 7))
    kafka.committed = {A: CommittedOffset(60), B: CommittedOffset(7)}
    kafka.leaderless = {0}

    first, second = measured(kafka)

    assert (60, None, NO_ANSWER) == (first.offset, first.lag, first.problem)
    assert 0 == second.lag


@pytest.mark.parametrize(
    ("committed", "set_", "problem"),
    [
        (
            CommittedOffset(-1, "", "'x' is not an offset"),
            (),
            "'x' is not an offset: stop Winnow, then winnow offsets reset",
        ),
        (CommittedOffset(3), (), "offsets 3 to 4 (at most 2) were deleted before they were read: set out.of.range"),
        (CommittedOffset(3), ("out.of.range=nearest",), "2 offsets were deleted before they were read"),
        (CommittedOffset(7, str(OffsetMetadata("id-0"))), (), "the topic was deleted and recreated"),
        (CommittedOffset(7, str(OffsetMetadata("id-1", blocked="9 of 9: mend it"))), (), "9 of 9: mend it"),
        (None, ("starting.offsets=error",), "the group has no offset here"),
        (None, (), ""),
    ],
)
def test_what_blocks_a_partition_is_a_problem(
    committed: CommittedOffset | None, set_: tuple[str, ...], problem: str
) -> None:
    """The problem is the one that the service would find; a task's reason is in the metadata."""
    kafka = DriverKafka(p0=(5, 100))
    kafka.committed = {} if committed is None else {A: committed}

    (found,) = measure(config(*set_), kafka.clients, Records({}), NOW)

    assert found.problem.startswith(problem)
    assert bool(problem) == bool(found.problem)


def test_a_sink_that_takes_nothing_is_a_problem() -> None:
    """As on the status page: of the partitions whose lines go to a leaderless partition, or of all without the topic."""
    kafka = DriverKafka(p0=(0, 100), p1=(0, 7))
    kafka.sink_leaderless = {1}
    first, second = measured(kafka)
    kafka.sink_gone = TopicMissing("the sink topic 'clean' does not exist", "create it")

    both = measured(kafka)

    assert not first.problem
    assert second.problem.startswith("its output cannot be delivered: clean-1 has no leader")
    assert ["the sink topic 'clean' does not exist: create it"] * 2 == [each.problem for each in both]


def test_an_offset_that_was_left_behind_is_a_problem() -> None:
    """With a new sink.kafka or offsets.store the service does not silently start over, and lag says so without it."""
    kafka, source = DriverKafka(p0=(5, 100), p1=(5, 100)), FakeKafka({})
    source.committed = {A: CommittedOffset(7)}
    source.pending = {A: None}  # the copies are read without waiting for the end of transactions
    kafka.copies = FakeOffsets(source)
    kafka.committed = {B: CommittedOffset(9)}
    store = ["delivery.guarantee=at-least-once", "offsets.store={name: redis, url: 'redis://cache'}"]

    apart, _ = measured(kafka, "sink.kafka={bootstrap.servers: there}")
    first, second = measured(kafka, *store)

    assert apart.problem.startswith("the group's offset exists only on the source's cluster")
    assert "winnow offsets migrate -c winnow.yaml --from source --to kafka" in apart.problem
    assert first.problem.startswith("the group's offset exists only in Kafka, not in the store 'redis'")
    assert "winnow offsets migrate -c winnow.yaml --from kafka --to redis" in first.problem
    assert not second.problem


def test_a_partition_that_is_new_is_not_without_a_start() -> None:
    """If the group has worked on the topic, a partition without an offset starts at its beginning."""
    kafka = DriverKafka(p0=(0, 100), p1=(0, 7))
    kafka.committed = {A: CommittedOffset(60, str(OffsetMetadata("id-1")))}

    assert ["", ""] == [each.problem for each in measured(kafka, "starting.offsets=error")]
