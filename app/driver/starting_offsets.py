"""Decides where each partition starts. Pure: what Kafka said in, a offset_range or a named reason out."""

from __future__ import annotations

from dataclasses import dataclass

from app.errors import NoStartingOffset, OffsetVanished, OutOfRange, TopicRecreated
from app.model import CommittedOffset, OffsetMetadata, OffsetRange, Partition


@dataclass(frozen=True, slots=True)
class Position:
    """
    What Kafka says of one source partition.

    Args:
        partition: which.
        topic_id: the id of its topic; a recreated topic has another one. Empty where the broker gives none.
        low: the first offset that still exists.
        stable: the last stable offset: committed records end here.
        high: the high watermark.
        committed: what the group remembers, if anything.
    """

    partition: Partition
    topic_id: str
    low: int
    stable: int
    high: int
    committed: CommittedOffset | None


@dataclass(frozen=True, slots=True)
class Policy:
    """What the user wants where the group's offset does not decide."""

    starting: str
    out_of_range: str


def decide(
    at: Position, policy: Policy, *, first_seen: int | None, had_offset: bool, joined_later: bool
) -> OffsetRange:
    """
    Decide where a partition starts.

    Args:
        at: what Kafka says now.
        policy: the user's wishes.
        first_seen: the offset to start from where `starting.offsets` names a time.
        had_offset: whether this service has seen an offset of the group here before.
        joined_later: whether the partition appeared while the service ran: then all of it is new to us.

    Raises:
        Blocked: with what an operator must know to go on.
    """
    if at.committed is None:
        if had_offset:
            what = "the group's offset vanished (expired or deleted): set it with kafka-consumer-groups --reset-offsets"
            raise OffsetVanished(at.partition, what)
        return _offset_range(at, at.low if joined_later else _starting(at, policy, first_seen))
    noted = OffsetMetadata.read(at.committed.metadata).topic_id
    if noted and at.topic_id and noted != at.topic_id:
        what = (
            "the topic was deleted and created again since this offset was committed: reset the group's offset to go on"
        )
        raise TopicRecreated(at.partition, what, at.committed.offset)
    if at.low <= at.committed.offset <= at.high:
        return _offset_range(at, at.committed.offset)
    return _offset_range(at, _out_of_range(at, at.committed.offset, policy))


def _starting(at: Position, policy: Policy, first_seen: int | None) -> int:
    match policy.starting:
        case "earliest":
            return at.low
        case "latest":
            return at.stable
        case "timestamp":
            return at.stable if first_seen is None else first_seen
    what = (
        "the group has no offset here and starting.offsets is error: set one with kafka-consumer-groups --reset-offsets"
    )
    raise NoStartingOffset(at.partition, what)


def _out_of_range(at: Position, offset: int, policy: Policy) -> int:
    match policy.out_of_range:
        case "earliest":
            return at.low
        case "latest":
            return at.stable
    if offset < at.low:
        lost = f"offsets {offset} to {at.low - 1} ({at.low - offset} at most) were deleted before they were read"
    else:
        lost = f"the partition ends at {at.high}: it was truncated or recreated"
    what = f"{lost}; set out.of.range to earliest or latest, or reset the group's offset, to go on"
    raise OutOfRange(at.partition, what, offset)


def _offset_range(at: Position, start: int) -> OffsetRange:
    return OffsetRange(at.partition, at.committed.offset if at.committed else None, start, topic_id=at.topic_id)


def lost_range(at: Position, offset_range: OffsetRange) -> tuple[int, int] | None:
    """Name the offsets that an out-of-range policy skips, for the log."""
    if at.committed is None or offset_range.start <= at.committed.offset:
        return None
    return at.committed.offset, offset_range.start
