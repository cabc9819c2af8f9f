"""How fast partitions are read, and when their dead letters are too many: values that driver and tasks share."""

from __future__ import annotations

from typing import NamedTuple


class Rates(NamedTuple):
    """
    How many records of one partition are read in a second; 0 is no limit.

    Args:
        most: at any time.
        initial: while the group reads what waited when it began with the partition.
    """

    most: int = 0
    initial: int = 0

    def limit(self, *, backlog: bool) -> int | None:
        """Return the limit that applies now, in what waited at the beginning or behind it; None if there is none."""
        return min((rate for rate in (self.most, self.initial if backlog else 0) if rate), default=None)


UNLIMITED = Rates()
BUFFER_MEMORY = 256 << 20
"""How many bytes a task may hold that are not acknowledged, if nobody says otherwise."""


class BreakerLimit(NamedTuple):
    """
    When the dead letters of a partition are too many.

    Args:
        ratio: the share of its records that may be dead letters.
        minimum: how many records there must be before that is judged.
        seconds: how far the window reaches back.
    """

    ratio: float
    minimum: int
    seconds: float
