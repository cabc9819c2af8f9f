"""
Take-over between generations: a later generation takes the partitions one by one.

The committed offset carries the take-over: a later generation fences a partition and at once commits its offset in its
own name. Nothing else is stored, and a crash of either service leaves nothing to clean up. DESIGN.md has the states;
a run that starts while a later generation works stands by until that one is gone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from app.driver.life import Life, Sight
from app.driver.starting_offsets import Offsets
from app.model import NOBODY, OffsetRange, Owner, Partition
from app.offsets.metadata import OffsetMetadata

# How often a service without running tasks checks whether everything is taken over.
LOOK_SECONDS = 1.0


class Takeover:
    """Remembers which partitions belong to other generations, judged by the last commit."""

    def __init__(self, me: Owner, sight: Sight, gone_seconds: float) -> None:
        self._me = me
        self._others: dict[Partition, Owner] = {}
        self._earlier = Life(sight, gone_seconds)
        self._later = Life(sight, gone_seconds)
        self._latest = NOBODY
        """The run of a later generation that was seen last."""

    def observe(self, moved: Mapping[Partition, Owner]) -> None:
        """Record the owners of the offsets that moved since the last look."""
        again = self.to_take & moved.keys()  # what the first look finds may be old
        self._earlier.observe(sign=any(self._is_earlier(moved[each]) for each in again))
        for partition, owner in moved.items():
            self._others.pop(partition, None)
            if self._is_earlier(owner) or self._is_later(owner):
                self._others[partition] = owner
        later = max((owner for owner in moved.values() if self._is_later(owner)), default=NOBODY)
        self._later.observe(sign=later != NOBODY, of_another=later != self._latest)
        self._latest = self._latest if later == NOBODY else later

    def _is_earlier(self, owner: Owner) -> bool:
        return owner != NOBODY and owner.generation < self._me.generation

    def _is_later(self, owner: Owner) -> bool:
        return owner.generation > self._me.generation

    @property
    def taken(self) -> Mapping[Partition, Owner]:
        """The partitions of a later generation; none once it is gone, because they are ours again."""
        if not self._later.goes_on:
            return {}
        return {partition: owner for partition, owner in self._others.items() if self._is_later(owner)}

    @property
    def to_take(self) -> set[Partition]:
        """The partitions of an earlier generation, active or not."""
        return {partition for partition, owner in self._others.items() if not self._is_later(owner)}

    @property
    def held(self) -> set[Partition]:
        """The partitions of other generations that are active, or may be."""
        return {*self.taken, *(self.to_take if self._earlier.may_go_on else ())}

    def has_all(self, partitions: Collection[Partition]) -> bool:
        """Return whether a later generation has all of these partitions, or has had time to take all it wants."""
        taken = self.taken
        return bool(taken) and (taken.keys() >= set(partitions) or self._later.is_long)


def control_partitions_last(task: Sequence[OffsetRange], offsets: Offsets) -> tuple[OffsetRange, ...]:
    """
    Return the ranges that a task takes over, in the order that disturbs the other service least.

    A task stores its report with the offset of its control partition. If that one is fenced, the task ends, because its
    own driver may have done it. If any other is fenced, it first looks who did.
    """

    def is_control(each: OffsetRange) -> bool:
        return OffsetMetadata.of(offsets[each.partition].committed).report is not None

    return tuple(sorted(task, key=is_control))
