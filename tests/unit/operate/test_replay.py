"""A bounded replay: what it reads, where it resumes, and which topics it never writes to."""

from __future__ import annotations

import pytest

from app.cures import reset
from app.errors import ConfigError
from app.model import CommittedOffset, OffsetRange, Outcome, Partition, Receipt, Watermarks
from app.offsets.metadata import OffsetMetadata
from app.operate.lag import PartitionLag
from app.operate.replay import GO_ON, ONCE_ENDED, as_json, group_of, parts, problem_of, refuse_own_topics
from app.topics import OwnTopics

A, B = Partition("raw", 0), Partition("raw", 1)
FIRST = {A: 3, B: 3}


def at(partition: Partition, end: int = 50) -> PartitionLag:
    return PartitionLag(partition, None, Watermarks(3, end, end), topic_id="id")


def test_what_lies_between_two_times() -> None:
    """The end is the last stable offset if no record is that late; if none is as late as the begin, nothing is read."""
    (first,) = parts([at(A), at(B)], {}, {A: 10, B: None}, {A: 20, B: None}, FIRST)
    (second,) = parts([at(A)], {}, {A: 10}, {A: None}, FIRST)

    assert OffsetRange(A, None, 10, 20, "id", 3) == first.left
    assert (10, 50) == (second.left.start, second.end)
    assert [] == parts([at(A)], {}, {A: 10}, {A: 10}, FIRST)


@pytest.mark.parametrize(
    ("first", "begin", "expired"), [(4, 4, True), (4, 5, False), (None, None, True), (4, None, False)]
)
def test_what_retention_may_have_deleted(first: int | None, begin: int | None, expired: bool) -> None:
    """If the range begins at the first record that is left, there may have been earlier ones."""
    found = parts([at(A)], {}, {A: begin}, {A: None}, {A: first})

    assert expired is any(each.expired for each in found)


def test_nothing_has_expired_where_nothing_was_deleted() -> None:
    """A partition that still begins at 0 has all its records."""
    (part,) = parts([PartitionLag(A, None, Watermarks(0, 50, 50))], {}, {A: 0}, {A: None}, {A: 0})

    assert not part.expired


@pytest.mark.parametrize(("begin", "end"), [(10, 50), (None, 50)])
def test_what_an_open_transaction_hides(begin: int | None, end: int) -> None:
    """Records behind it may belong to the range, so it is not finished. With a later readable record they do not."""
    behind = PartitionLag(A, None, Watermarks(3, 50, 59), topic_id="id")
    (part,) = parts([behind], {}, {A: begin}, {A: None}, FIRST)

    assert (end, 9) == (part.end, part.hidden)
    for receipt in (None, Receipt(A, 10, 50)):
        assert f"9 offsets wait behind an open transaction: {ONCE_ENDED}" == problem_of(part, receipt)
    assert all(not each.hidden for each in parts([behind], {}, {A: 10}, {A: 20}, FIRST))


def test_it_goes_on() -> None:
    """A replay resumes at the position of an earlier attempt at the same range, in a group of its own."""
    (part,) = parts([at(A)], {A: CommittedOffset(17)}, {A: 10}, {A: 20}, FIRST)

    assert OffsetRange(A, 17, 17, 20, "id", 3) == part.left
    assert "g.replay.other.5-9" == group_of("g", "other", 5, 9)


@pytest.mark.parametrize(("end", "left"), [(20, 8), (10, 0)])
def test_a_position_that_retention_has_passed(end: int, left: int) -> None:
    """It resumes at the first record that is left, and says that earlier ones may be missing."""
    behind = PartitionLag(A, None, Watermarks(12, 50, 50), topic_id="id")
    (part,) = parts([behind], {A: CommittedOffset(7)}, {A: 12}, {A: max(12, end)}, {A: 12})

    assert (7, 12, left) == (part.left.committed, part.left.start, part.end - part.left.start)
    assert part.expired


def test_a_position_in_a_deleted_topic() -> None:
    """
    Kafka deletes offsets with their topic, but not those of its placeholder on another cluster.

    The range has that offset as committed, so the task may go back from it.
    """
    (part,) = parts([at(A)], {A: CommittedOffset(17, str(OffsetMetadata("older")))}, {A: 10}, {A: 15}, FIRST)

    assert OffsetRange(A, 17, 10, 15, "id", 3) == part.left


def test_topics_of_the_service_are_refused() -> None:
    """The sink would hold lines twice, and the source and Winnow's own topics foreign records."""
    own, made = {"raw", "clean", "dead"}, OwnTopics("dead", "{topic}.there")
    refuse_own_topics({"--into": "other", "--dead-letters": "other.dlq"}, own, made)
    with pytest.raises(ConfigError, match=r"--into: 'clean' .*\n--dead-letters: 'dead'"):
        refuse_own_topics({"--into": "clean", "--dead-letters": "dead"}, own, made)
    for topic in ("dead.replayed", "dead.parked", "raw.there"):
        with pytest.raises(ConfigError, match=f"--into: '{topic}' is one of the service's topics"):
            refuse_own_topics({"--into": topic}, own, made)
    with pytest.raises(ConfigError, match="--into and --dead-letters must differ"):
        refuse_own_topics({"--into": "other", "--dead-letters": "other"})


def test_what_became_of_a_part() -> None:
    """The counts of this attempt, the position, and why it is not finished."""
    (part,) = parts([at(A)], {A: CommittedOffset(17)}, {A: 10}, {A: 20}, FIRST)
    done = Receipt(A, 17, 20, 3, 2, {"empty": 1})

    assert (20, 3, 2, {"empty": 1}, {}, False, None) == tuple(as_json(part, done).values())[4:]
    assert (17, 0, 0, {}, {}, False, None) == tuple(as_json(part, None).values())[4:]
    assert "another replay" in problem_of(part, Receipt(A, 17, 17, outcome=Outcome.FENCED))
    assert "it broke" == problem_of(part, Receipt(A, 17, 17, outcome=Outcome.FAILED, error="it broke"))
    assert problem_of(part, Receipt(A, 17, 19)).startswith("it ended early")


def test_what_blocks_a_part_is_no_matter_of_the_service() -> None:
    """The task's cure would move the service's offset, which has nothing to do with a replay."""
    cure = reset(A, "--to-offset 18")

    (part,) = parts([at(A)], {}, {A: 10}, {A: 20}, FIRST)

    problem = problem_of(part, Receipt(A, 17, 17, outcome=Outcome.BLOCKED, error="it is refused", cure=cure))

    assert f"it is refused: {GO_ON}" == problem
