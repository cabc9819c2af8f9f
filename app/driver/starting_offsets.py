"""Decides where each partition starts. Pure: facts about Kafka in, an offset range or a named error out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from app.config import Config
from app.cures import RESTART, choose_offset, unblock
from app.errors import Blocked, CorruptOffset, NoStartingOffset, OffsetVanished, OutOfRange, TopicRecreated, Truncated
from app.model import CommittedOffset, OffsetRange, Partition, Watermarks, topics_differ
from app.offsets.metadata import OffsetMetadata

RECREATED = "the topic was deleted and recreated since an offset was committed"


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """
    The offsets of one source partition, from Kafka and from the offset store.

    Args:
        topic_id: the id of its topic, which changes when the topic is recreated; empty if the broker has none.
    """

    partition: Partition
    topic_id: str
    watermarks: Watermarks
    committed: CommittedOffset | None

    @property
    def elsewhere(self) -> int | None:
        """
        The first unread offset if the committed one is of another log: the topic was recreated, or the log truncated.

        None if the committed offset says where this log is read next.
        """
        if self.committed is None:
            return None
        if is_of_another(self.committed, self.topic_id):
            return self.watermarks.log_start
        cut = cut_of(self, None)
        return None if cut is None else max(self.watermarks.log_start, cut)

    def next_offset(self, start: int) -> int:
        return start if self.committed is None else max(start, self.committed.offset)

    def lag(self, start: int, end: int | None = None) -> int:
        """Return the number of offsets from the next one to the last stable one, or to the agreed end."""
        stable = self.watermarks.last_stable
        return max(0, (stable if end is None else min(stable, end)) - self.next_offset(start))


Offsets = Mapping[Partition, PartitionOffsets]
"""The offsets of the source partitions that respond."""


@dataclass(frozen=True, slots=True)
class StartPolicy:
    """
    The user's choice for cases that the committed offset does not decide.

    Args:
        starting: the value of `starting.offsets`; `time` for a timestamp or a duration.
        out_of_range: the value of `out.of.range`.
        keeps: whether the store keeps an offset that an operator sets.
    """

    starting: str
    out_of_range: str
    keeps: bool = True

    @classmethod
    def of(cls, config: Config, *, keeps: bool) -> StartPolicy:
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
        first_seen: the offset to start from if `starting.offsets` is latest or a time, as first given.
        had_offset_in: the id of the topic in which this run has seen a committed offset; None if in none.
        is_new: whether the partition was created after the group began with its topic, so that all of it is read.
        cut: the remembered result of `cut_of`.

    Raises:
        Blocked: an operator must act.
    """
    cure = choose_offset(at.partition) if policy.keeps else RESTART
    if at.committed is None:
        if had_offset_in is not None and topics_differ(had_offset_in, at.topic_id):  # Kafka deletes both together
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
        return replace(_range(at, _out_of_range(at, at.committed.offset, policy, cut)), cut=cut)
    return _range(at, at.committed.offset)


def stored_block(at: PartitionOffsets) -> Blocked | None:
    """Return why a task blocked the partition, as stored in the offset's metadata; valid until the offset moves."""
    reason = OffsetMetadata.of(at.committed).blocked
    return Blocked(at.partition, reason, at.next_offset(0)) if reason else None


def cut_of(at: PartitionOffsets, remembered: int | None) -> int | None:
    """
    Return the lowest end seen below the committed offset of a truncated partition; None if there was none.

    A truncated partition grows again. While it ends below the committed offset, the driver finds the cut by the leader
    epoch that is stored with the offset, and remembers it. Later, a task finds it, and stores it for any driver.
    """
    if at.committed is None:
        return None
    end = at.watermarks.high_watermark
    ends = (end if end < at.committed.offset else None, remembered, OffsetMetadata.of(at.committed).cut)
    return min((each for each in ends if each is not None), default=None)


def is_witness(committed: CommittedOffset | None, topic_id: str) -> bool:
    """Return whether a task committed this offset in the topic with this id; an operator's offset proves nothing."""
    metadata = OffsetMetadata.of(committed)
    return metadata.is_ours and not topics_differ(metadata.topic_id, topic_id)


def is_of_another(committed: CommittedOffset, topic_id: str) -> bool:
    """Return whether a task committed this offset in another topic of the same name, if both ids are known."""
    return topics_differ(OffsetMetadata.of(committed).topic_id, topic_id)


def _starting(at: PartitionOffsets, policy: StartPolicy, first_seen: int | None) -> int:
    match policy.starting:
        case "earliest":
            return at.watermarks.log_start
        case "latest" | "time":
            return at.watermarks.last_stable if first_seen is None else first_seen
    why, cure = "the group has no offset here and starting.offsets is error", choose_offset(at.partition)
    raise NoStartingOffset(at.partition, why, cure=cure if policy.keeps else "set starting.offsets to something else")


def _out_of_range(at: PartitionOffsets, offset: int, policy: StartPolicy, cut: int | None) -> int:
    """Return where the policy continues. After a cut, new records have offsets that were read before."""
    match policy.out_of_range:
        case "earliest":
            return at.watermarks.log_start
        case "latest":
            return at.watermarks.last_stable
        case "nearest":
            return max(at.watermarks.log_start, offset if cut is None else cut)
    if cut is not None:
        raise Truncated(at.partition, offset, cut)
    first, count = at.watermarks.log_start, at.watermarks.log_start - offset
    lost = f"offsets {offset} to {first - 1} (at most {count}) were deleted before they were read"
    raise OutOfRange(at.partition, lost, offset, unblock(at.partition))


def _range(at: PartitionOffsets, start: int) -> OffsetRange:
    committed, marks = at.committed, at.watermarks
    goes_back = committed is not None and start < committed.offset
    return OffsetRange(
        at.partition,
        None if committed is None else committed.offset,
        start,
        topic_id=at.topic_id,
        log_start=marks.log_start,
        backlog=marks.last_stable,
        counted=OffsetMetadata.of(committed).counts.records if goes_back else None,
        metadata="" if committed is None else committed.metadata,
    )


def skipped(planned: OffsetRange) -> tuple[int, int] | None:
    """
    Return the offsets that an out-of-range policy skips, as a half-open range; None if it skips none.

    Records written after a cut were never read, even if the committed offset is larger.
    """
    unread = planned.committed if planned.cut is None else planned.cut
    return (unread, planned.start) if unread is not None and unread < planned.start else None


def rewound(planned: OffsetRange) -> tuple[int, int] | None:
    """Return the offsets that an out-of-range policy reads again, as a half-open range; None if there are none."""
    if planned.committed is None or planned.start >= planned.committed:
        return None
    return planned.start, planned.committed
