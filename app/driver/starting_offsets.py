"""Decides where each partition starts. Pure: what Kafka says goes in, an offset range or a named reason comes out."""

from __future__ import annotations

from dataclasses import dataclass

from app.config import Config
from app.cures import RESTART, choose_offset, go_on
from app.errors import (
    Blocked,
    CorruptOffset,
    NoStartingOffset,
    OffsetVanished,
    OutOfRange,
    TopicRecreated,
    Truncated,
)
from app.model import CommittedOffset, OffsetRange, Partition, Watermarks
from app.offsets.metadata import OffsetMetadata

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
    """
    What the user wants where the committed offset does not decide.

    Args:
        starting: what `starting.offsets` says; `time` where it is one.
        out_of_range: what `out.of.range` says.
        keeps: whether the store keeps an offset that a person sets.
    """

    starting: str
    out_of_range: str
    keeps: bool = True

    @classmethod
    def of(cls, config: Config, *, keeps: bool) -> StartPolicy:
        """Return the policy of a configuration."""
        starting = config.starting_offsets
        return cls(starting if isinstance(starting, str) else "time", config.out_of_range, keeps)


def decide(
    at: PartitionOffsets,
    policy: StartPolicy,
    *,
    first_seen: int | None,
    had_offset_in: str | None,
    is_new: bool,
    cut: int | None,
) -> OffsetRange:
    """
    Return where a partition starts.

    Args:
        at: its offsets now.
        policy: the user's wishes.
        first_seen: the offset to start from where `starting.offsets` is a time, or latest as it was at the first look.
        had_offset_in: the id of the topic in which this service has seen a committed offset here before; None if it
            has seen none.
        is_new: whether the partition is younger than the group's work on its topic; then all of it is new to us.
        cut: what this service remembers of `cut_of`.

    Raises:
        Blocked: with what an operator must know to go on.
    """
    cure = choose_offset(at.partition) if policy.keeps else RESTART
    if at.committed is None:
        if had_offset_in is not None and _differ(had_offset_in, at.topic_id):  # Kafka deletes both together
            raise TopicRecreated(at.partition, RECREATED, cure=cure)
        if had_offset_in is not None:
            raise OffsetVanished(at.partition, "the group's offset vanished (expired or deleted)", cure=cure)
        return _range(at, at.watermarks.log_start if is_new else _starting(at, policy, first_seen))
    if at.committed.corrupt:
        raise CorruptOffset(at.partition, at.committed.corrupt)
    if is_of_another(at.committed, at.topic_id):
        raise TopicRecreated(at.partition, RECREATED, at.committed.offset, cure)
    cut = cut_of(at, cut)
    if at.committed.offset < at.watermarks.log_start or cut is not None:
        return _range(at, _out_of_range(at, at.committed.offset, policy, cut))
    return _range(at, at.committed.offset)


def told(at: PartitionOffsets) -> Blocked | None:
    """Return why a task left the partition to a person, which it says beside the offset; it holds until that moves."""
    reason = OffsetMetadata.parse(at.committed.metadata if at.committed else "").blocked
    return Blocked(at.partition, reason, at.next_offset(0)) if reason else None


def cut_of(at: PartitionOffsets, remembered: int | None) -> int | None:
    """
    Return where a partition was found to end below its committed offset; None if it never was.

    A partition that was cut grows again. Once it has passed the committed offset, the driver remembers the cut, and a
    task finds it by the leader epoch beside the offset (`app.executor.lane`).
    """
    if at.committed is None:
        return None
    end = at.watermarks.high_watermark
    ends = (end if end < at.committed.offset else None, remembered)
    return min((each for each in ends if each is not None), default=None)


def is_witness(committed: CommittedOffset | None, topic_id: str) -> bool:
    """Return whether a task has committed this offset in the topic of that id; an operator's offset shows nothing."""
    metadata = OffsetMetadata.parse(committed.metadata if committed else "")
    return metadata.is_ours and metadata.topic_id == topic_id


def is_of_another(committed: CommittedOffset, topic_id: str) -> bool:
    """Return whether a task has committed this offset in another topic of the same name, as far as ids are known."""
    return _differ(OffsetMetadata.parse(committed.metadata).topic_id, topic_id)


def _differ(topic_id: str, other: str) -> bool:
    """Return whether two ids name two topics; a broker may give none."""
    return bool(topic_id and other and topic_id != other)


def _starting(at: PartitionOffsets, policy: StartPolicy, first_seen: int | None) -> int:
    match policy.starting:
        case "earliest":
            return at.watermarks.log_start
        case "latest" if first_seen is not None:
            return min(max(first_seen, at.watermarks.log_start), at.watermarks.last_stable)
        case "latest" | "time":
            return at.watermarks.last_stable if first_seen is None else first_seen
    why, cure = "the group has no offset here and starting.offsets is error", choose_offset(at.partition)
    raise NoStartingOffset(at.partition, why, cure=cure if policy.keeps else "set starting.offsets to something else")


def _out_of_range(at: PartitionOffsets, offset: int, policy: StartPolicy, cut: int | None) -> int:
    """Return where the policy goes on; what was written after a cut stands at offsets that were read before it."""
    match policy.out_of_range:
        case "earliest":
            return at.watermarks.log_start
        case "latest":
            return at.watermarks.last_stable
        case "nearest":
            return max(at.watermarks.log_start, offset if cut is None else cut)
    raise _lost(at, offset, cut)


def _lost(at: PartitionOffsets, offset: int, cut: int | None) -> Blocked:
    """Return an error that stays the same while the partition grows."""
    if cut is None:
        first, count = at.watermarks.log_start, at.watermarks.log_start - offset
        lost = f"offsets {offset} to {first - 1} ({count} at most) were deleted before they were read"
        return OutOfRange(at.partition, lost, offset, go_on(at.partition))
    return Truncated(at.partition, offset, cut)


def _range(at: PartitionOffsets, start: int) -> OffsetRange:
    committed = at.committed.offset if at.committed else None
    marks = at.watermarks
    return OffsetRange(
        at.partition, committed, start, topic_id=at.topic_id, log_start=marks.log_start, backlog=marks.last_stable
    )


def skipped(at: PartitionOffsets, offset_range: OffsetRange, cut: int | None) -> tuple[int, int] | None:
    """
    Return the offsets that an out-of-range policy skips, first and after the last; None where it skips nothing.

    What stands after a cut was never read, although the committed offset is larger.
    """
    if at.committed is None:
        return None
    cut = cut_of(at, cut)
    unread = at.committed.offset if cut is None else cut
    return (unread, offset_range.start) if unread < offset_range.start else None


def rewound(at: PartitionOffsets, offset_range: OffsetRange) -> tuple[int, int] | None:
    """Return the offsets that an out-of-range policy reads again, first and after the last; None if none are."""
    if at.committed is None or offset_range.start >= at.committed.offset:
        return None
    return offset_range.start, at.committed.offset
