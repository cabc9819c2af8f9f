"""Decides whether a running round needs a rebalance. Asks nobody, and remembers only the last refresh."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from app.driver.discover import SourceOffsets, Workload
from app.driver.plan import heaviest, plan
from app.driver.starting_offsets import PartitionOffsets
from app.model import OffsetRange, Partition
from app.runtime import REAL, Timings

# How much longer records may wait for each partition of their task: opening hundreds takes long, and while they catch
# up it is seldom the turn of each.
STALLED_SECONDS_EACH = 0.25
# A rebalance costs readers a pause. It is worth that where the busiest task has so much more to do than it need have,
# and cannot keep up: more waits for it than it has done since the last refresh.
UNEVEN = 1.5


class Balance:
    """
    The tasks of a running round, and how far their partitions were at the last refresh.

    Args:
        tasks: the offset ranges of each task.
        workload: what the plan was made from.
        now: when the tasks began, in seconds.
        commit_seconds: how often a partition commits; its records wait for so long by intention.
        timings: how long it is patient.
    """

    def __init__(
        self,
        tasks: Sequence[Sequence[OffsetRange]],
        workload: Workload,
        now: float,
        *,
        commit_seconds: float,
        timings: Timings = REAL.timings,
    ) -> None:
        self._tasks = tasks
        self._timings = timings
        self._patience = timings.stalled + commit_seconds
        self._ranges = [each for task in tasks for each in task]
        self._offsets = workload.offsets
        self._blocked = workload.blocked.keys()
        self._progressed_at = {each.partition: now for each in self._ranges}
        self._has_committed: set[Partition] = set()
        """The partitions that were seen to go on in this round."""
        self._troubled: set[Partition] = set()
        self._elected_at = -math.inf
        """When partitions last lost their leader, or got one."""

    @property
    def offsets(self) -> Mapping[Partition, PartitionOffsets]:
        """The offsets at the last refresh."""
        return self._offsets

    @property
    def partitions(self) -> Collection[Partition]:
        """The partitions that the tasks work on."""
        return self._progressed_at.keys()

    def pause(self, now: float) -> None:
        """Leave out a time in which nothing could be seen: nobody counts as stalled for it."""
        self._progressed_at = dict.fromkeys(self._progressed_at, now)

    def needs_rebalance(self, found: SourceOffsets, slots: int, now: float) -> str:
        """Return why the round must end and the partitions be planned again; empty while the plan is good."""
        offsets = found.offsets
        before, self._offsets = self._offsets, offsets
        if before.keys() != offsets.keys():
            return "partitions came or went"
        if why := self._unblocked(before, offsets) or self._trouble(before, offsets):
            return why
        loads: dict[Partition, int] = {}
        lags: dict[Partition, int] = {}
        done: dict[Partition, int] = {}
        for each in self._ranges:
            partition, was, at = each.partition, before[each.partition], offsets[each.partition]
            if found.trouble(partition):  # another task could do no more: it neither stalls nor counts as work
                self._progressed_at[partition] = now
                continue
            done[partition] = at.next_offset(each.start) - was.next_offset(each.start)
            if done[partition]:
                self._has_committed.add(partition)
            if done[partition] or not was.lag(each.start, each.end):
                self._progressed_at[partition] = now
            lags[partition] = at.lag(each.start, each.end)
            arrived = lags[partition] + done[partition] - was.lag(each.start, each.end)
            loads[partition] = lags[partition] + arrived
        if why := self._stalled(now):
            return why
        if self._elected_lately(self._progressed_at.keys() - loads.keys(), now):
            return ""
        return self._uneven(plan(self._ranges, loads, slots), loads, lags, done)

    def _elected_lately(self, troubled: set[Partition], now: float) -> bool:
        """Return whether other partitions are in trouble than a moment ago: Kafka has just elected leaders."""
        if troubled != self._troubled:
            self._troubled, self._elected_at = troubled, now
        return now - self._elected_at < self._timings.election

    def _unblocked(
        self, before: Mapping[Partition, PartitionOffsets], offsets: Mapping[Partition, PartitionOffsets]
    ) -> str:
        for partition in self._blocked & offsets.keys():
            if before[partition].committed != offsets[partition].committed:
                return f"{partition}: it was blocked, and the group's offset was set"
        return ""

    def _trouble(
        self, before: Mapping[Partition, PartitionOffsets], offsets: Mapping[Partition, PartitionOffsets]
    ) -> str:
        for each in self._ranges:
            if why := _trouble(each, before[each.partition], offsets[each.partition]):
                return f"{each.partition}: {why}"
        return ""

    def _stalled(self, now: float) -> str:
        for task in self._tasks:
            patience = self._patience + STALLED_SECONDS_EACH * len(task)
            if not any(each.partition in self._has_committed for each in task):
                patience += self._timings.start
            for each in task:
                stalled = now - self._progressed_at[each.partition]
                if stalled > patience:
                    return f"{each.partition}: nothing was committed for {stalled:.0f} s; see its executor's log"
        return ""

    def _uneven(
        self,
        best: Sequence[Sequence[OffsetRange]],
        loads: Mapping[Partition, int],
        lags: Mapping[Partition, int],
        done: Mapping[Partition, int],
    ) -> str:
        if len(best) != len(self._tasks):
            return f"there are slots for {len(best)} tasks, not {len(self._tasks)}"
        busiest = max(self._tasks, key=lambda task: heaviest([task], loads))
        keeps_up = heaviest([busiest], lags) <= heaviest([busiest], done)
        uneven = heaviest([busiest], loads) > UNEVEN * heaviest(best, loads)
        return "the work has become uneven" if uneven and not keeps_up else ""


def _trouble(planned: OffsetRange, before: PartitionOffsets, at: PartitionOffsets) -> str:
    """Return what a task may not notice or cannot mend; empty if there is nothing."""
    if before.topic_id != at.topic_id:
        return "its topic was deleted and created again"
    if before.committed is None:
        return ""
    if at.committed is None:
        return "the group's offset vanished"
    if at.committed.offset < before.committed.offset:
        return "the group's offset was set back"
    # Until its first commit a task reads where the plan says: `out.of.range` may have chosen another record.
    next_offset = planned.start if at.committed.offset == planned.committed else at.committed.offset
    in_range = at.watermarks.log_start <= next_offset <= at.watermarks.high_watermark
    return "" if in_range or at.committed != before.committed else "its next record was deleted"
