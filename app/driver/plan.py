"""Plans a round: assigns partitions to tasks. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence

from app.model import Guarantee, OffsetRange, Partition

# The length of a round in checks. Each round renews the offsets of idle partitions. Without transactions a round cannot
# end early without doing work twice, so it is short.
CHECKS = {Guarantee.EXACTLY_ONCE: 60, Guarantee.AT_LEAST_ONCE: 3}
# The load of an idle partition: its lane, producer and commits are not free.
IDLE_LOAD = 1_000
Tasks = Sequence[Sequence[OffsetRange]]
Loads = Mapping[Partition, int]
"""For each partition a number of records: its expected work, its lag, or what was done."""


def plan(ranges: Iterable[OffsetRange], loads: Loads, slots: int) -> list[tuple[OffsetRange, ...]]:
    """
    Spread partitions over at most `slots` tasks, every partition exactly once, balanced by load.

    Longest processing time first: the heaviest partition goes to the least loaded task. The result is at most a third
    above the optimum (Graham 1969). The order is fixed, so the same input gives the same plan.

    Args:
        loads: the expected records of each partition: its lag and what arrives in a round. Undeliverable partitions are
            absent; they come last in their tasks, after the idle ones.
    """
    heaviest_first = sorted(ranges, key=lambda each: (each.partition not in loads, -_load(each, loads), each.partition))
    tasks: list[list[OffsetRange]] = [[] for _ in range(min(slots, len(heaviest_first)))]
    idlest = [(0, number) for number in range(len(tasks))]
    for offset_range in heaviest_first:
        total, number = idlest[0]
        tasks[number].append(offset_range)
        heapq.heapreplace(idlest, (total + _load(offset_range, loads), number))
    return [tuple(task) for task in tasks]


def heaviest(tasks: Tasks, loads: Loads) -> int:
    """Return the load of the busiest task."""
    return max(sum(_load(offset_range, loads) for offset_range in task) for task in tasks)


def _load(offset_range: OffsetRange, loads: Loads) -> int:
    return loads.get(offset_range.partition, 0) + IDLE_LOAD
