"""Which partitions may hold a record that kills or hangs the workers that parse it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from app.driver.discover import Workload
from app.driver.starting_offsets import PartitionOffsets
from app.model import Partition

# Where there was one such record, more may follow. The longest round takes so long, too.
SUSPECT_SECONDS = 600.0


class Suspects:
    """
    Remembers where partitions stood when the workers of a round died or hung.

    Args:
        clock: a monotonic clock in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._stood: dict[Partition, int] = {}
        """The next offset of each partition when it was last seen in the round that died."""
        self._until: dict[Partition, float] = {}

    def round_died(self, offsets: Mapping[Partition, PartitionOffsets]) -> None:
        """Learn where the partitions stood when they were last seen in such a round."""
        self._stood = {partition: at.next_offset(0) for partition, at in offsets.items()}

    def among(self, workload: Workload) -> frozenset[Partition]:
        """Return the suspects: their records wait, and nothing was committed since a round that died."""
        for partition in workload.ranges.keys() & self._stood.keys():
            if workload.lag(partition) and workload.offsets[partition].next_offset(0) == self._stood[partition]:
                self._until[partition] = self._clock() + SUSPECT_SECONDS
        self._stood.clear()
        return frozenset(partition for partition, until in self._until.items() if self._clock() < until)
