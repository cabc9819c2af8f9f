"""
Who of another generation works for the group: a later one takes over, partition by partition.

The word of a take-over is the committed offset. A later generation fences a partition and commits its offset at once,
in its own name. So nothing else needs to be stored, and a crash of either service leaves nothing to clean up.

    earlier generation   works ──▶ goes on with what it still has ──▶ ends with 0 when everything is taken
                                       └─ the later one is gone ──▶ works on everything again
    later generation     Spark starts, workers are ready ──▶ takes one partition after the other ──▶ works
    started beside a later generation ──▶ stands by, and works when that one is gone
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from app.driver.life import Life, Sight
from app.driver.starting_offsets import PartitionOffsets
from app.model import NOBODY, OffsetRange, Owner, Partition
from app.offsets.metadata import OffsetMetadata

# How often a service whose tasks have ended looks whether everything is taken over.
LOOK_SECONDS = 1.0


class Takeover:
    """
    Remembers which partitions belong to other generations, by whose commit was the last.

    Args:
        me: this run.
        sight: for how long commits could be seen.
        gone_seconds: how long a run may commit nothing before it counts as gone.
    """

    def __init__(self, me: Owner, sight: Sight, gone_seconds: float) -> None:
        self._me = me
        self._others: dict[Partition, Owner] = {}
        self._later = Life(sight, gone_seconds)

    def look(self, moved: Mapping[Partition, Owner]) -> None:
        """Take in who has committed the offsets that are new since the last look."""
        for partition, owner in moved.items():
            self._others.pop(partition, None)
            if owner.generation != self._me.generation and owner != NOBODY:
                self._others[partition] = owner
        self._later.look(sign=any(self._is_later(owner) for owner in moved.values()))

    def _is_later(self, owner: Owner) -> bool:
        return owner.generation > self._me.generation

    @property
    def taken(self) -> Mapping[Partition, Owner]:
        """The partitions that a later generation has; none where it is gone: then they are ours again."""
        if not self._later.goes_on:
            return {}
        return {partition: owner for partition, owner in self._others.items() if self._is_later(owner)}

    @property
    def to_take(self) -> set[Partition]:
        """The partitions that an earlier generation has, or had when it ended."""
        return {partition for partition, owner in self._others.items() if not self._is_later(owner)}

    def has_all(self, partitions: Collection[Partition]) -> bool:
        """
        Return whether a later generation has all of these partitions.

        Or it has been at work for so long that what it has not taken is not wanted, or waits for a person there.
        """
        taken = self.taken
        if not taken:
            return False
        return taken.keys() >= set(partitions) or self._later.is_long


def control_partitions_last(
    task: Sequence[OffsetRange], offsets: Mapping[Partition, PartitionOffsets]
) -> tuple[OffsetRange, ...]:
    """
    Return what a task is to take over, in the order in which that disturbs the other service least.

    Beside the offset of its control partition a task says what it spends its time on. Where that one is fenced, it
    ends: its driver could have done it. With any other it first looks who has.
    """

    def is_control(each: OffsetRange) -> bool:
        committed = offsets[each.partition].committed
        return committed is not None and OffsetMetadata.parse(committed.metadata).report is not None

    return tuple(sorted(task, key=is_control))
