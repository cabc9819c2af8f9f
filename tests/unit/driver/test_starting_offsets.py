"""A partition starts at the group's offset, else by the user's policy, else it is blocked with a reason."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.driver.starting_offsets import PartitionOffsets, StartPolicy, decide, is_witness, rewound, skipped
from app.errors import Blocked, NoStartingOffset, OffsetVanished, OutOfRange, TopicRecreated, Truncated
from app.model import CommittedOffset, OffsetRange, Partition, Watermarks
from app.offsets.metadata import Counts, OffsetMetadata

P = Partition("raw", 3)


def offsets(committed: int | None, metadata: str = "", topic_id: str = "id-1") -> PartitionOffsets:
    """A partition with offsets 100 to 199, of which those from 190 on belong to open transactions."""
    at = None if committed is None else CommittedOffset(committed, metadata)
    return PartitionOffsets(P, topic_id, Watermarks(100, 190, 200), at)


def start(
    at: PartitionOffsets, starting: str = "earliest", out_of_range: str = "error", **known: object
) -> OffsetRange:
    usual: dict[str, object] = {"first_seen": None, "had_offset_in": None, "is_new": False, "cut": None}
    return decide(at, StartPolicy(starting, out_of_range), **(usual | known))  # type: ignore[arg-type]


@pytest.mark.parametrize("starting", ["earliest", "latest", "error", "time"])
def test_the_groups_offset_wins(starting: str) -> None:
    """If the group has an offset, starting.offsets does not matter."""
    offset_range = start(offsets(150), starting)

    assert (150, 150) == (offset_range.committed, offset_range.start)


@pytest.mark.parametrize(("starting", "expected"), [("earliest", 100), ("latest", 190)])
def test_without_an_offset_the_policy_decides(starting: str, expected: int) -> None:
    """`latest` means after the last committed record, not inside an open transaction."""
    offset_range = start(offsets(None), starting)

    assert (None, expected) == (offset_range.committed, offset_range.start)


def test_a_timestamp_starts_at_the_first_record_of_that_time_or_at_the_end() -> None:
    """A time after the last record starts with what comes next."""
    assert 123 == start(offsets(None), "time", first_seen=123).start
    assert 190 == start(offsets(None), "time", first_seen=None).start


def test_without_an_offset_error_is_an_error() -> None:
    """`starting.offsets: error` blocks the partition, and the error has the command to set an offset."""
    with pytest.raises(
        NoStartingOffset, match=r"raw-3: .*winnow offsets reset -c winnow.yaml --topic raw:3 --to-earliest"
    ):
        start(offsets(None), "error")


def test_an_offset_that_vanished_is_an_error() -> None:
    """If the group had an offset before and has none now, no policy is applied."""
    with pytest.raises(OffsetVanished, match="vanished"):
        start(offsets(None), "earliest", had_offset_in="id-1")


def test_an_offset_that_vanished_with_its_topic_is_not_a_first_start() -> None:
    """Kafka deletes a group's offsets with their topic; a new topic of that name still needs an operator."""
    with pytest.raises(TopicRecreated, match="raw-3: the topic was deleted and recreated"):
        start(offsets(None, topic_id="id-2"), "earliest", had_offset_in="id-1")


@pytest.mark.parametrize("starting", ["earliest", "latest", "error", "time"])
def test_a_new_partition_is_read_from_its_beginning(starting: str) -> None:
    """Whatever starting.offsets says about the first start, it does not apply to a partition added later."""
    assert 100 == start(offsets(None), starting, first_seen=123, is_new=True).start


@pytest.mark.parametrize(
    ("committed", "metadata", "expected"),
    [
        (150, str(OffsetMetadata("id-1")), True),
        (150, str(OffsetMetadata("id-2")), False),
        (150, str(OffsetMetadata(since=1)), True),  # committed before the brokers gave ids
        (150, "", False),
        (150, "kafka-consumer-groups", False),
        (None, "", False),
    ],
)
def test_only_an_offset_that_a_task_committed_is_a_witness(
    committed: int | None, metadata: str, expected: bool
) -> None:
    """An offset set by an operator, or one of a deleted topic, does not show that the group has begun."""
    assert expected is is_witness(offsets(committed, metadata).committed, "id-1")


@pytest.mark.parametrize("committed", [100, 190, 200])
def test_the_edges_are_in_range(committed: int) -> None:
    """The first offset and the end are valid starts."""
    assert committed == start(offsets(committed)).start


def test_out_of_range_names_the_lost_range() -> None:
    """The error names the offsets that were deleted unread."""
    with pytest.raises(OutOfRange, match=r"raw-3@40: offsets 40 to 99 \(at most 60\)"):
        start(offsets(40))


def test_an_offset_above_the_end_is_a_cut() -> None:
    """The error names the offsets that will be written a second time."""
    with pytest.raises(
        Truncated, match=r"raw-3@250: the partition was truncated to 200, .*: offsets 200 to 249 are not"
    ):
        start(offsets(250))


@pytest.mark.parametrize(
    ("at", "cut"),
    [
        (offsets(150), 120),
        (offsets(150, str(OffsetMetadata("id-1", 3))), 120),
        (offsets(150, str(OffsetMetadata("id-1", 3, cut=120))), None),  # a task of another driver has found it
    ],
)
def test_a_cut_partition_that_has_grown_again_stays_blocked(at: PartitionOffsets, cut: int | None) -> None:
    """The committed offset is inside the partition again, but over new records, so growth unblocks nothing."""
    with pytest.raises(Truncated, match=r"raw-3@150: the partition was truncated to 120, .*offsets 120 to 149"):
        start(at, cut=cut)


@pytest.mark.parametrize(("remembered", "lowest"), [(220, 200), (150, 150)])
def test_a_partition_that_was_cut_twice_was_cut_to_the_lower_offset(remembered: int, lowest: int) -> None:
    """It ended below its committed offset before, and does again: all records from the lower end on are new ones."""
    with pytest.raises(
        Truncated, match=rf"raw-3@250: the partition was truncated to {lowest}, .*offsets {lowest} to 249"
    ):
        start(offsets(250), cut=remembered)


@pytest.mark.parametrize(
    ("policy", "committed", "cut", "expected"),
    [
        ("earliest", 40, None, 100),
        ("nearest", 40, None, 100),
        ("latest", 40, None, 190),
        ("earliest", 250, None, 100),
        ("nearest", 250, None, 200),
        ("latest", 250, None, 190),
        ("earliest", 150, 120, 100),
        ("nearest", 150, 120, 120),
        ("latest", 150, 120, 190),
        ("nearest", 150, 90, 100),
    ],
)
def test_out_of_range_can_go_on(policy: str, committed: int, cut: int | None, expected: int) -> None:
    """`earliest` goes to the beginning and `latest` to the end, from both sides; `nearest` to the nearer one."""
    at = offsets(committed)

    offset_range = start(at, out_of_range=policy, cut=cut)

    assert (committed, expected) == (offset_range.committed, offset_range.start)
    unread = min(committed, 200) if cut is None else cut
    assert ((unread, expected) if expected > unread else None) == skipped(offset_range)
    assert ((expected, committed) if expected < committed else None) == rewound(offset_range)


def test_a_start_that_goes_back_says_what_was_counted() -> None:
    """By which a retried task sees that an attempt has come to the same offset again; no other start needs it."""
    metadata = str(OffsetMetadata("id-1", 0, Counts(40, 40)))

    assert 40 == start(offsets(150, metadata), out_of_range="nearest", cut=120).counted
    assert start(offsets(150, metadata)).counted is None
    assert start(offsets(40, metadata), out_of_range="nearest").counted is None
    assert start(offsets(None)).counted is None


def test_a_normal_start_skips_nothing() -> None:
    """A start at the committed offset, or without one, skips nothing and reads nothing again."""
    for at in (offsets(150), offsets(None)):
        assert skipped(start(at)) is None
        assert rewound(start(at)) is None


def test_a_recreated_topic_is_a_named_error() -> None:
    """An offset of a deleted topic means nothing in a new one of the same name."""
    with pytest.raises(TopicRecreated, match="raw-3@150"):
        start(offsets(150, metadata="winnow topic=another"))


@pytest.mark.parametrize(
    "metadata",
    [
        "",
        "kafka-consumer-groups",
        "topic=another",
        "winnow topic=id-1",
        str(OffsetMetadata("id-1", 3, Counts(2, 1, {"empty": 1}))),
    ],
)
def test_an_offset_that_an_operator_set_is_believed(metadata: str) -> None:
    """Kafka's tools write none of our metadata, but the offsets that they set are used."""
    assert 150 == start(offsets(150, metadata=metadata)).start


@given(
    st.integers(0, 300),
    st.sampled_from(["error", "earliest", "latest", "nearest"]),
    st.none() | st.integers(0, 300),
)
def test_a_start_is_always_readable(committed: int, policy: str, cut: int | None) -> None:
    """Whatever offset the group has, a range starts inside the partition or the partition is blocked."""
    at = offsets(committed)
    cut = None if cut is None else min(cut, committed)
    try:
        offset_range = start(at, out_of_range=policy, cut=cut)
    except Blocked:
        assert policy == "error"
        assert cut is not None or not at.watermarks.log_start <= committed <= at.watermarks.high_watermark
    else:
        assert at.watermarks.log_start <= offset_range.start <= at.watermarks.high_watermark
