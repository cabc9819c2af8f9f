"""The ends at which `--until-end` stops, and the partitions that no task processes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from app.driver.discover import Workload
from app.model import OffsetRange, Partition


def ends_of(workload: Workload) -> dict[Partition, int | None]:
    """Return the current end of each partition; None if it cannot be read yet."""
    unread = dict.fromkeys(workload.blocked)
    return unread | {each: at.watermarks.last_stable for each, at in workload.offsets.items()}


def with_ends_seen(ends: Mapping[Partition, int | None], workload: Workload) -> dict[Partition, int | None]:
    """Return the ends, filled in for partitions that respond for the first time."""
    now = ends_of(workload)
    return {each: now.get(each) if end is None else end for each, end in ends.items()}


def at_rest(workload: Workload, ranges: Iterable[OffsetRange]) -> list[Partition]:
    """Return the partitions with an offset that are not being processed, including unreadable ones."""
    working = {each.partition for each in ranges}
    return [each for each, at in workload.committed.items() if at is not None and each not in working]


def within(workload: Workload, ends: Mapping[Partition, int | None] | None) -> list[OffsetRange]:
    """
    Return what to process: everything, or what lies before the ends seen at the start.

    A start that differs from the committed offset is stored even if nothing is left to read; otherwise `latest` would
    move on with every run.
    """
    if ends is None:
        return list(workload.ranges.values())
    agreed = ((each, ends.get(each.partition)) for each in workload.ranges.values())
    return [
        replace(each, end=max(each.start, end))
        for each, end in agreed
        if end is not None and (each.start < end or each.start != each.committed)
    ]
