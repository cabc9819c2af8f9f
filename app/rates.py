"""Read rates and the dead-letter breaker: values that the driver and tasks share."""

from __future__ import annotations

from typing import NamedTuple


class Rates(NamedTuple):
    """The most records to read from a partition per second, at any time and in the initial backlog; 0 is no limit."""

    most: int = 0
    initial: int = 0

    def limit(self, *, backlog: bool) -> int | None:
        return min((rate for rate in (self.most, self.initial if backlog else 0) if rate), default=None)


UNLIMITED = Rates()
BUFFER_MEMORY = 256 << 20
"""The default for how many unacknowledged bytes a task may hold."""


class BreakerLimit(NamedTuple):
    """
    When a partition has too many dead letters.

    Args:
        ratio: the share of its records that may be dead letters.
        minimum: how many records the window must hold before the breaker can trip.
        seconds: the length of the window.
    """

    ratio: float
    minimum: int
    seconds: float


Window = tuple[tuple[float, int, int], ...]
"""
What a partition's breaker has in its window: at most 20 slices, the oldest first.

Each has its age in seconds, the records since then and up to the next one, and how many of them became dead letters.
Plain tuples, because all partitions of a round have one: to pickle named ones takes five times as long.
"""
