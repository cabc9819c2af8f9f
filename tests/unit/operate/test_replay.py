"""A bounded replay: what it reads, where it resumes, and which topics it never writes to."""

from __future__ import annotations

import pytest

from app.cures import reset
from app.errors import ConfigError
from app.model import CommittedOffset, OffsetRange, Outcome, Partition, Receipt, Watermarks
from app.offsets.metadata import OffsetMetadata
from app.operate.lag import PartitionLag
from app.operate.replay import GO_ON, as_json, group_of, parts, problem_of, refuse_own_topics
from app.topics import OwnTopics

A, B = Partition("raw", 0), Partition("raw", 1)


def at(partition: Partition, end: int = 50) -> PartitionLag:
    return PartitionLag(partition, None, Watermarks(3, end, end + 9), topic_id="id")


def test_what_lies_between_two_times() -> None:
    """The end is the last stable offset if no record is that late; if none is as late as the begin, nothing is read."""
    (first,) = parts([at(A), at(B)], {}, {A: 10, B: None}, {A: 20, B: None})
    (second,) = parts([at(A)], {}, {A: 10}, {A: None})

    assert OffsetRange(A, None, 10, 20, "id", 3) == first.range
    assert (10, 50) == (second.start, second.end)
    assert [] == parts([at(A)], {}, {A: 10}, {A: 10})


def test_it_goes_on() -> None:
    """A replay resumes at the position of an earlier attempt at the same range, in a group of its own."""
    (part,) = parts([at(A)], {A: CommittedOffset(17)}, {A: 10}, {A: 20})

    assert OffsetRange(A, 17, 17, 20, "id", 3) == part.range
    assert "g.replay.other.5-9" == group_of("g", "other", 5, 9)


def test_a_position_in_a_deleted_topic() -> None:
    """
    Kafka deletes offsets with their topic, but not those of its placeholder on another cluster.

    The range has that offset as committed, so the task may go back from it.
    """
    (part,) = parts([at(A)], {A: CommittedOffset(17, str(OffsetMetadata("older")))}, {A: 10}, {A: 15})

    assert OffsetRange(A, 17, 10, 15, "id", 3) == part.range


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
    (part,) = parts([at(A)], {A: CommittedOffset(17)}, {A: 10}, {A: 20})
    done = Receipt(A, 17, 20, 3, 2, {"empty": 1})

    assert (20, 3, 2, {"empty": 1}, None) == tuple(as_json(part, done).values())[4:]
    assert (17, 0, 0, {}, None) == tuple(as_json(part, None).values())[4:]
    assert "another replay" in problem_of(Receipt(A, 17, 17, outcome=Outcome.FENCED))
    assert "it broke" == problem_of(Receipt(A, 17, 17, outcome=Outcome.FAILED, error="it broke"))


def test_what_blocks_a_part_is_no_matter_of_the_service() -> None:
    """The task's cure would move the service's offset, which has nothing to do with a replay."""
    cure = reset(A, "--to-offset 18")

    problem = problem_of(Receipt(A, 17, 17, outcome=Outcome.BLOCKED, error="it is refused", cure=cure))

    assert f"it is refused: {GO_ON}" == problem
