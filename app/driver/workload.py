"""The source partitions as the driver sees them, and the work that they give a round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from app.driver.starting_offsets import Offsets, stored_block
from app.errors import Blocked, Leaderless, OutOfRange, PartitionError, Undeliverable
from app.model import CommittedOffset, OffsetRange, Owner, Partition
from app.offsets.mirrors import MirrorStatus

Committed = Mapping[Partition, CommittedOffset | None]
"""The committed offset of each existing partition, including unreadable ones; None if it has none."""


@dataclass(frozen=True, slots=True)
class SourceOffsets:
    """
    The source partitions at one moment.

    Args:
        offsets: the offsets of each partition that responds; while tasks run, the last known ones of the others, too.
        unreadable: the partitions that have no leader or whose leader does not respond.
        undeliverable: the error of each partition whose output cannot be delivered now.
        rival: another active run of this generation: an earlier one, or any while this run stands by.
    """

    offsets: Offsets
    unreadable: frozenset[Partition] = frozenset()
    undeliverable: Mapping[Partition, Undeliverable] = field(default_factory=dict)
    rival: Owner | None = None
    mirrors: tuple[MirrorStatus, ...] = ()
    committed: Committed = field(default_factory=dict)

    def trouble(self, partition: Partition) -> PartitionError | None:
        """Return why no task can process a partition now; None if nothing is known."""
        return Leaderless(partition) if partition in self.unreadable else self.undeliverable.get(partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload(SourceOffsets):
    """
    The work for a round.

    Args:
        ranges: what to read from each partition that can be processed.
        blocked: the error of each partition that needs an operator or is unreadable.
        fenced: the partitions lost to other owners since the last discovery, with the new owner; None while the last
            commit is ours.
    """

    ranges: Mapping[Partition, OffsetRange]
    blocked: Mapping[Partition, Blocked] = field(default_factory=dict)
    fenced: Mapping[Partition, Owner | None] = field(default_factory=dict)

    def blocking(self, errors: Mapping[Partition, Blocked]) -> Workload:
        ranges = {each: planned for each, planned in self.ranges.items() if each not in errors}
        return replace(self, ranges=ranges, blocked={**self.blocked, **errors})

    def lag(self, partition: Partition) -> int:
        return self.offsets[partition].lag(self.ranges[partition].start, self.ranges[partition].end)

    def troubles(self) -> dict[Partition, PartitionError]:
        """Return why partitions cannot be processed now, including what tasks of a running service have reported."""
        found = {partition: error for partition, at in self.offsets.items() if (error := stored_block(at)) is not None}
        return {**self.undeliverable, **found, **self.blocked}

    def ends(self, before: Mapping[Partition, int | None] | None = None) -> dict[Partition, int | None]:
        """
        Return the end of each partition, at which `--until-end` stops; None if it cannot be read yet.

        Ends that were seen `before` stay, except where a log has been truncated below its end: what was cut off will
        not come. No partition is added to them.
        """
        ends = dict.fromkeys(self.blocked) | {each: at.watermarks.last_stable for each, at in self.offsets.items()}
        if before is None:
            return ends
        return {each: _earlier(end, ends.get(each)) for each, end in before.items()}

    def within(self, ends: Mapping[Partition, int | None] | None) -> list[OffsetRange]:
        """
        Return what to process: everything, or what lies before the ends seen at the start.

        A start that differs from the committed offset is stored even if nothing is left to read; otherwise `latest`
        would move on with every run.
        """
        if ends is None:
            return list(self.ranges.values())
        agreed = ((each, ends.get(each.partition)) for each in self.ranges.values())
        return [
            replace(each, end=max(each.start, end))
            for each, end in agreed
            if end is not None and (each.start < end or each.start != each.committed or each.never_read)
        ]

    def missing(self, ends: Mapping[Partition, int | None]) -> set[Partition]:
        """Return the partitions that Kafka no longer lists; nobody knows whether they were read to their end."""
        return ends.keys() - self.committed.keys() - self.blocked.keys()

    def unfinished(self, ends: Mapping[Partition, int | None]) -> set[Partition]:
        """
        Return the blocked partitions that were not read to their end.

        One that was may have lost its leader since, or what was read to retention.
        """
        finished = {
            each
            for each, end in ends.items()
            if (each in self.unreadable or isinstance(self.blocked.get(each), OutOfRange))
            and end is not None
            and (at := self.committed.get(each))
            and at.offset >= end
        }
        return self.blocked.keys() & ends.keys() - finished


def _earlier(before: int | None, now: int | None) -> int | None:
    return min((end for end in (before, now) if end is not None), default=None)
