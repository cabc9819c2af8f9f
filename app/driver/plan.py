"""Plans a round: which task cleanses which partitions. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence

from app.model import OffsetRange, Partition

# What an idle partition weighs: its lane, producer and commits are not free.
IDLE_LOAD = 1_000


def plan(ranges: Iterable[OffsetRange], loads: Mapping[Partition, int], slots: int) -> list[tuple[OffsetRange, ...]]:
    """
    Spread partitions over at most `slots` tasks, every partition exactly once, balanced by load.

    Longest processing time first: the heaviest partition goes to the task with the least to do. That is at most a third
    above the best possible (Graham 1969). The order is fixed, so that the same input gives the same plan.

    Args:
        ranges: the partitions to work on.
        loads: records that each of them is expected to bring: its lag and what arrives in a round. A partition whose
            output nobody takes is not there; it comes after all others in its task, also after the idle ones.
        slots: how many tasks can run at once.
    """
    heaviest_first = sorted(ranges, key=lambda each: (each.partition not in loads, -_load(each, loads), each.partition))
    tasks: list[list[OffsetRange]] = [[] for _ in range(min(slots, len(heaviest_first)))]
    idlest = [(0, number) for number in range(len(tasks))]
    for offset_range in heaviest_first:
        total, number = idlest[0]
        tasks[number].append(offset_range)
        heapq.heapreplace(idlest, (total + _load(offset_range, loads), number))
    return [tuple(task) for task in tasks]


def heaviest(tasks: Iterable[Sequence[OffsetRange]], loads: Mapping[Partition, int]) -> int:
    """Return how much the busiest task has to do."""
    return max(sum(_load(offset_range, loads) for offset_range in task) for task in tasks)


def _load(offset_range: OffsetRange, loads: Mapping[Partition, int]) -> int:
    return loads.get(offset_range.partition, 0) + IDLE_LOAD
