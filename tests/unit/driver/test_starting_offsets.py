"""Where a partition starts: at the group's offset, else by the user's policy, else it is blocked with a reason."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.driver.starting_offsets import PartitionOffsets, StartPolicy, decide, skipped
from app.errors import Blocked, NoStartingOffset, OffsetVanished, OutOfRange, TopicRecreated
from app.model import CommittedOffset, OffsetRange, Partition, Watermarks
from app.offsets.metadata import Counts, OffsetMetadata

P = Partition("raw", 3)


def offsets(committed: int | None, metadata: str = "", topic_id: str = "id-1") -> PartitionOffsets:
    """A partition that holds 100 to 199, of which 190 and more belong to open transactions."""
    at = None if committed is None else CommittedOffset(committed, metadata)
    return PartitionOffsets(P, topic_id, Watermarks(100, 190, 200), at)


def start(
    at: PartitionOffsets, starting: str = "earliest", out_of_range: str = "error", **known: object
) -> OffsetRange:
    usual: dict[str, object] = {"first_seen": None, "had_offset_in": None, "joined_later": False}
    return decide(at, StartPolicy(starting, out_of_range), **(usual | known))  # type: ignore[arg-type]


@pytest.mark.parametrize("starting", ["earliest", "latest", "error", "timestamp"])
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
    assert 123 == start(offsets(None), "timestamp", first_seen=123).start
    assert 190 == start(offsets(None), "timestamp", first_seen=None).start


def test_without_an_offset_error_is_an_error() -> None:
    """`starting.offsets: error` blocks the partition, and the error names the command that sets an offset."""
    with pytest.raises(NoStartingOffset, match=r"raw-3: .*reset-offsets"):
        start(offsets(None), "error")


def test_an_offset_that_vanished_is_an_error() -> None:
    """If the group had an offset before and has none now, no policy is applied."""
    with pytest.raises(OffsetVanished, match="vanished"):
        start(offsets(None), "earliest", had_offset_in="id-1")


def test_an_offset_that_vanished_with_its_topic_is_not_a_first_start() -> None:
    """Kafka deletes a group's offsets with their topic; a new topic of that name still waits for an operator."""
    with pytest.raises(TopicRecreated, match="raw-3: the topic was deleted and created again"):
        start(offsets(None, topic_id="id-2"), "earliest", had_offset_in="id-1")


def test_a_partition_that_joined_later_is_read_from_its_beginning() -> None:
    """Records written between a partition's creation and its discovery are not skipped by `latest`."""
    assert 100 == start(offsets(None), "latest", joined_later=True).start


@pytest.mark.parametrize("committed", [100, 190, 200])
def test_the_edges_are_in_range(committed: int) -> None:
    """The first offset and the end are valid starts."""
    assert committed == start(offsets(committed)).start


def test_out_of_range_names_the_lost_range() -> None:
    """The error names the offsets that were deleted unread."""
    with pytest.raises(OutOfRange, match=r"raw-3@40: offsets 40 to 99 \(60 at most\)"):
        start(offsets(40))
    with pytest.raises(OutOfRange, match="ends at 200"):
        start(offsets(201))


@pytest.mark.parametrize(("policy", "expected"), [("earliest", 100), ("latest", 190)])
def test_out_of_range_can_go_on(policy: str, expected: int) -> None:
    """With a policy the partition goes on, and the skipped range is known."""
    at = offsets(40)

    offset_range = start(at, out_of_range=policy)

    assert (40, expected) == (offset_range.committed, offset_range.start)
    assert (40, expected) == skipped(at, offset_range)


def test_a_normal_start_skips_nothing() -> None:
    """A start at the committed offset, or without one, has no skipped range."""
    assert skipped(offsets(150), start(offsets(150))) is None
    assert skipped(offsets(None), start(offsets(None))) is None


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
    """Kafka's tools write no metadata of ours, and the offsets that they set are used."""
    assert 150 == start(offsets(150, metadata=metadata)).start


@given(
    st.integers(0, 300),
    st.sampled_from(["error", "earliest", "latest"]),
)
def test_a_start_is_always_readable(committed: int, policy: str) -> None:
    """Whatever offset the group has, a range starts inside the partition or the partition is blocked."""
    at = offsets(committed)
    try:
        offset_range = start(at, out_of_range=policy)
    except Blocked:
        assert policy == "error"
        assert not at.watermarks.log_start <= committed <= at.watermarks.high_watermark
    else:
        assert at.watermarks.log_start <= offset_range.start <= at.watermarks.high_watermark
