"""Decides where each partition starts. Pure: what Kafka says goes in, an offset range or a named reason comes out."""

from __future__ import annotations

from dataclasses import dataclass

from app.errors import CorruptOffset, NoStartingOffset, OffsetVanished, OutOfRange, TopicRecreated
from app.model import CommittedOffset, OffsetRange, Partition, Watermarks
from app.offsets.metadata import OffsetMetadata

RESET = "set the group's offset with kafka-consumer-groups --reset-offsets"
RECREATED = "the topic was deleted and created again since an offset was committed"


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """
    The offsets of one source partition, as Kafka and the offset store give them.

    Args:
        partition: which partition.
        topic_id: the id of its topic; a recreated topic has another one. Empty where the broker gives none.
        watermarks: where its records begin and end.
        committed: the committed offset, if there is one.
    """

    partition: Partition
    topic_id: str
    watermarks: Watermarks
    committed: CommittedOffset | None

    def next_offset(self, start: int) -> int:
        """Return the next offset to read of a range that starts at `start`."""
        return start if self.committed is None else max(start, self.committed.offset)

    def lag(self, start: int, end: int | None = None) -> int:
        """Return how many offsets wait from the next one up to the last stable one, or up to the agreed end."""
        stable = self.watermarks.last_stable
        return max(0, (stable if end is None else min(stable, end)) - self.next_offset(start))


@dataclass(frozen=True, slots=True)
class StartPolicy:
    """What the user wants where the committed offset does not decide."""

    starting: str
    out_of_range: str


def decide(
    at: PartitionOffsets, policy: StartPolicy, *, first_seen: int | None, had_offset_in: str | None, joined_later: bool
) -> OffsetRange:
    """
    Return where a partition starts.

    Args:
        at: its offsets now.
        policy: the user's wishes.
        first_seen: the offset to start from where `starting.offsets` is a time.
        had_offset_in: the id of the topic in which this service has seen a committed offset here before; None if it
            has seen none.
        joined_later: whether the partition appeared while the service ran; then all of it is new to us.

    Raises:
        Blocked: with what an operator must know to go on.
    """
    if at.committed is None:
        if had_offset_in is not None and _differ(had_offset_in, at.topic_id):  # Kafka deletes both together
            raise TopicRecreated(at.partition, RECREATED, cure=RESET)
        if had_offset_in is not None:
            raise OffsetVanished(at.partition, "the group's offset vanished (expired or deleted)", cure=RESET)
        return _range(at, at.watermarks.log_start if joined_later else _starting(at, policy, first_seen))
    if at.committed.corrupt:
        raise CorruptOffset(at.partition, at.committed.corrupt)
    topic_id = OffsetMetadata.parse(at.committed.metadata).topic_id
    if _differ(topic_id, at.topic_id):
        raise TopicRecreated(at.partition, RECREATED, at.committed.offset, RESET)
    if at.watermarks.log_start <= at.committed.offset <= at.watermarks.high_watermark:
        return _range(at, at.committed.offset)
    return _range(at, _out_of_range(at, at.committed.offset, policy))


def _differ(topic_id: str, other: str) -> bool:
    """Return whether two ids name two topics; a broker may give none."""
    return bool(topic_id and other and topic_id != other)


def _starting(at: PartitionOffsets, policy: StartPolicy, first_seen: int | None) -> int:
    match policy.starting:
        case "earliest":
            return at.watermarks.log_start
        case "latest":
            return at.watermarks.last_stable
        case "timestamp":
            return at.watermarks.last_stable if first_seen is None else first_seen
    raise NoStartingOffset(at.partition, "the group has no offset here and starting.offsets is error", cure=RESET)


def _out_of_range(at: PartitionOffsets, offset: int, policy: StartPolicy) -> int:
    log_start, last_stable, high_watermark = at.watermarks
    match policy.out_of_range:
        case "earliest":
            return log_start
        case "latest":
            return last_stable
    if offset < log_start:
        lost = f"offsets {offset} to {log_start - 1} ({log_start - offset} at most) were deleted before they were read"
    else:
        lost = f"the partition ends at {high_watermark}; it was truncated or recreated"
    cure = "set out.of.range to earliest or latest, or reset the group's offset, to go on"
    raise OutOfRange(at.partition, lost, offset, cure)


def _range(at: PartitionOffsets, start: int) -> OffsetRange:
    return OffsetRange(at.partition, at.committed.offset if at.committed else None, start, topic_id=at.topic_id)


def skipped(at: PartitionOffsets, offset_range: OffsetRange) -> tuple[int, int] | None:
    """Return the offsets that an out-of-range policy skips, first and after the last; None where it skips nothing."""
    if at.committed is None or offset_range.start <= at.committed.offset:
        return None
    return at.committed.offset, offset_range.start
