"""Decides whether a running round needs a rebalance. Makes no requests and remembers only the last refresh."""

from __future__ import annotations

import math
from collections.abc import Iterator

from app.driver.plan import Loads, Tasks, heaviest, plan
from app.driver.starting_offsets import Offsets, PartitionOffsets
from app.driver.workload import SourceOffsets, Workload
from app.model import OffsetRange, Partition, topics_differ
from app.offsets.metadata import OffsetMetadata
from app.runtime import REAL, Timings

# A rebalance costs readers a pause. It is worth it if the busiest task has this many times the load that it could have
# and cannot keep up: its lag exceeds what it has processed since the last refresh.
UNEVEN = 1.5


class Balance:
    """
    The tasks of a running round, which began `now`, and the progress of their partitions at the last refresh.

    A partition commits every `commit_seconds`; its records wait that long by design.
    """

    def __init__(
        self, tasks: Tasks, workload: Workload, now: float, *, commit_seconds: float, timings: Timings = REAL.timings
    ) -> None:
        self._tasks = tasks
        self._timings = timings
        self._patience = timings.commit_overdue + commit_seconds
        self._ranges = [each for task in tasks for each in task]
        self._controls = {task[0].partition for task in tasks}
        self.offsets = workload.offsets
        """The offsets at the last refresh."""
        self._blocked = workload.blocked.keys()
        self.partitions = {each.partition for each in self._ranges}
        self._progressed_at = dict.fromkeys(self.partitions, now)
        self._has_committed: set[Partition] = set()
        """The partitions that have made progress in this round."""
        self._troubled: set[Partition] = set()
        self._elected_at = -math.inf

    def pause(self, now: float) -> None:
        """Count from now how long commits are overdue, after a time without observations."""
        self._progressed_at = dict.fromkeys(self.partitions, now)

    def needs_rebalance(self, found: SourceOffsets, slots: int, now: float) -> str:
        """Return why the round must end and be planned again; empty while the plan is good."""
        before, offsets = self.offsets, found.offsets
        if before.keys() != offsets.keys():
            return "partitions were added or removed"
        awaited = self._awaited(before, offsets)
        self.offsets = offsets = {**offsets, **{each: before[each] for each in awaited}}
        if why := next(self._changes(before, offsets), ""):
            return why
        loads: dict[Partition, int] = {}
        lags: dict[Partition, int] = {}
        done: dict[Partition, int] = {}
        for each in self._ranges:
            partition, was, at = each.partition, before[each.partition], offsets[each.partition]
            if found.trouble(partition):  # no other task could do more: it neither stalls nor counts as work
                self._progressed_at[partition] = now
                continue
            done[partition] = at.next_offset(each.start) - was.next_offset(each.start)
            if done[partition]:
                self._has_committed.add(partition)
            if done[partition] or not (was.lag(each.start, each.end) or partition in awaited):
                self._progressed_at[partition] = now
            lags[partition] = at.lag(each.start, each.end)
            arrived = lags[partition] + done[partition] - was.lag(each.start, each.end)
            loads[partition] = lags[partition] + arrived
        if why := self._overdue(now):
            return why
        if self._elected_lately(self.partitions - loads.keys(), now):
            return ""
        return self._uneven(plan(self._ranges, loads, slots), loads, lags, done)

    def _elected_lately(self, troubled: set[Partition], now: float) -> bool:
        """Return whether the set of troubled partitions has just changed, because Kafka is electing leaders."""
        if troubled != self._troubled:
            self._troubled, self._elected_at = troubled, now
        return now - self._elected_at < self._timings.election

    def _changes(self, before: Offsets, offsets: Offsets) -> Iterator[str]:
        for partition in self._blocked & offsets.keys():
            if before[partition].committed != offsets[partition].committed:
                yield f"{partition}: it was blocked, and the group's offset has been set"
        for each in self._ranges:
            if why := _trouble(each, before[each.partition], offsets[each.partition]):
                yield f"{each.partition}: {why}"

    def _awaited(self, before: Offsets, offsets: Offsets) -> set[Partition]:
        """
        Return the partitions whose offset was moved back or deleted, if one of them is a control partition.

        They count as they were before. A control lane commits every second, which puts its offset back. Fenced before
        that, it would lose its place. If its offset had moved before it opened, it has ended, and a commit is overdue.
        """
        lost = {each.partition for each in self._ranges if _lost(before[each.partition], offsets[each.partition])}
        return set() if lost.isdisjoint(self._controls) else lost

    def _overdue(self, now: float) -> str:
        for task in self._tasks:
            patience = self._patience + self._timings.commit_overdue_each * len(task)
            if not any(each.partition in self._has_committed for each in task):
                patience += self._timings.start
            for each in task:
                seconds = now - self._progressed_at[each.partition]
                if seconds > patience:
                    return f"{each.partition}: nothing has been committed for {seconds:.0f} s; see the executor's log"
        return ""

    def _uneven(self, best: Tasks, loads: Loads, lags: Loads, done: Loads) -> str:
        if len(best) != len(self._tasks):
            return f"there are slots for {len(best)} tasks instead of {len(self._tasks)}"
        busiest = max(self._tasks, key=lambda task: heaviest([task], loads))
        keeps_up = heaviest([busiest], lags) <= heaviest([busiest], done)
        uneven = heaviest([busiest], loads) > UNEVEN * heaviest(best, loads)
        return "the work has become uneven" if uneven and not keeps_up else ""


def _lost(before: PartitionOffsets, at: PartitionOffsets) -> str:
    """Return how somebody else changed the committed offset; empty if nobody did."""
    if before.committed is None or topics_differ(before.topic_id, at.topic_id):
        return ""
    if at.committed is None:
        return "the group's offset vanished"
    return "the group's offset was moved back" if at.committed.offset < before.committed.offset else ""


def _trouble(planned: OffsetRange, before: PartitionOffsets, at: PartitionOffsets) -> str:
    """Return a change that a task may not notice or cannot repair; empty if there is none."""
    if topics_differ(before.topic_id, at.topic_id):
        return "its topic was deleted and recreated"
    if why := _lost(before, at):
        return why
    if at.committed is None:
        return ""
    if at.committed != before.committed and OffsetMetadata.of(at.committed).cut is not None:
        return "a task has found that its log was truncated"
    if before.committed is None:
        return ""
    # Until its first commit a task reads from the planned start, which `out.of.range` may have moved.
    next_offset = planned.start if at.committed.offset == planned.committed else at.committed.offset
    in_range = at.watermarks.log_start <= next_offset <= at.watermarks.high_watermark
    return "" if in_range or at.committed != before.committed else "its next record was deleted"
